"""Mixes of layers: equation 1, weights, normalisation, penalty, and the linear mix."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from elmo_hf import ElmoConfig, ElmoForSequenceClassification, ElmoModel
from elmo_hf.folder.loading import load_complete
from elmo_hf.model.layers_elmo import LinearMix, ScalarMix, normalise_batch
from tests.helpers.tiny_inputs import TINY, assert_outputs_close, random_inputs


@pytest.fixture
def layers() -> list[Tensor]:
    return [torch.randn(2, 4, 14) for _ in range(3)]


@pytest.fixture
def mask() -> Tensor:
    return torch.tensor([[True, True, True, True], [True, True, False, False]])


# From all words of a layer `(N, 2P)`.
NORMALISED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda words: words,
    "batch": lambda words: (words - words.mean()) / np.sqrt(words.var() + 1e-13),
    "word": lambda words: (words - words.mean(-1, keepdims=True)) / np.sqrt(words.var(-1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("size", [1, 1e-3, 1e-7])  # where words are small, the epsilon counts
@pytest.mark.parametrize("layer_norm", NORMALISED)
def test_scalar_mixes_are_equation_1_of_normalised_layers(
    layer_norm: str, size: float, tiny_config: ElmoConfig, layers: list[Tensor], mask: Tensor
) -> None:
    tiny_config.scalar_mix_layer_norm = layer_norm
    mix, logits, layers = ScalarMix(tiny_config).double(), [0.5, -1.25, 0.75], [size * each.double() for each in layers]
    with torch.no_grad():
        mix.logits.copy_(torch.tensor(logits).double())
        mix.scale.fill_(1.7)
        found = mix(layers, mask)
    weights = np.exp(logits) / np.exp(logits).sum()
    normalised = np.stack([NORMALISED[layer_norm](layer[mask].numpy()) for layer in layers])
    np.testing.assert_allclose(mix.weights.detach(), weights, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found[mask], 1.7 * np.einsum("l,lnd->nd", weights, normalised), rtol=1e-9, atol=1e-15)
    assert not found[~mask].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_a_single_layer_is_picked_exactly_with_finite_gradients_and_stays_so(
    dtype: torch.dtype, tiny_config: ElmoConfig, layers: list[Tensor], mask: Tensor
) -> None:
    mix, layers = ScalarMix(tiny_config).to(dtype), [layer.to(dtype) for layer in layers]
    mix.set_weights([0, 1, 0])
    mixed = mix(layers, mask)
    assert torch.equal(mixed, layers[1] * mask.unsqueeze(-1))
    mixed.sum().backward()
    assert torch.isfinite(mix.logits.grad).all()
    torch.optim.SGD(mix.parameters(), lr=0.1, weight_decay=0.1).step()
    assert torch.isfinite(mix.logits).all()
    assert mix.weights.tolist() == [0, 1, 0]


def test_the_weights_of_one_mix_are_taken_by_another(tiny_config: ElmoConfig) -> None:
    mix, other = ScalarMix(tiny_config), ScalarMix(tiny_config)
    mix.set_weights([0.2, 0.3, 0.5])
    for weights in (mix.weights, mix.weights.detach().numpy()):
        other.set_weights(weights)
        assert torch.equal(other.logits, mix.weights.log())


def test_batch_normalisation_of_a_large_batch_in_half_precision_is_that_of_float32() -> None:
    layer, mask = 5 * torch.randn(9, 700, 14) + 3, torch.ones(9, 700, dtype=torch.bool)
    for dtype in (torch.float16, torch.bfloat16):  # in which the sum overflows
        found = normalise_batch(layer.to(dtype), mask).float()
        torch.testing.assert_close(found, normalise_batch(layer, mask), atol=3e-2, rtol=2e-2)


def test_the_penalty_is_the_sum_of_squared_logits_from_their_mean(tiny_config: ElmoConfig) -> None:
    mix = ScalarMix(tiny_config)
    mix.set_weights([1 / 3, 1 / 3, 1 / 3], scale=3.0)
    assert mix.penalty() == 0
    with torch.no_grad():
        mix.logits.copy_(torch.tensor([0.5, -2.0, 4.5]))
    assert mix.penalty().item() == pytest.approx(0.5**2 + 3**2 + 3.5**2)
    mix.penalty().backward()
    assert mix.logits.grad.tolist() == pytest.approx([-1, -6, 7])
    assert mix.scale.grad is None
    mix.set_weights([0, 0.2, 0.8])  # weights set to zero are left out
    mix.zero_grad()
    mix.penalty().backward()
    assert mix.penalty().item() == pytest.approx(2 * (np.log(4) / 2) ** 2)
    assert mix.logits.grad[0] == 0


@pytest.mark.parametrize(("bidirectional", "size"), [(True, 14), (False, 7)])
def test_a_linear_mix_is_a_linear_layer_over_all_layers_and_starts_as_their_mean(
    bidirectional: bool, size: int, tmp_path: Path
) -> None:
    model = ElmoModel(ElmoConfig(**TINY, layer_mix="linear", bidirectional=bidirectional)).eval()
    inputs = random_inputs(model.config, [4, 2])
    output = model(**inputs, output_hidden_states=True)
    layers, mask = torch.stack(output.hidden_states), inputs["attention_mask"].unsqueeze(-1)
    assert_outputs_close(output.elmo_representations[0], layers.mean(dim=0))
    linear = model.linear_mixes[0].linear
    torch.nn.init.normal_(linear.weight)
    torch.nn.init.normal_(linear.bias)
    parts = linear.weight.view(size, 3, size)
    expected = (torch.einsum("olf,lbtf->bto", parts, layers) + linear.bias) * mask
    model.save_pretrained(tmp_path)
    again = ElmoModel.from_pretrained(tmp_path).eval()
    assert all(isinstance(mix, LinearMix) for mix in again.linear_mixes)
    for each in (model, again):
        assert_outputs_close(each(**inputs).elmo_representations[0], expected, 1e-5)


def test_the_scale_does_not_widen_the_type_of_layers(
    tiny_config: ElmoConfig, layers: list[Tensor], mask: Tensor
) -> None:
    mix = ScalarMix(tiny_config)
    assert mix([layer.bfloat16() for layer in layers], mask).dtype == torch.bfloat16


def test_a_state_dict_may_have_a_scale_without_an_axis(tiny_config: ElmoConfig) -> None:
    mix = ScalarMix(tiny_config)
    state_dict = {"logits": torch.tensor([0.5, -1.0, 2.0]), "scale": torch.tensor(1.7)}
    mix.load_state_dict(state_dict)
    assert state_dict["scale"].shape == ()  # the caller's own stays as it is
    torch.testing.assert_close(mix.scale.detach(), torch.tensor([1.7]), rtol=0, atol=0)


@pytest.mark.parametrize("model_class", [ElmoModel, ElmoForSequenceClassification])
def test_weights_of_an_earlier_version_have_scales_without_an_axis_and_are_saved_with_one(
    model_class: type, tmp_path: Path
) -> None:
    model = ElmoModel(ElmoConfig(**TINY, num_output_representations=2))
    model.scalar_mixes[0].set_weights([0.2, 0.3, 0.5], scale=1.5)
    model.scalar_mixes[1].set_weights([0.5, 0.5, 0.0], scale=-0.25)
    model.save_pretrained(tmp_path / "old")
    tensors = load_file(tmp_path / "old" / "model.safetensors")
    for number in (0, 1):
        tensors[f"scalar_mixes.{number}.scale"] = tensors[f"scalar_mixes.{number}.scale"].reshape(())
    save_file(tensors, tmp_path / "old" / "model.safetensors", metadata={"format": "pt"})
    loaded = model_class.from_pretrained(tmp_path / "old")
    assert [mix.scale.tolist() for mix in loaded.scalar_mixes_of_all()] == [[1.5], [-0.25]]
    loaded.save_pretrained(tmp_path / "new")
    shapes = {
        tensor.shape for name, tensor in load_file(tmp_path / "new" / "model.safetensors").items() if "scale" in name
    }
    assert shapes == {(1,)}
    assert [mix.scale.tolist() for mix in load_complete(tmp_path / "old").scalar_mixes_of_all()] == [[1.5], [-0.25]]
