"""Scalar mixes: equation 1, weights, normalisation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_inputs import assert_outputs_close, random_inputs

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.model.scalar_mix import LinearMix, ScalarMix, normalise_batch


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


def test_a_single_layer_is_picked_exactly_with_finite_gradients(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    mix = ScalarMix(tiny_config)
    mix.set_weights([0, 1, 0])
    assert mix.weights.tolist() == [0, 1, 0]
    mixed = mix(layers, mask)
    assert torch.equal(mixed, layers[1] * mask.unsqueeze(-1))
    mixed.sum().backward()
    assert torch.isfinite(mix.logits.grad).all()


def test_a_mix_starts_from_the_given_weights(tiny_config: ElmoConfig) -> None:
    tiny_config.scalar_mix_weights = [0.2, 0.3, 0.5]
    model = ElmoModel(tiny_config)
    torch.testing.assert_close(model.scalar_mixes[0].weights.detach(), torch.tensor([0.2, 0.3, 0.5]))
    assert all(parameter.requires_grad for parameter in model.scalar_mixes.parameters())


def test_a_frozen_mix_of_one_layer_is_that_layer_exactly(tiny_config: ElmoConfig) -> None:
    tiny_config.scalar_mix_weights, tiny_config.scalar_mix_trainable = [0.0, 0.0, 1.0], False
    model = ElmoModel(tiny_config).eval()
    assert not any(parameter.requires_grad for parameter in model.scalar_mixes.parameters())
    output = model(**random_inputs(tiny_config, [3, 2]), output_hidden_states=True)
    assert torch.equal(output.last_hidden_state, output.hidden_states[-1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_batch_normalisation_of_a_large_batch_in_half_precision_is_that_in_float32(
    tiny_config: ElmoConfig, dtype: torch.dtype
) -> None:
    layer, mask = 5 * torch.randn(9, 700, 14) + 3, torch.ones(9, 700, dtype=torch.bool)
    expected = normalise_batch(layer, mask)
    torch.testing.assert_close(normalise_batch(layer.to(dtype), mask).float(), expected, atol=3e-2, rtol=2e-2)


def test_word_normalisation_treats_each_word_by_itself(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    tiny_config.scalar_mix_layer_norm = "word"
    stacked = np.stack([layer.numpy() for layer in layers])
    deviation = np.sqrt(stacked.var(axis=-1, keepdims=True) + 1e-5)
    expected = ((stacked - stacked.mean(axis=-1, keepdims=True)) / deviation).mean(axis=0)
    actual = ScalarMix(tiny_config)(layers, mask).detach()
    np.testing.assert_allclose(actual, expected * mask.unsqueeze(-1).numpy(), atol=1e-5)


def test_batch_normalisation_uses_one_mean_and_variance_for_all_words(tiny_config: ElmoConfig) -> None:
    layers, mask = mix_inputs(tiny_config)
    tiny_config.scalar_mix_layer_norm = "batch"
    expected = np.zeros(layers[0].shape)
    for layer in layers:
        words = layer.numpy()[mask.numpy()]
        expected += (layer.numpy() - words.mean()) / np.sqrt(words.var() + 1e-13) / len(layers)
    actual = ScalarMix(tiny_config)(layers, mask).detach()
    np.testing.assert_allclose(actual, expected * mask.unsqueeze(-1).numpy(), atol=1e-5)


def test_the_weights_of_one_mix_are_taken_by_another(tiny_config: ElmoConfig) -> None:
    mix, other, third = (ScalarMix(tiny_config) for _ in range(3))
    mix.set_weights([0.2, 0.3, 0.5])
    other.set_weights(mix.weights)
    third.set_weights(mix.weights.detach().numpy())
    assert torch.equal(other.logits, mix.weights.log())
    assert torch.equal(third.logits, other.logits)


def test_weight_decay_leaves_a_weight_of_zero_finite(tiny_config: ElmoConfig) -> None:
    mix = ScalarMix(tiny_config)
    mix.set_weights([0, 1, 0])
    assert torch.isfinite(mix.logits).all()
    layers = [torch.randn(1, 2, 14) for _ in range(3)]
    optimizer = torch.optim.SGD(mix.parameters(), lr=0.1, weight_decay=0.1)
    mix(layers, torch.ones(1, 2, dtype=torch.bool)).sum().backward()
    optimizer.step()
    assert mix.weights.tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_a_weight_of_zero_is_exactly_zero_in_every_precision(tiny_config: ElmoConfig, dtype: torch.dtype) -> None:
    mix = ScalarMix(tiny_config).to(dtype)
    mix.set_weights([0, 1, 0])
    assert mix.weights.tolist() == [0, 1, 0]
    assert torch.isfinite(mix.logits).all()


def test_batch_normalisation_has_allennlps_epsilon_inside_the_root() -> None:
    layer, mask = torch.tensor([[[3e-7, -3e-7]]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    expected = layer / (9e-14 + 1e-13) ** 0.5
    torch.testing.assert_close(normalise_batch(layer, mask), expected)


def test_word_normalisation_has_an_epsilon_of_1e_5(tiny_config: ElmoConfig) -> None:
    tiny_config.scalar_mix_layer_norm = "word"
    layer = 1e-3 * torch.randn(1, 1, 14, dtype=torch.float64)
    expected = (layer - layer.mean()) / (layer.var(correction=0) + 1e-5).sqrt()
    actual = ScalarMix(tiny_config).double()([layer] * 3, torch.ones(1, 1, dtype=torch.bool))
    assert_outputs_close(actual.detach(), expected)


def mix_inputs(config: ElmoConfig) -> tuple[list[torch.Tensor], torch.Tensor]:
    layers = [torch.randn(2, 4, config.hidden_size) for _ in range(config.num_hidden_layers + 1)]
    return layers, torch.tensor([[True, True, True, True], [True, True, False, False]])


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


def test_the_penalty_leaves_out_weights_set_to_zero(tiny_config: ElmoConfig) -> None:
    mix = ScalarMix(tiny_config)
    mix.set_weights([0, 0.2, 0.8])
    mix.penalty().backward()
    assert mix.penalty().item() == pytest.approx(2 * (np.log(4) / 2) ** 2)
    assert mix.logits.grad[0] == 0


def test_a_linear_mix_is_a_linear_layer_over_all_layers_and_starts_as_their_mean(tiny_config: ElmoConfig) -> None:
    tiny_config.layer_mix, tiny_config.representation_dropout = "linear", 0.0
    model, inputs = ElmoModel(tiny_config), random_inputs(tiny_config, [4, 2])
    assert {name for name in model.state_dict() if "mix" in name} == {
        "linear_mixes.0.linear.weight",
        "linear_mixes.0.linear.bias",
    }
    output = model(**inputs, output_hidden_states=True)
    layers, mask = torch.stack(output.hidden_states), inputs["attention_mask"].unsqueeze(-1)
    assert_outputs_close(output.elmo_representations[0], layers.mean(dim=0))
    linear = model.linear_mixes[0].linear
    torch.nn.init.normal_(linear.weight)
    torch.nn.init.normal_(linear.bias)
    parts = linear.weight.view(14, 3, 14)
    expected = (torch.einsum("olf,lbtf->bto", parts, layers) + linear.bias) * mask
    assert_outputs_close(model(**inputs).elmo_representations[0], expected, 1e-5)


def test_a_linear_mix_learns_on_its_own_and_is_saved(tiny_config: ElmoConfig, tmp_path: Path) -> None:
    tiny_config.layer_mix = "linear"
    model, inputs = ElmoModel(tiny_config).eval(), random_inputs(tiny_config, [4, 2])
    torch.nn.init.normal_(model.linear_mixes[0].linear.weight)
    model.save_pretrained(tmp_path)
    again = ElmoModel.from_pretrained(tmp_path).eval()
    assert all(isinstance(mix, LinearMix) for mix in again.linear_mixes)
    assert_outputs_close(again(**inputs).elmo_representations, model(**inputs).elmo_representations, 0)
