"""Checkpoints of AllenNLP and bilm-tf there and back, bit by bit, and equal to the NumPy witness."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import (
    BASE,
    EDGES,
    VOCABULARY,
    allennlp_to_folder,
    arrays_of,
    assert_returns,
    base_checkpoint,
    random_checkpoint,
    random_options,
    read_datasets,
    shared,
    write_checkpoint,
)
from golden import allennlp_calls, assert_golden
from language_models import random_language_model, save_directory, words_file
from one_direction import arrays_of_one_direction

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.check import largest_difference
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.conversion.readers.hdf5_layout import config_from_options
from elmo_hf.conversion.witness.reference import ReferenceElmo

# bilm-tf writes one layer without this level; the way back adds it, but to models of one direction, which are its own.
SHORT, LONG = "/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/"
UNI = EDGES / "uni_char_2"
ONE_DIRECTION = "this is how bilm-tf exports one direction; neither its own reader nor AllenNLP's reads it."


def options_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "options.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", ["bi_char_noproj", "bi_char_1layer", "bilm_tf_fixture", "bilm_tf_noskip_fixture"])
def test_what_bilm_tf_wrote_is_the_witness_and_returns(case: str, tmp_path: Path) -> None:
    if case.endswith("fixture"):
        folder = shared("fixtures", case)
        assert_returns(AllenNlpFiles(folder / "options.json", folder / "lm_weights.hdf5"), tmp_path)
    else:
        assert_returns(EDGES / case, tmp_path, (SHORT, LONG))


@pytest.mark.parametrize("equal", [False, True], ids=["", "with equal sizes"])
@pytest.mark.parametrize("seed", range(6))
def test_random_architecture_equals_the_reference_and_returns(seed: int, equal: bool, tmp_path: Path) -> None:
    options, cell_projection, char_projection = random_options(seed + 6 * equal)
    if equal:  # projections between equal sizes are kept
        size = options["lstm"]["dim"] = options["lstm"]["projection_dim"]
        options["char_cnn"]["filters"] = [[3, 1], [1, size - 1]]
    arrays = random_checkpoint(options, seed, cell_projection=cell_projection, char_projection=char_projection)
    notes = assert_returns(write_checkpoint(tmp_path / "source", options, arrays), tmp_path)
    for clip in ("cell_clip", "proj_clip"):
        options["lstm"][clip] = options["lstm"][clip] or None
    assert options_of(tmp_path / "back") == options
    lstm, char_cnn = options["lstm"], options["char_cnn"]
    reasons = {
        "use_skip_connections is off": not lstm["use_skip_connections"],
        "max_word_length is not 50": char_cnn["max_characters_per_token"] != 50,
        "there is no projection after the character CNN": not char_projection,
        "there is no projection in the cell": not cell_projection,
    }
    found = " and ".join(reason for reason, holds in reasons.items() if holds)
    assert notes == ([f"bilm-tf reads these files, AllenNLP does not, because {found}."] if found else [])


@pytest.mark.parametrize("changed", ["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", "CNN_high_1/b_carry", "char_embed"])
def test_check_sees_a_change_in_any_array(changed: str, tiny_folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    options, arrays = base_checkpoint()
    assert largest_difference(model, tokenizer, ReferenceElmo(options, arrays)) < 1e-5
    arrays[changed] = arrays[changed] + 0.05
    assert largest_difference(model, tokenizer, ReferenceElmo(options, arrays)) > 1e-3


def test_options_left_out_have_bilm_tfs_defaults_and_settings_of_the_training_change_nothing() -> None:
    options, arrays = base_checkpoint()
    shapes = {name: array.shape for name, array in arrays.items()}
    training = {"bidirectional": True, "n_epochs": 10, "dropout": 0.3, "lr": {"decay": [1, 2]}, "note": None}
    trained = config_from_options(options | training, shapes).to_dict()
    options["char_cnn"]["n_characters"] = 261
    assert trained == config_from_options(options, shapes).to_dict()
    for key in ("cell_clip", "proj_clip", "use_skip_connections", "n_layers"):
        del options["lstm"][key]
    for key in ("max_characters_per_token", "n_characters"):
        del options["char_cnn"][key]
    options["char_cnn"]["n_highway"] = None
    config = config_from_options(options, shapes)
    found = (config.cell_clip, config.projection_clip, config.use_skip_connections, config.num_hidden_layers)
    assert (*found, config.max_word_length, config.num_highway_layers) == (None, None, False, 1, 50, 0)


def test_word_input_reads_word_ids_and_returns_with_its_vocabulary(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    assert_returns(word_files, tmp_path, check=False)
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == VOCABULARY
    original = json.loads(word_files.options.read_text(encoding="utf-8"))
    assert options_of(tmp_path / "back") == {"lstm": original["lstm"] | {"cell_clip": None, "proj_clip": None}}
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "there")
    inputs = tokenizer(["the ferry unseen word32", "the"], padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == [[1, 4, 5, 3, 32, 2], [1, 4, 2, 0, 0, 0]]
    model = ElmoModel.from_pretrained(tmp_path / "there").eval()
    with torch.no_grad():
        layers = model(**inputs, output_hidden_states=True).hidden_states
    arrays = read_datasets(word_files.weights)
    reference = ReferenceElmo(original | {"char_cnn": {}}, arrays)
    vectors = arrays["embedding"][[0, 3, 4, 2, 31, 1]].astype(np.float64)
    np.testing.assert_array_equal(layers[0][0].numpy(), np.concatenate([vectors, vectors], -1).astype(np.float32))
    forward = reference.direction("RNN_0", vectors, {})
    backward = reference.direction("RNN_1", vectors[::-1], {})
    for layer in (1, 2):
        expected = np.concatenate([forward[layer - 1], backward[layer - 1][::-1]], axis=-1)
        np.testing.assert_allclose(layers[layer][0].numpy(), expected, rtol=0, atol=1e-5)


def test_the_forward_half_of_a_golden_case_has_allennlps_numbers(tmp_path: Path) -> None:
    files = write_checkpoint(tmp_path / "source", options_of(BASE), arrays_of_one_direction(arrays_of(BASE)))
    allennlp_to_folder(files, tmp_path / "to")
    assert_golden(ElmoModel.from_pretrained(tmp_path / "to"), allennlp_calls(BASE.name))


@pytest.mark.parametrize("name", ["export", "save directory", "language model", "words"])
def test_one_direction_is_the_witness_and_returns(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    if name == "language model":
        whole, options, arrays = random_language_model(0, tmp_path / "two")
        one = write_checkpoint(source, options, arrays_of_one_direction(arrays))
        files = replace(one, vocabulary=whole.vocabulary)
    elif name == "words":
        files = write_checkpoint(
            source, options_of(EDGES / "bi_word_2"), arrays_of_one_direction(arrays_of(EDGES / "bi_word_2"))
        )
        files = replace(files, vocabulary=words_file(tmp_path, VOCABULARY))
    else:
        files = save_directory("uni_char_2", tmp_path) if name == "save directory" else UNI
    # As bilm-tf itself would have named one layer.
    names = ("rnn/MultiRNNCell/Cell0/", "rnn/") if name == "language model" else ("", "")
    notes = assert_returns(files, tmp_path, names, check=name != "words")
    assert notes[0] == ONE_DIRECTION
    assert options_of(tmp_path / "back")["bidirectional"] is False
    if name in ("save directory", "language model"):
        model = ElmoForPreTraining.from_pretrained(tmp_path / "there").eval()
        scores = model.score([["the", "ferry"]], ElmoTokenizer.from_pretrained(tmp_path / "there"))
        assert scores.perplexity == scores.forward_perplexity
    else:
        config = ElmoConfig.from_pretrained(tmp_path / "there")
        assert (config.bidirectional, config.hidden_size) == (False, config.projection_size)
