"""Linears in eight bits run as the modules they are, and stay close to float32."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import quantize_dynamic
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
from transformers import TorchAoConfig

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.loading import TINY_FOLDER, load_complete

TEXTS = ["The ferry left at noon, and we waited on the quay.", "Yes", "He said no twice."]


def with_torch(model: ElmoModel) -> ElmoModel:
    return quantize_dynamic(model, {nn.Linear})


def with_torchao(model: ElmoModel) -> ElmoModel:
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


@pytest.fixture(scope="module")
def model() -> ElmoModel:
    return load_complete(TINY_FOLDER).requires_grad_(False)


@pytest.fixture(scope="module")
def inputs() -> dict[str, Tensor]:
    return dict(ElmoTokenizer.from_pretrained(TINY_FOLDER)(TEXTS, padding=True, return_tensors="pt"))


@pytest.mark.parametrize(("quantise", "most"), [(with_torch, 0.1), (with_torchao, 0.05)])
def test_quantised_linears_run_and_every_layer_stays_close(
    quantise: Callable[[ElmoModel], ElmoModel], most: float, model: ElmoModel, inputs: dict[str, Tensor]
) -> None:
    expected = model(**inputs, output_hidden_states=True).hidden_states
    quantised = quantise(copy.deepcopy(model))
    assert not any(layer.can_scan_fast() for layer in quantised.bilm.layers)
    found = quantised(**inputs, output_hidden_states=True).hidden_states
    for layer, vectors in zip(found, expected, strict=True):
        errors = ((layer - vectors).norm(dim=-1) / vectors.norm(dim=-1))[inputs["attention_mask"].bool()]
        assert 1e-4 < errors.max() < most


def test_a_quantised_model_loads_and_saves_and_a_text_has_the_same_vectors_in_any_batch(
    model: ElmoModel, inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    config = TorchAoConfig(Int8DynamicActivationInt8WeightConfig())
    loaded = ElmoModel.from_pretrained(TINY_FOLDER, quantization_config=config).eval()
    expected = with_torchao(copy.deepcopy(model))(**inputs).last_hidden_state
    assert torch.equal(loaded(**inputs).last_hidden_state, expected)
    loaded.save_pretrained(tmp_path / "int8")
    again = ElmoModel.from_pretrained(tmp_path / "int8").eval()
    assert torch.equal(again(**inputs).last_hidden_state, expected)
    assert torch.equal(again(inputs["input_ids"][1:2, :3]).last_hidden_state, expected[1:2, :3])
