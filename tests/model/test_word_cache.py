"""Words kept from call to call: not computed again, and never used once they are out of date."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_inputs import assert_outputs_close, random_inputs, word_config
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.model import word_cache
from elmo_hf.model.token_encoder import CharacterCNN, WordEmbedding
from elmo_hf.model.word_cache import distinct_rows


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many words each call of a token encoder computes."""
    counts: list[int] = []

    def counting(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(encoder: nn.Module, ids: Tensor) -> Tensor:
            counts.append(len(ids))
            return forward(encoder, ids)

        return call

    for kind in (CharacterCNN, WordEmbedding):
        monkeypatch.setattr(kind, "forward", counting(kind.forward))
    return counts


def without_cache(model: ElmoModel, inputs: dict[str, Tensor]) -> Tensor:
    """The token vectors of a fresh model with the same weights."""
    fresh = ElmoModel(model.config).to(model.dtype)
    fresh.load_state_dict(model.state_dict())
    return fresh(**inputs).token_embeddings


@torch.no_grad()
def test_kept_words_are_not_computed_again(tiny_model: ElmoModel, computed: list[int]) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2, 5])
    expected = tiny_model(**inputs, output_hidden_states=True)
    tiny_model.cache_words(inputs["input_ids"][:2])
    assert len(tiny_model.word_cache) == 6
    found = tiny_model(**inputs, output_hidden_states=True)
    assert_outputs_close(found.hidden_states, expected.hidden_states)
    again = tiny_model(inputs["input_ids"][:2], output_hidden_states=True)
    assert_outputs_close(again.hidden_states[2][:, :4], expected.hidden_states[2][:2, :4])
    assert computed == [11, 6, 5]


@torch.no_grad()
def test_the_same_words_have_the_same_bits_whatever_was_computed_in_between(tiny_model: ElmoModel) -> None:
    first, second = (random_inputs(tiny_model.config, [4, 2, 5], seed) for seed in (1, 2))
    tiny_model.cache_words(first["input_ids"])
    before = tiny_model(**first).last_hidden_state
    tiny_model(**second)
    assert torch.equal(tiny_model(**first).last_hidden_state, before)


@torch.no_grad()
def test_new_words_replace_the_kept_ones_and_none_clears_the_cache(tiny_model: ElmoModel, computed: list[int]) -> None:
    first, second = (random_inputs(tiny_model.config, [4, 3], seed) for seed in (1, 2))
    tiny_model.cache_words(first["input_ids"].to(torch.int16))
    tiny_model.cache_words(second["input_ids"])
    tiny_model(**first)
    tiny_model(**second)
    assert computed == [7, 7, 7]
    tiny_model.cache_words(None)
    assert len(tiny_model.word_cache) == 0
    tiny_model(**second)
    assert computed == [7, 7, 7, 7]


@torch.no_grad()
def test_word_ids_can_be_kept_too(computed: list[int]) -> None:
    model = ElmoModel(word_config(word_embedding_size=3)).eval()
    ids = torch.tensor([[1, 5, 6, 5, 2], [1, 7, 2, 0, 0]])
    expected = model(ids).token_embeddings
    model.cache_words(ids[:1])
    assert_outputs_close(model(ids).token_embeddings, expected)
    assert computed == [5, 4, 1]


def step(model: ElmoModel) -> None:
    model.token_encoder.highways[0].gate.weight.grad = torch.ones(13, 13)
    torch.optim.AdamW(model.parameters(), lr=0.1).step()


def load(model: ElmoModel) -> None:
    model.load_state_dict({name: 2 * tensor for name, tensor in model.state_dict().items()})


def assign(model: ElmoModel) -> None:
    model.load_state_dict({name: 2 * tensor for name, tensor in model.state_dict().items()}, assign=True)


def replace_data(model: ElmoModel) -> None:
    bias = model.token_encoder.projection.bias
    bias.data = bias.data + 1


def replace_embedding(model: ElmoModel) -> None:
    embedding = nn.Embedding(262, 5, padding_idx=0)
    model.set_input_embeddings(embedding)


def set_one(model: ElmoModel) -> None:
    with torch.no_grad():
        model.token_encoder.convolutions[2].bias[3] = 5.0


@pytest.mark.parametrize(
    "change",
    [step, load, assign, replace_data, replace_embedding, set_one, ElmoModel.double, ElmoModel.bfloat16],
    ids=lambda change: change.__name__,
)
def test_changed_weights_are_noticed_at_once(
    change: Callable[[ElmoModel], object], tiny_model: ElmoModel, computed: list[int]
) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    tiny_model.cache_words(inputs["input_ids"])
    before = tiny_model(**inputs).token_embeddings
    change(tiny_model)
    with torch.no_grad():
        found = tiny_model(**inputs).token_embeddings
    assert computed == [6, 6, 6]
    assert found.dtype == tiny_model.dtype
    assert not torch.equal(found, before.to(found.dtype))
    assert_outputs_close(found, without_cache(tiny_model, inputs))


def test_kept_words_are_not_used_when_a_gradient_is_needed(tiny_model: ElmoModel, computed: list[int]) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    tiny_model.cache_words(inputs["input_ids"])
    tiny_model.train()(**inputs).last_hidden_state.sum().backward()
    assert computed == [6, 6]
    assert tiny_model.token_encoder.projection.weight.grad.abs().max() > 0


def test_training_on_a_frozen_encoder_can_use_words_kept_in_inference_mode(
    tiny_model: ElmoModel, computed: list[int]
) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    tiny_model.token_encoder.requires_grad_(False)
    tiny_model(**inputs).last_hidden_state.sum().backward()
    expected = [parameter.grad for parameter in tiny_model.bilm.parameters()]
    tiny_model.zero_grad()
    with torch.inference_mode():
        tiny_model.cache_words(inputs["input_ids"].clone())
    tiny_model(**inputs).last_hidden_state.sum().backward()
    assert_outputs_close([parameter.grad for parameter in tiny_model.bilm.parameters()], expected, 1e-5)
    assert computed == [6, 6]


@torch.no_grad()
def test_under_autocast_words_are_computed_with_it(tiny_model: ElmoModel, computed: list[int]) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    with torch.autocast("cpu", torch.bfloat16):
        expected = tiny_model(**inputs).token_embeddings
    tiny_model.cache_words(inputs["input_ids"])
    with torch.autocast("cpu", torch.bfloat16):
        found = tiny_model(**inputs).token_embeddings
    assert computed == [6, 6, 6]
    assert found.dtype == expected.dtype == torch.bfloat16
    assert torch.equal(found, expected)


def add_hook(model: ElmoModel) -> None:
    model.token_encoder.highways[0].register_forward_hook(lambda module, args, output: output + 1)


def add_pre_hook(model: ElmoModel) -> None:
    model.token_encoder.embedding.register_forward_pre_hook(lambda module, args: (args[0].flip(1),))


def put_forward(model: ElmoModel) -> None:
    projection = model.token_encoder.projection
    projection.forward = lambda inputs: nn.functional.linear(inputs, 2 * projection.weight)


def put_module(model: ElmoModel) -> None:
    model.token_encoder.projection = nn.Sequential(model.token_encoder.projection, nn.Tanh())


@pytest.mark.parametrize(
    "change", [add_hook, add_pre_hook, put_forward, put_module], ids=lambda change: change.__name__
)
@torch.no_grad()
def test_a_modified_encoder_neither_keeps_nor_uses_words(
    change: Callable[[ElmoModel], None], tiny_model: ElmoModel, computed: list[int]
) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    before = tiny_model(**inputs).token_embeddings
    tiny_model.cache_words(inputs["input_ids"])
    change(tiny_model)
    found = tiny_model(**inputs).token_embeddings
    assert not torch.equal(found, before)
    tiny_model.cache_words(inputs["input_ids"])
    assert len(tiny_model.word_cache) == 0
    assert_outputs_close(tiny_model(**inputs).token_embeddings, found)
    assert computed == [6, 6, 6, 6]


def test_nothing_is_kept_from_weights_whose_changes_torch_does_not_count(tiny_model: ElmoModel) -> None:
    ids = random_inputs(tiny_model.config, [4, 2])["input_ids"]
    with torch.inference_mode():
        model = ElmoModel(tiny_model.config).eval()
        model.cache_words(ids)
        assert len(model.word_cache) == 0
        model(ids)


@torch.no_grad()
def test_a_compiled_model_computes_its_words(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    expected = tiny_model(**inputs).token_embeddings
    compiled = torch.compile(tiny_model.embed_words, backend="eager", fullgraph=True)
    tiny_model.cache_words(inputs["input_ids"])
    assert_outputs_close(compiled(**inputs)[0], expected)


def test_copies_pickles_and_saved_folders_hold_no_words(tiny_model: ElmoModel, tmp_path: Path) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    keys, config = set(tiny_model.state_dict()), tiny_model.config.to_json_string()
    tiny_model.cache_words(inputs["input_ids"])
    assert set(tiny_model.state_dict()) == keys
    assert tiny_model.config.to_json_string() == config
    tiny_model.save_pretrained(tmp_path)
    file = io.BytesIO()
    torch.save(tiny_model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(tiny_model),
        pickle.loads(pickle.dumps(tiny_model)),
        torch.load(file, weights_only=False),  # a whole model, written four lines above
        ElmoModel.from_pretrained(tmp_path),
    ]
    assert [len(each.word_cache) for each in copies] == [0] * 4
    assert len(tiny_model.word_cache) == 6
    for each in copies:
        assert_outputs_close(each.eval()(**inputs).token_embeddings, tiny_model(**inputs).token_embeddings)
        each.cache_words(inputs["input_ids"])
        assert len(each.word_cache) == 6


@pytest.mark.parametrize("multiplier", [word_cache.MULTIPLIER, 0, 1], ids=["the one used", "all equal", "sums"])
@torch.no_grad()
def test_words_with_equal_hashes_are_distinguished(
    multiplier: int, tiny_model: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = random_inputs(tiny_model.config, [5, 3, 4])
    # Two words with the same ids in another order.
    inputs["input_ids"][0, 1] = inputs["input_ids"][0, 0].flip(0)
    inputs["input_ids"][2, 1] = inputs["input_ids"][0, 0]
    expected = tiny_model(**inputs).token_embeddings
    monkeypatch.setattr(word_cache, "MULTIPLIER", multiplier)
    ids = inputs["input_ids"][inputs["attention_mask"].bool()]
    distinct, which = distinct_rows(ids)
    assert len(distinct) == 11
    assert torch.equal(distinct[which], ids)
    tiny_model.cache_words(inputs["input_ids"][:2])
    assert_outputs_close(tiny_model(**inputs).token_embeddings, expected)


@torch.no_grad()
def test_a_text_without_words_keeps_nothing(tiny_model: ElmoModel) -> None:
    ids = torch.zeros(2, 3, 11, dtype=torch.long)
    tiny_model.cache_words(ids)
    assert len(tiny_model.word_cache) == 0
    assert tiny_model(ids).token_embeddings.abs().max() == 0
    tiny_model.cache_words(random_inputs(tiny_model.config, [2])["input_ids"])
    assert tiny_model(ids).token_embeddings.abs().max() == 0


def test_ids_of_another_shape_are_refused(tiny_model: ElmoModel) -> None:
    with pytest.raises(ValueError, match=r"^`input_ids` must be character ids of shape \(batch, words, 11\), found"):
        tiny_model.cache_words(torch.ones(2, 11, dtype=torch.long))
