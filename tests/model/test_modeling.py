"""`ElmoModel` as users call it: shapes, inputs, invariances, state."""

from pathlib import Path

import pytest
import torch

from elmo_hf import BiLMState, ElmoConfig, ElmoForPreTraining, ElmoModel
from elmo_hf.model.layers_elmo import POOLINGS, masked_max, masked_mean
from tests.helpers.tiny_inputs import TINY, assert_outputs_close, random_inputs, word_config


def test_a_word_embedding_model_reads_its_table() -> None:
    model = ElmoModel(word_config()).eval()
    output = model(ids := torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]]))
    assert torch.equal(output.token_embeddings, model.token_encoder.embedding.weight[ids])
    assert_outputs_close(output.pooler_output[1], output.elmo_representations[0][1, 1])


def test_outputs_have_the_promised_shapes_and_are_zero_on_padding(tiny_config: ElmoConfig) -> None:
    tiny_config.num_output_representations = 2
    inputs = random_inputs(tiny_config, [4, 2, 3])
    output = ElmoModel(tiny_config).eval()(**inputs, output_hidden_states=True)
    assert [tuple(layer.shape) for layer in output.hidden_states] == [(3, 4, 14)] * 3
    assert [tuple(mix.shape) for mix in output.elmo_representations] == [(3, 4, 14)] * 2
    assert output.representations.shape == (3, 2, 4, 14)
    assert torch.equal(output.last_hidden_state, output.elmo_representations[0])
    assert (output.state_hidden.shape, output.state_cell.shape) == ((3, 2, 14), (3, 2, 18))
    assert (output.state.hidden.shape, output.state.cell.shape) == ((2, 3, 14), (2, 3, 18))
    assert (output.token_embeddings.shape, output.pooler_output.shape) == ((3, 4, 7), (3, 14))
    assert torch.equal(output.hidden_states[0], torch.cat([output.token_embeddings] * 2, dim=-1))
    padding = inputs["attention_mask"] == 0
    for tensor in (*output.hidden_states, *output.elmo_representations, output.token_embeddings):
        assert tensor[padding].abs().max() == 0
        assert (tensor[~padding].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("pooling", ["mean", "attention", "max"])  # attention is a classifier's; here it is the mean
def test_a_text_is_pooled_from_its_words_without_boundaries_and_padding(tiny_config: ElmoConfig, pooling: str) -> None:
    """Of texts of three words, of one word and of none, between boundaries; of the first of two mixes."""
    tiny_config.pooling, tiny_config.num_output_representations = pooling, 2
    inputs = random_inputs(tiny_config, [5, 3, 2])
    for row, length in enumerate((5, 3, 2)):
        inputs["input_ids"][row, 0, :3] = torch.tensor([259, 257, 260])
        inputs["input_ids"][row, length - 1, :3] = torch.tensor([259, 258, 260])
    model = ElmoModel(tiny_config).eval()
    model.scalar_mixes[1].set_weights([0, 0, 1], scale=3.0)
    output = model(**inputs)
    words = output.last_hidden_state
    of_three = words[0, 1:4].amax(dim=0) if pooling == "max" else words[0, 1:4].mean(dim=0)
    assert_outputs_close(output.pooler_output, torch.stack([of_three, words[1, 1], torch.zeros(14)]))
    assert masked_max(torch.ones(2, 0, 3), torch.ones(2, 0, dtype=torch.bool)).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_neither_words_nor_texts_nor_state(tiny_model: ElmoModel, side: str, pooling: str) -> None:
    lengths = [2, 6, 1, 4]
    tiny_model.config.pooling = pooling
    tiny_model.double()
    inputs = random_inputs(tiny_model.config, lengths)
    places = [slice(0, length) if side == "right" else slice(6 - length, 6) for length in lengths]
    together = {key: torch.zeros_like(value) for key, value in inputs.items()}
    together["input_ids"].fill_(10**12)  # what stands on padding is not read, and so need not be legal
    for row, (length, place) in enumerate(zip(lengths, places, strict=True)):
        for key, value in inputs.items():
            together[key][row, place] = value[row, :length]
    output = tiny_model(**together, output_hidden_states=True)
    for row, (length, place) in enumerate(zip(lengths, places, strict=True)):
        alone = tiny_model(inputs["input_ids"][row : row + 1, :length], output_hidden_states=True)
        layers, expected = torch.stack(output.hidden_states), torch.stack(alone.hidden_states)
        assert_outputs_close(layers[:, row, place], expected[:, 0], 1e-12)
        assert_outputs_close(output.pooler_output[row], alone.pooler_output[0], 1e-12)
        assert_outputs_close(output.state.hidden[:, row], alone.state.hidden[:, 0], 1e-12)
        assert_outputs_close(output.state.cell[:, row], alone.state.cell[:, 0], 1e-12)


def test_the_returned_state_is_detached_but_gradients_reach_a_state_passed_in(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [3, 2])
    state = tiny_model(**inputs).state
    assert not any(tensor.requires_grad for tensor in state)
    vectors = tiny_model(**inputs, state=BiLMState(*(tensor.requires_grad_() for tensor in state))).last_hidden_state
    assert all(gradient.any() for gradient in torch.autograd.grad(vectors.sum(), state))


def test_a_state_is_resized_and_updated_row_by_row() -> None:
    """The first rows stay, zeros are added; the rows beyond a newer state stay."""
    state, newer = (BiLMState(torch.randn(2, rows, 14), torch.randn(2, rows, 18)) for rows in (3, 2))
    states = zip(state, newer, state.resize(2), state.resize(5), state.update(newer), strict=True)
    for whole, new, smaller, larger, updated in states:
        assert torch.equal(smaller, whole[:, :2])
        assert torch.equal(larger, torch.cat([whole, torch.zeros_like(whole[:, :2])], dim=1))
        assert torch.equal(updated, torch.cat([new, whole[:, 2:]], dim=1))


@pytest.mark.parametrize(
    ("lengths", "shape"), [([0, 0], (2, 0)), ([3, 0, 1], (3, 3))], ids=["no words at all", "one text without words"]
)
def test_texts_without_words_are_zero(tiny_model: ElmoModel, lengths: list[int], shape: tuple[int, int]) -> None:
    output = tiny_model(**random_inputs(tiny_model.config, lengths))
    assert output.last_hidden_state.shape == (*shape, 14)
    empty = lengths.index(0)
    assert output.pooler_output[empty].abs().max() == 0
    assert output.state.hidden[:, empty].abs().max() == output.state.cell[:, empty].abs().max() == 0
    assert tiny_model(torch.zeros(2, 3, 11, dtype=torch.long)).token_embeddings.abs().max() == 0
    assert tiny_model(torch.zeros(0, 3, 11, dtype=torch.long)).last_hidden_state.shape == (0, 3, 14)


def test_word_vectors_or_embedded_characters_replace_ids(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    expected = tiny_model(**inputs)
    mask = inputs["attention_mask"]
    characters = tiny_model.get_input_embeddings()(inputs["input_ids"])
    for embeds in (expected.token_embeddings.clone(), characters):
        embeds[1, 2:] = 9  # on padding
        output = tiny_model(inputs_embeds=embeds, attention_mask=mask)
        assert_outputs_close(output.to_tuple(), expected.to_tuple())
    everywhere = tiny_model(inputs_embeds=expected.token_embeddings)
    assert (everywhere.last_hidden_state[1, 3].abs() > 0).any()


def test_a_hook_on_the_character_table_gets_all_words_in_their_places(tiny_model: ElmoModel) -> None:
    inputs, table, found = random_inputs(tiny_model.config, [4, 2]), tiny_model.get_input_embeddings(), []
    expected, characters = tiny_model(**inputs), table(inputs["input_ids"])
    with table.register_forward_hook(lambda module, given, output: found.append(output)):
        output = tiny_model(**inputs)
    assert_outputs_close(found, [characters], 0)
    assert_outputs_close(output.to_tuple(), expected.to_tuple())


@pytest.mark.parametrize("name", ["int16", "int32", "uint16", "uint32", "uint64"])
def test_ids_may_be_of_any_integer_type_that_holds_them(name: str, tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    found = tiny_model(inputs["input_ids"].to(getattr(torch, name)), inputs["attention_mask"])
    assert_outputs_close(found.to_tuple(), tiny_model(**inputs).to_tuple(), 0)


def test_layers_come_back_if_the_config_asks_for_them(tiny_config: ElmoConfig) -> None:
    inputs = random_inputs(tiny_config, [3, 2])
    tiny_config.output_hidden_states, tiny_config.num_softmax_words = True, 5
    model = ElmoForPreTraining(tiny_config).eval()
    expected = model.elmo(**inputs, output_hidden_states=True).hidden_states
    assert_outputs_close(model(**inputs).hidden_states, expected, 0)
    assert model(**inputs, output_hidden_states=False).hidden_states is None


def test_more_rows_of_the_input_embedding_change_no_vector(tiny_model: ElmoModel, tmp_path: Path) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    expected = tiny_model(**inputs).last_hidden_state
    tiny_model.resize_token_embeddings(300, mean_resizing=False)
    tiny_model.save_pretrained(tmp_path)
    for each in (tiny_model, ElmoModel.from_pretrained(tmp_path)):
        assert each.config.vocab_size == 300
        assert_outputs_close(each(**inputs).last_hidden_state, expected, 0)


def test_a_mean_over_a_long_text_in_half_precision_does_not_overflow() -> None:
    mean = masked_mean(torch.full((1, 3000, 2), 30.0, dtype=torch.float16), torch.ones(1, 3000, dtype=torch.bool))
    assert mean.dtype == torch.float16
    assert mean.tolist() == [[30, 30]]


def test_a_state_is_cast_to_the_models_precision(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    state = tiny_model(**inputs).state
    found = tiny_model.double()(**inputs, state=state).to_tuple()
    expected = tiny_model(**inputs, state=BiLMState(*(tensor.double() for tensor in state))).to_tuple()
    assert_outputs_close(found, expected, 0)


def test_a_word_is_a_position_with_any_id_above_zero(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    inputs["input_ids"][0, 1, :10] = 0
    assert_outputs_close(tiny_model(inputs["input_ids"]).to_tuple(), tiny_model(**inputs).to_tuple())


CHARACTERS_AND_WORDS = {"vocab_size": 30, "num_input_words": 9, "word_embedding_size": 4, "alphabet": "code_points"}
CHARACTERS_AND_WORDS |= {"bos_token_id": 5, "eos_token_id": 6}
CONFIGS = {
    "characters": (ElmoConfig(**TINY), (3, 5, 11)),
    "words": (word_config(), (3, 5)),
    "characters and words": (ElmoConfig(**TINY, **CHARACTERS_AND_WORDS), (3, 5, 12)),
}


@pytest.mark.parametrize(("config", "shape"), CONFIGS.values(), ids=CONFIGS)
def test_dummy_inputs_are_texts_that_begin_with_a_boundary(config: ElmoConfig, shape: tuple[int, ...]) -> None:
    model = ElmoModel(config)
    ids = model.dummy_inputs["input_ids"]
    assert ids.shape == shape
    assert model.begins(ids).tolist() == [[True, False, False, False, False]] * 3
    assert model(ids).last_hidden_state.shape == (3, 5, 2 * config.projection_size)


def test_a_model_without_numbers_gives_the_shapes_of_its_outputs(tiny_config: ElmoConfig) -> None:
    inputs = random_inputs(tiny_config, [4, 2, 3])
    expected = ElmoModel(tiny_config).eval()(**inputs, output_hidden_states=True)
    with torch.device("meta"):
        model = ElmoModel(tiny_config).eval()
    found = model(**{name: tensor.to("meta") for name, tensor in inputs.items()}, output_hidden_states=True)
    assert found.last_hidden_state.is_meta
    for name in expected:
        if name == "hidden_states":
            assert [layer.shape for layer in found[name]] == [layer.shape for layer in expected[name]]
        else:
            assert found[name].shape == expected[name].shape, name
