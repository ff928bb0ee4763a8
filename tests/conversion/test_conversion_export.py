"""Folders back to AllenNLP's files: refusals, notes, and half precision."""

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import (
    CELL,
    read_datasets,
)
from safetensors.numpy import load_file, save_file
from tiny_inputs import assert_outputs_close, random_inputs, word_config

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp


def assert_export_refused(source: Path, work: Path, message: str) -> None:
    place = work / "place"
    place.mkdir()
    with pytest.raises((OSError, ValueError), match=re.escape(message)):
        folder_to_allennlp(source, place / "DEST")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("forget_bias", [0.0, 0.25, 2.5])
def test_a_forget_bias_that_the_format_does_not_add_goes_into_the_biases(
    forget_bias: float, tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.config.forget_bias = forget_bias
    with torch.no_grad():
        for layer in tiny_model.bilm.layers:
            torch.nn.init.normal_(layer.forward_lstm.input_linear.bias)
    tiny_model.save_pretrained(tmp_path / "source")
    notes = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert notes[0] == "the format adds 1.0 to the forget gate; its biases are that much smaller, some of them rounded."
    allennlp_to_folder(AllenNlpFiles.in_folder(tmp_path / "to"), tmp_path / "again", source_name="any")
    bias = read_datasets(tmp_path / "to" / "weights.hdf5")[f"{CELL}/B"].reshape(4, -1)
    ours = tiny_model.bilm.layers[0].forward_lstm.input_linear.bias.detach().numpy().reshape(4, -1)
    np.testing.assert_array_equal(bias[[0, 1, 3]], ours[[0, 2, 3]])
    np.testing.assert_allclose(bias[2] + 1, ours[1] + forget_bias, rtol=0, atol=1e-6)

    again = ElmoModel.from_pretrained(tmp_path / "again")
    assert again.config.forget_bias == 1.0
    inputs = random_inputs(tiny_model.config, [3, 5])
    source = ElmoModel.from_pretrained(tmp_path / "source")
    assert_outputs_close(again(**inputs).last_hidden_state, source(**inputs).last_hidden_state)


def test_a_model_of_code_points_cannot_be_exported(tmp_path: Path) -> None:
    fields = {"alphabet": "code_points", "bos_token_id": 4, "eos_token_id": 5, "projection_size": 6, "cell_size": 7}
    config = ElmoConfig(vocab_size=29, num_input_words=8, word_embedding_size=3, char_filters=[[1, 2]], **fields)
    ElmoModel(config).save_pretrained(tmp_path / "source")
    message = "this one has `alphabet` 'code_points', `word_embedding_size` 3."
    assert_export_refused(tmp_path / "source", tmp_path, message)


def test_a_word_table_that_is_projected_cannot_be_exported(tmp_path: Path) -> None:
    ElmoModel(word_config(word_embedding_size=4)).save_pretrained(tmp_path / "source")
    message = "this one has `alphabet` 'bytes', `word_embedding_size` 4."
    assert_export_refused(tmp_path / "source", tmp_path, message)


def test_a_model_with_a_padding_vector_cannot_be_exported(tiny_model: ElmoModel, tmp_path: Path) -> None:
    with torch.no_grad():
        tiny_model.get_input_embeddings().weight[0, 2] = 1e-20
    tiny_model.save_pretrained(tmp_path / "source")
    message = "row 0 of the embedding must be zero: the format has no place for a padding vector."
    assert_export_refused(tmp_path / "source", tmp_path, message)


def test_a_model_that_lacks_a_tensor_is_not_exported_with_random_numbers(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    tensors = load_file(path)
    del tensors["bilm.layers.1.backward_lstm.recurrent_linear.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    assert_export_refused(tmp_path / "source", tmp_path, "bilm.layers.1.backward_lstm.recurrent_linear.weight")


ALLENNLP_CANNOT = "bilm-tf reads these files, AllenNLP does not, because "
LONG_WORDS = {"max_word_length": 50}
EXPORT_NOTES = {
    "readable by both": (LONG_WORDS, []),
    "short words": ({}, [ALLENNLP_CANNOT + "max_word_length is not 50."]),
    "no skip connections": (
        LONG_WORDS | {"use_skip_connections": False},
        [ALLENNLP_CANNOT + "use_skip_connections is off."],
    ),
    "no projections": (
        LONG_WORDS | {"cell_size": 7, "char_filters": [[1, 3], [2, 4]]},
        [
            ALLENNLP_CANNOT
            + "there is no projection after the character CNN and there is no projection in the cell."
        ],
    ),
    "given mix": (
        LONG_WORDS | {"scalar_mix_weights": [0.2, 0.3, 0.5], "scalar_mix_trainable": False},
        ["the mix of layers is not carried: the format holds the biLM only."],
    ),
    "both notes": (
        {"scalar_mix_weights": [0, 0, 1.0]},
        [
            "the mix of layers is not carried: the format holds the biLM only.",
            ALLENNLP_CANNOT + "max_word_length is not 50.",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "notes"), EXPORT_NOTES.values(), ids=EXPORT_NOTES)
def test_export_notes_what_is_lost_and_who_can_read_it(
    fields: dict[str, Any], notes: list[str], tiny_config: ElmoConfig, tmp_path: Path
) -> None:
    derived = {name: None for name in ("char_projection", "cell_projection", "hidden_size")}
    config = ElmoConfig(**(copy.deepcopy(tiny_config).to_dict() | derived | fields))
    ElmoModel(config).save_pretrained(tmp_path / "source")
    assert folder_to_allennlp(tmp_path / "source", tmp_path / "to") == notes


@pytest.mark.parametrize("mix", ["weights", "scale", "linear"])
def test_a_learned_mix_is_noted(mix: str, tiny_config: ElmoConfig, tmp_path: Path) -> None:
    tiny_config.max_word_length = 50
    tiny_config.layer_mix = "linear" if mix == "linear" else "scalar"
    model = ElmoModel(tiny_config)
    if mix != "linear":
        equal = [1 / (tiny_config.num_hidden_layers + 1)] * (tiny_config.num_hidden_layers + 1)
        model.scalar_mixes[0].set_weights(*([0.25, 0.25, 0.5],) if mix == "weights" else (equal, 2.5))
    model.save_pretrained(tmp_path / "source")
    notes = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert notes == ["the mix of layers is not carried: the format holds the biLM only."]


def test_word_input_is_noted(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    allennlp_to_folder(word_files, tmp_path / "there", source_name="words")
    notes = folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert notes == [ALLENNLP_CANNOT + "input is word ids."]


def test_a_model_in_half_precision_is_exported_in_float32(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.to(torch.bfloat16).save_pretrained(tmp_path / "source")
    folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    kernel = read_datasets(tmp_path / "to" / "weights.hdf5")[f"{CELL}/W_P_0"]
    weight = tiny_model.bilm.layers[0].forward_lstm.projection.weight
    assert kernel.dtype == np.float32
    np.testing.assert_array_equal(kernel, weight.detach().float().numpy().T)
