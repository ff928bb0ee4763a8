"""Each piece of the model against the NumPy reference: values, gradients and states, in float64."""

import numpy as np
import pytest
import torch
from conftest import random_inputs

from elmo_hf import ElmoConfig, ElmoModel, lstmp
from elmo_hf.conversion.allennlp import allennlp_rules, options_from_config
from elmo_hf.conversion.reference import ReferenceElmo, State
from elmo_hf.conversion.rules import export_arrays
from elmo_hf.lstmp import clip
from elmo_hf.scalar_mix import ScalarMix, normalise_batch

WORDS = ["The", "naïve", "日本語", "", "extraordinarily"]


def variants() -> dict[str, dict[str, object]]:
    """Architectures that differ from the tiny config in one way each."""
    return {
        "as it is": {},
        "tanh": {"char_activation": "tanh"},
        "no highway": {"num_highway_layers": 0},
        "no skip": {"use_skip_connections": False},
        "no clips": {"cell_clip": None, "projection_clip": None},
        "four layers": {"num_hidden_layers": 4},
        "no cell projection": {"cell_size": 7, "cell_projection": False},
        "square cell projection": {"cell_size": 7, "cell_projection": True},
        "no char projection": {"char_filters": [[1, 3], [4, 4]], "char_projection": False},
        "square char projection": {"char_filters": [[1, 3], [4, 4]], "char_projection": True},
    }


@pytest.fixture(params=variants().values(), ids=variants().keys())
def model(request: pytest.FixtureRequest, tiny_config: ElmoConfig) -> ElmoModel:
    fields = tiny_config.to_diff_dict() | {"char_projection": None, "cell_projection": None} | request.param
    model = ElmoModel(ElmoConfig(**fields)).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        model.token_encoder.embedding.weight[0] = 0
    return model


def reference_of(model: ElmoModel) -> ReferenceElmo:
    """The reference on the model's weights, in the checkpoint's own names and layout."""
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return ReferenceElmo(options_from_config(model.config), export_arrays(allennlp_rules(model.config), tensors))


def ids_of(reference: ReferenceElmo, words: list[str]) -> torch.Tensor:
    return torch.tensor([reference.character_ids(word) for word in words]) + 1


def test_the_character_cnn_is_the_references(model: ElmoModel) -> None:
    reference = reference_of(model)
    vectors = model.token_encoder(ids_of(reference, WORDS))
    expected = np.stack([reference.word_vector(word) for word in WORDS])
    np.testing.assert_allclose(vectors.detach(), expected, atol=1e-12)


def only_layer(reference: ReferenceElmo, index: int) -> ReferenceElmo:
    """The reference of one layer, as the first of one."""
    arrays = {
        name.replace(f"Cell{index}/", "Cell0/"): a for name, a in reference.arrays.items() if f"Cell{index}/" in name
    }
    return ReferenceElmo({"lstm": reference.lstm | {"n_layers": 1}, "char_cnn": reference.char_cnn}, arrays)


@pytest.mark.parametrize(
    ("file_name", "name", "reverse"), [("RNN_0", "forward_lstm", False), ("RNN_1", "backward_lstm", True)]
)
def test_each_direction_of_each_layer_is_the_references_with_its_state(
    model: ElmoModel, file_name: str, name: str, reverse: bool
) -> None:
    reference = reference_of(model)
    size, cell_size = model.config.projection_size, model.config.cell_size
    inputs, hidden, cell = (torch.randn(*shape, dtype=torch.float64) for shape in ((6, size), (size,), (cell_size,)))
    mask = torch.ones(1, 6, dtype=torch.bool)
    for index, layer in enumerate(model.bilm.layers):
        outputs, last_hidden, last_cell = getattr(layer, name)(inputs[None], mask, hidden[None], cell[None], reverse)
        state: State = {(file_name, 0): (hidden.numpy(), cell.numpy())}
        words = inputs.flip(0).numpy() if reverse else inputs.numpy()
        (expected,) = only_layer(reference, index).direction(file_name, words, state)
        np.testing.assert_allclose(outputs[0].detach(), expected[::-1] if reverse else expected, atol=1e-12)
        np.testing.assert_allclose(last_hidden[0].detach(), state[file_name, 0][0], atol=1e-12)
        np.testing.assert_allclose(last_cell[0].detach(), state[file_name, 0][1], atol=1e-12)


def test_all_layers_and_the_state_of_two_calls_are_the_references(model: ElmoModel) -> None:
    reference = reference_of(model)
    reference_state: State = {}
    state = None
    for words in (WORDS, ["Second", "call", "."]):
        expected = reference.embed(words, reference_state)
        ids = ids_of(reference, ["<S>", *words, "</S>"])[None]
        output = model(ids, state=state, output_hidden_states=True)
        state = output.state
        np.testing.assert_allclose(torch.stack(output.hidden_states)[:, 0].detach(), expected, atol=1e-12)
        for part, tensor in enumerate(state):
            halves = [
                np.stack([reference_state[name, layer][part] for layer in range(model.config.num_hidden_layers)])
                for name in ("RNN_0", "RNN_1")
            ]
            np.testing.assert_allclose(tensor[:, 0], np.concatenate(halves, axis=-1), atol=1e-12)


def test_gradients_of_every_parameter_are_the_references_finite_differences(model: ElmoModel) -> None:
    """Along a random direction, of a random projection of all layers; NumPy has no gradients of its own."""
    reference = reference_of(model)
    weights = torch.randn(model.config.num_hidden_layers + 1, len(WORDS) + 2, model.config.hidden_size).double()

    def loss_of(reference: ReferenceElmo) -> float:
        return float((reference.embed(WORDS) * weights.numpy()).sum())

    ids = ids_of(reference, ["<S>", *WORDS, "</S>"])[None]
    layers = torch.stack(model(ids, output_hidden_states=True).hidden_states)[:, 0]
    (layers * weights).sum().backward()
    for name, parameter in model.named_parameters():
        if name.startswith("scalar_mixes"):
            continue
        original = parameter.data.clone()
        direction = torch.randn_like(parameter)
        if name == "token_encoder.embedding.weight":
            direction[0] = 0
        losses = []
        for step in (1e-6, -1e-6):
            parameter.data = original + step * direction
            losses.append(loss_of(reference_of(model)))
        parameter.data = original
        assert parameter.grad is not None
        analytic = float((parameter.grad * direction).sum())
        assert analytic == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-6), name


def test_scalar_mixes_are_equation_1(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    mix = ScalarMix(tiny_config)
    with torch.no_grad():
        mix.logits.copy_(torch.tensor([0.3, -1.2, 0.7]))
        mix.scale.fill_(1.7)
    softmax = np.exp([0.3, -1.2, 0.7]) / np.exp([0.3, -1.2, 0.7]).sum()
    expected = 1.7 * np.einsum("l,lbtd->btd", softmax, np.stack([layer.numpy() for layer in layers]))
    np.testing.assert_allclose(mix(layers, mask).detach(), expected * mask.unsqueeze(-1).numpy(), atol=1e-6)
    np.testing.assert_allclose(mix.weights.detach(), softmax, atol=1e-7)


def test_a_picked_layer_is_that_layer_exactly_and_other_layers_get_no_gradient(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    mix = ScalarMix(tiny_config)
    mix.set_weights([0, 1, 0])
    assert mix.weights.tolist() == [0, 1, 0]
    mixed = mix(layers, mask)
    assert torch.equal(mixed, layers[1] * mask.unsqueeze(-1))
    mixed.sum().backward()
    assert torch.isfinite(mix.logits.grad).all()


def test_given_weights_are_where_a_mix_starts(tiny_config: ElmoConfig) -> None:
    tiny_config.scalar_mix_weights = [0.2, 0.3, 0.5]
    model = ElmoModel(tiny_config)
    torch.testing.assert_close(model.scalar_mixes[0].weights.detach(), torch.tensor([0.2, 0.3, 0.5]))
    assert all(parameter.requires_grad for parameter in model.scalar_mixes.parameters())


def test_a_frozen_mix_of_one_layer_is_that_layer_exactly(tiny_config: ElmoConfig) -> None:
    tiny_config.scalar_mix_weights, tiny_config.scalar_mix_trainable = [0.0, 0.0, 1.0], False
    model = ElmoModel(tiny_config).eval()
    assert not any(parameter.requires_grad for parameter in model.scalar_mixes.parameters())
    output = model(**random_inputs(tiny_config, [3, 2]))
    assert torch.equal(output.elmo_representations[0], output.last_hidden_state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_batch_normalisation_of_a_large_batch_in_half_precision_is_that_in_float32(
    tiny_config: ElmoConfig, dtype: torch.dtype
) -> None:
    layer, mask = 5 * torch.randn(9, 700, 14) + 3, torch.ones(9, 700, dtype=torch.bool)
    expected = normalise_batch(layer, mask)
    torch.testing.assert_close(normalise_batch(layer.to(dtype), mask).float(), expected, atol=3e-2, rtol=2e-2)


@pytest.mark.parametrize("rows", [1, 4, 9, 1000])
def test_a_long_text_scanned_in_blocks_gives_the_same_vectors(
    tiny_model: ElmoModel, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = random_inputs(tiny_model.config, [7, 3])
    expected = tiny_model.double()(**inputs)
    monkeypatch.setattr(lstmp, "GATE_ROWS", rows)
    actual = tiny_model(**inputs)
    torch.testing.assert_close(actual.to_tuple(), expected.to_tuple(), atol=1e-12, rtol=0)


def test_word_normalisation_looks_at_each_word_alone(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    tiny_config.scalar_mix_layer_norm = "word"
    stacked = np.stack([layer.numpy() for layer in layers])
    deviation = np.sqrt(stacked.var(axis=-1, keepdims=True) + 1e-5)
    expected = ((stacked - stacked.mean(axis=-1, keepdims=True)) / deviation).mean(axis=0)
    actual = ScalarMix(tiny_config)(layers, mask).detach()
    np.testing.assert_allclose(actual, expected * mask.unsqueeze(-1).numpy(), atol=1e-5)


def test_batch_normalisation_takes_one_mean_and_variance_over_all_words(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    tiny_config.scalar_mix_layer_norm = "batch"
    expected = np.zeros(layers[0].shape)
    for layer in layers:
        words = layer.numpy()[mask.numpy()]
        expected += (layer.numpy() - words.mean()) / np.sqrt(words.var() + 1e-13) / len(layers)
    actual = ScalarMix(tiny_config)(layers, mask).detach()
    np.testing.assert_allclose(actual, expected * mask.unsqueeze(-1).numpy(), atol=1e-5)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.6, 0.1], [-0.5, 1.0, 0.5]], ids=["too few", "sum", "negative"])
def test_illegal_mix_weights_are_refused(tiny_config: ElmoConfig, weights: list[float]) -> None:
    with pytest.raises(ValueError, match="`weights`"):
        ScalarMix(tiny_config).set_weights(weights)


def test_the_gradient_of_a_clip_is_one_inside_the_limits_and_at_them_and_zero_outside() -> None:
    values = torch.tensor([-3.0, -2.0, 0.5, 2.0, 2.5], requires_grad=True)
    clip(values, 2.0).sum().backward()
    assert values.grad.tolist() == [0, 1, 1, 1, 0]


def mix_inputs(config: ElmoConfig) -> tuple[list[torch.Tensor], torch.Tensor]:
    layers = [torch.randn(2, 4, config.hidden_size) for _ in range(config.num_hidden_layers + 1)]
    return layers, torch.tensor([[True, True, True, True], [True, True, False, False]])
