"""Folders back to AllenNLP's files: the forget bias, refusals, notes, and half precision."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import CELL, allennlp_to_folder, read_datasets
from one_direction import forward_half
from tiny_inputs import assert_outputs_close, random_inputs, word_config

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.conversion.convert import folder_to_allennlp


@pytest.mark.parametrize(("forget_bias", "is_half"), [(2.5, False), (0.25, True)])
def test_a_forget_bias_that_the_format_does_not_add_goes_into_the_biases(
    forget_bias: float, is_half: bool, tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.config.forget_bias = forget_bias
    with torch.no_grad():
        for layer in tiny_model.bilm.layers:
            torch.nn.init.normal_(layer.forward_lstm.input_linear.bias)
    (forward_half(tiny_model) if is_half else tiny_model).save_pretrained(tmp_path / "source")
    notes = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert "the format adds 1.0 to the forget gate" in notes[0]
    allennlp_to_folder(tmp_path / "to", tmp_path / "again")
    source, again = (ElmoModel.from_pretrained(tmp_path / name) for name in ("source", "again"))
    assert again.config.forget_bias == 1.0
    inputs = random_inputs(source.config, [3, 5])
    assert_outputs_close(again(**inputs).last_hidden_state, source(**inputs).last_hidden_state)


CODE_POINTS = ElmoConfig(
    alphabet="code_points", vocab_size=29, num_input_words=8, word_embedding_size=3, bos_token_id=4, eos_token_id=5
)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (CODE_POINTS, "`alphabet` 'code_points'"),
        (word_config(word_embedding_size=4), "`word_embedding_size` 4"),
        (word_config(), "row 0 of the embedding"),
    ],
)
def test_what_the_format_cannot_hold_is_named_and_nothing_is_written(
    config: ElmoConfig, name: str, tmp_path: Path
) -> None:
    model = ElmoModel(config)
    with torch.no_grad():
        model.get_input_embeddings().weight[0, 2] = 1e-20
    model.save_pretrained(tmp_path / "source")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        folder_to_allennlp(tmp_path / "source", tmp_path / "DEST")
    assert name in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


MIX = "the mix of layers is left out"


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({}, []),
        ({"layer_mix": "linear"}, [MIX]),
        ({"scalar_mix_weights": [0, 0, 1.0], "use_skip_connections": False}, [MIX, "use_skip_connections is off."]),
    ],
)
def test_export_notes_what_is_lost_and_who_can_read_it(
    fields: dict[str, Any], notes: list[str], tiny_config: ElmoConfig, tmp_path: Path
) -> None:
    config = ElmoConfig(**copy.deepcopy(tiny_config).to_dict() | {"max_word_length": 50, "hidden_size": None} | fields)
    ElmoModel(config).save_pretrained(tmp_path / "source")
    found = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert len(found) == len(notes)
    assert all(note in each for note, each in zip(notes, found, strict=True))


def test_a_learned_scale_is_noted_and_half_precision_is_exported_in_float32(
    tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.scalar_mixes[0].set_weights([1 / 3] * 3, 2.5)
    tiny_model.to(torch.bfloat16).save_pretrained(tmp_path / "source")
    assert MIX in folder_to_allennlp(tmp_path / "source", tmp_path / "to")[0]
    kernel = read_datasets(tmp_path / "to" / "weights.hdf5")[f"{CELL}/W_P_0"]
    weight = tiny_model.bilm.layers[0].forward_lstm.projection.weight
    assert kernel.dtype == np.float32
    np.testing.assert_array_equal(kernel, weight.detach().float().numpy().T)
