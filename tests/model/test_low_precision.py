"""Low precision: weights in eight bits by the fast scan, those of other quantisations by the reference."""

import copy
from pathlib import Path

import pytest
import torch
from checkpoints import run_python
from fresh_process import without
from torch import Tensor, nn
from transformers import TorchAoConfig

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import TINY_FOLDER, load_complete
from elmo_hf.scan.path import scan_path

torchao = pytest.importorskip("torchao.quantization")

TEXTS = ["The ferry left at noon, and we waited on the quay.", "Yes", "He said no twice."]


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return load_complete(TINY_FOLDER).requires_grad_(False)


@pytest.fixture(scope="module")
def inputs() -> dict[str, Tensor]:
    return dict(ElmoTokenizer.from_pretrained(TINY_FOLDER)(TEXTS, padding=True, return_tensors="pt"))


@pytest.fixture(scope="module")
def eight() -> ElmoModel:
    config = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    return ElmoModel.from_pretrained(TINY_FOLDER, quantization_config=config).eval()


def in_floats(model: ElmoModel, eight: ElmoModel) -> ElmoModel:
    """The float model with the numbers that integers and scales stand for."""
    floats = copy.deepcopy(model)
    for name, weight in eight.named_parameters():
        if hasattr(weight, "qdata"):
            floats.get_parameter(name).data = weight.qdata * weight.scale
    return floats


def layers_of(model: ElmoModel, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return model(**inputs, output_hidden_states=True).hidden_states


@torch.no_grad()
@pytest.mark.parametrize("part", ["", "input_linear", ".projection", "backward_lstm"])
def test_eight_bit_weights_take_the_fast_scan_and_compute_the_equations(
    part: str, model: ElmoModel, inputs: dict[str, Tensor]
) -> None:
    eight, config = copy.deepcopy(model), torchao.Int8WeightOnlyConfig()
    torchao.quantize_(eight, config, lambda module, name: isinstance(module, nn.Linear) and part in name)
    assert all(layer.can_scan_fast() for layer in eight.bilm.layers)
    with scan_path("reference"):
        expected = layers_of(in_floats(model, eight), inputs)
    for layer, vectors in zip(layers_of(eight, inputs), expected, strict=True):
        errors = (layer - vectors).norm(dim=-1) / vectors.norm(dim=-1).clamp(min=1e-9)
        assert errors.max() < 0.008  # products of bfloat16 vectors


def test_weights_whose_inputs_are_quantised_too_take_the_reference(model: ElmoModel) -> None:
    other = copy.deepcopy(model)
    torchao.quantize_(other, torchao.Int8DynamicActivationInt8WeightConfig())
    assert not any(layer.can_scan_fast() for layer in other.bilm.layers)


@torch.no_grad()
def test_with_eight_bit_weights_a_text_has_the_same_vectors_in_any_batch(
    eight: ElmoModel, inputs: dict[str, Tensor]
) -> None:
    texts = {name: tensor.repeat(3, *[1] * (tensor.dim() - 1)) for name, tensor in inputs.items()}
    together = layers_of(eight, texts)
    for row in range(len(TEXTS)):
        alone = layers_of(eight, {name: tensor[row : row + 1] for name, tensor in inputs.items()})
        for found, expected in zip(alone, together, strict=True):
            torch.testing.assert_close(found[0], expected[row], rtol=0, atol=1e-3)


def test_eight_bit_weights_let_gradients_through_and_have_none(
    model: ElmoModel, eight: ElmoModel, inputs: dict[str, Tensor]
) -> None:
    found = []
    for each in (eight, in_floats(model, eight)):
        embeddings = each.token_encoder(inputs["input_ids"][0]).detach().unsqueeze(0).requires_grad_()
        each(inputs_embeds=embeddings).last_hidden_state.square().sum().backward()
        found.append(embeddings.grad)
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)
    assert all(weight.grad is None for weight in eight.parameters() if hasattr(weight, "qdata"))


AUTO = """
import torch
from transformers import AutoModel

model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
with torch.no_grad():
    torch.save(model(**torch.load(sys.argv[2])).last_hidden_state, sys.argv[3])
"""


def test_a_saved_eight_bit_folder_is_smaller_and_runs_without_the_package(
    eight: ElmoModel, inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    eight.save_pretrained(tmp_path / "int8")
    numbers = sum(weight.numel() for weight in eight.parameters() if hasattr(weight, "qdata"))
    rest = sum(weight.nbytes for weight in eight.parameters() if not hasattr(weight, "qdata"))
    assert (tmp_path / "int8" / "model.safetensors").stat().st_size < 1.1 * numbers + rest + 50_000
    torch.save(inputs, tmp_path / "inputs.pt")
    run_python(without("elmo_hf") + AUTO, tmp_path, tmp_path / "int8", tmp_path / "inputs.pt", tmp_path / "vectors.pt")
    with torch.no_grad():
        found, expected = torch.load(tmp_path / "vectors.pt"), eight(**inputs).last_hidden_state
    # There the linears multiply by themselves, without rounding vectors to bfloat16.
    assert (found - expected).norm() < 0.008 * expected.norm()
