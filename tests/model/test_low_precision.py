"""Low precision: weights in eight bits by the fast scan, those of other quantisations by the reference."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import TorchAoConfig

from elmo_hf import ElmoForPreTraining, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from elmo_hf.disk.checksums import sha256_of_model
from elmo_hf.folder.loading import load_complete
from elmo_hf.folder.model_names import TINY_FOLDER
from elmo_hf.kernels.path import scan_path
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from elmo_hf.model.scan_elmo import using

torchao = pytest.importorskip("torchao.quantization")
EIGHT_BITS = TorchAoConfig(torchao.Int8WeightOnlyConfig())

TEXTS = ["The ferry left at noon, and we waited on the quay.", "Yes", "He said no twice."]


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return load_complete(TINY_FOLDER).requires_grad_(False)


@pytest.fixture(scope="module")
def inputs() -> dict[str, Tensor]:
    return dict(ElmoTokenizer.from_pretrained(TINY_FOLDER)(TEXTS, padding=True, return_tensors="pt"))


@pytest.fixture(scope="module")
def eight() -> ElmoModel:
    return ElmoModel.from_pretrained(TINY_FOLDER, quantization_config=EIGHT_BITS).eval()


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
        assert errors.max() < 1e-3  # vectors are rounded to 1/15,876 of their largest number at each step


@torch.no_grad()
def test_a_scale_that_changes_alone_is_used_as_it_is(model: ElmoModel, inputs: dict[str, Tensor]) -> None:
    eight = copy.deepcopy(model)
    torchao.quantize_(eight, torchao.Int8WeightOnlyConfig())
    before = eight(**inputs).last_hidden_state
    for layer in eight.bilm.layers:
        layer.forward_lstm.recurrent_linear.weight.scale.mul_(2)
    after = eight(**inputs).last_hidden_state
    torch.testing.assert_close(after, copy.deepcopy(eight)(**inputs).last_hidden_state, rtol=0, atol=0)
    assert (after - before).abs().max() > 0.01


@torch.no_grad()
def test_weights_whose_inputs_are_quantised_too_take_the_reference(model: ElmoModel, inputs: dict[str, Tensor]) -> None:
    other = copy.deepcopy(model)
    torchao.quantize_(other, torchao.Int8DynamicActivationInt8WeightConfig())
    assert not any(layer.can_scan_fast() for layer in other.bilm.layers)
    with using(ProcessorKernels(large_bytes=0)):
        found = layers_of(other, inputs)
    with scan_path("reference"):
        torch.testing.assert_close(found, layers_of(other, inputs), rtol=0, atol=0)


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


@pytest.mark.parametrize("model_class", [ElmoForPreTraining, ElmoForSequenceClassification])
def test_eight_bit_models_are_made_at_loading_and_not_saved(
    model_class: type, inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    whole = model_class.from_pretrained(TINY_FOLDER).eval()
    whole.save_pretrained(tmp_path / "whole")
    eight = model_class.from_pretrained(tmp_path / "whole", quantization_config=EIGHT_BITS).eval()
    with torch.no_grad():
        found, expected = (each(**inputs).to_tuple()[0] for each in (eight, whole))
    assert 0 < (found - expected).norm() < 0.03 * expected.norm()
    with pytest.raises(ValueError, match="quantised"):
        eight.save_pretrained(tmp_path / "eight")
    assert not (tmp_path / "eight").exists()


def test_the_checksum_of_a_model_in_eight_bits_covers_its_integers(eight: ElmoModel) -> None:
    copied = copy.deepcopy(eight)
    copied.bilm.layers[1].backward_lstm.projection.weight.qdata[3, 1] += 1
    assert sha256_of_model("", copied.state_dict().values()) != sha256_of_model("", eight.state_dict().values())
