"""Each piece of the model against the NumPy reference: values, gradients and states, in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from tiny_inputs import TINY

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.conversion.readers.hdf5_layout import allennlp_rules, options_from_config
from elmo_hf.conversion.rules import export_arrays
from elmo_hf.conversion.witness.reference import ReferenceElmo, State
from elmo_hf.scan.path import scan_path

WORDS = ["The", "naïve", "日本語", "", "extraordinarily"]


# Architectures that differ from the tiny config in one way each.
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "tanh": {"char_activation": "tanh"},
    "no highway": {"num_highway_layers": 0},
    "no skip": {"use_skip_connections": False},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "four layers": {"num_hidden_layers": 4},
    "one direction": {"bidirectional": False},
    "no cell projection": {"cell_size": 7, "cell_projection": False},
    "square cell projection": {"cell_size": 7, "cell_projection": True},
    "no char projection": {"char_filters": [[1, 3], [4, 4]], "char_projection": False},
    "square char projection": {"char_filters": [[1, 3], [4, 4]], "char_projection": True},
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request: pytest.FixtureRequest) -> ElmoModel:
    model = ElmoModel(ElmoConfig(**TINY | request.param)).eval().double()
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


@pytest.mark.parametrize("path", ["reference", "packed"])
def test_all_layers_and_the_state_of_two_calls_are_the_references(model: ElmoModel, path: str) -> None:
    reference = reference_of(model)
    reference_state: State = {}
    state = None
    for words in (WORDS, ["Second", "call", "."]):
        expected = reference.embed(words, reference_state)
        ids = ids_of(reference, ["<S>", *words, "</S>"])[None]
        with scan_path(path):
            output = model(ids, state=state, output_hidden_states=True)
        state = output.state
        np.testing.assert_allclose(torch.stack(output.hidden_states)[:, 0].detach(), expected, atol=1e-12)
        for part, tensor in enumerate(state):
            halves = [
                np.stack([reference_state[name, layer][part] for layer in range(model.config.num_hidden_layers)])
                for name in reference.directions
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
