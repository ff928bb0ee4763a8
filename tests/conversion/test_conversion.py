"""Checkpoints of AllenNLP and bilm-tf there and back, bit by bit, and equal to the NumPy witness."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from checkpoints import (
    CELL,
    EDGES,
    FIXTURES,
    GOLDEN_CASES,
    VOCABULARY,
    allennlp_to_folder,
    arrays_of,
    assert_returns,
    base_checkpoint,
    bits,
    difference_of,
    random_checkpoint,
    random_options,
    read_datasets,
    shared,
    write_checkpoint,
)
from language_models import random_language_model, save_directory, words_file
from one_direction import arrays_of_one_direction, half_of
from safetensors.numpy import load_file

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import folder_to_allennlp
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.conversion.readers.hdf5_layout import config_from_options
from elmo_hf.conversion.witness.reference import ReferenceElmo

# bilm-tf writes one layer without this level; the way back adds it, but to models of one direction, which are its own.
SHORT, LONG = "/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/"
UNI = EDGES / "uni_char_2"
ONE_DIRECTION = "this is how bilm-tf exports one direction; neither its own reader nor AllenNLP's reads it."


def options_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "options.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", [*GOLDEN_CASES, "bilm_tf_edges/bi_char_noproj", "bilm_tf_edges/bi_char_1layer"])
def test_a_checkpoint_is_the_witness_and_returns(case: str, tmp_path: Path) -> None:
    assert_returns(FIXTURES / case, tmp_path, (SHORT, LONG))
    if case in GOLDEN_CASES:
        original = options_of(FIXTURES / case)
        expected = {"lstm": original["lstm"], "char_cnn": original["char_cnn"] | {"n_characters": 262}}
        assert options_of(tmp_path / "back") == expected


@pytest.mark.parametrize("name", ["bilm_tf_fixture", "bilm_tf_noskip_fixture"])
def test_a_fixture_of_bilm_tf_is_the_witness_and_returns(name: str, tmp_path: Path) -> None:
    folder = shared("fixtures", name)
    assert_returns(AllenNlpFiles(folder / "options.json", folder / "lm_weights.hdf5"), tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_random_architecture_equals_the_reference_and_returns(seed: int, tmp_path: Path) -> None:
    options, cell_projection, char_projection = random_options(seed)
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


def test_each_option_becomes_its_field() -> None:
    original = options_of(FIXTURES / "tight_clip_2l_tanh")
    arrays = read_datasets(FIXTURES / "tight_clip_2l_tanh" / "weights.hdf5")
    config = config_from_options(original, {name: array.shape for name, array in arrays.items()})
    expected = {
        "token_encoder": "char_cnn", "vocab_size": 262, "max_word_length": 50, "char_embedding_size": 5,
        "char_filters": [[1, 6], [2, 10], [3, 14]], "char_activation": "tanh", "num_highway_layers": 1,
        "char_projection": True, "projection_size": 12, "cell_size": 24, "num_hidden_layers": 2,
        "cell_projection": True, "cell_clip": 0.35, "projection_clip": 0.3, "use_skip_connections": True,
        "forget_bias": 1.0, "hidden_size": 24,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in expected} == expected


def test_options_that_bilm_tf_may_leave_out_have_its_defaults() -> None:
    options, arrays = base_checkpoint()
    for key in ("cell_clip", "proj_clip", "use_skip_connections", "n_layers"):
        del options["lstm"][key]
    for key in ("max_characters_per_token", "n_characters"):
        del options["char_cnn"][key]
    options["char_cnn"]["n_highway"] = None
    config = config_from_options(options, {name: array.shape for name, array in arrays.items()})
    found = (config.cell_clip, config.projection_clip, config.use_skip_connections, config.num_hidden_layers)
    assert (*found, config.max_word_length, config.num_highway_layers) == (None, None, False, 1, 50, 0)


@pytest.mark.parametrize("number", [261, 262])
def test_number_of_characters_and_settings_of_the_training_change_nothing(
    number: int, tiny_folder: Path, tmp_path: Path
) -> None:
    options, arrays = base_checkpoint()
    options["char_cnn"]["n_characters"] = number
    options |= {"bidirectional": True, "n_epochs": 10, "lr": {"decay": [1, 2]}, "note": None}
    allennlp_to_folder(write_checkpoint(tmp_path / "source", options, arrays), tmp_path / "to")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "to" / name).read_bytes() == (tiny_folder / name).read_bytes()


def test_float16_weights_are_converted_exactly(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    halves = {name: array.astype(np.float16) for name, array in arrays.items()}
    allennlp_to_folder(write_checkpoint(tmp_path / "source", options, halves), tmp_path / "there")
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert bits(arrays_of(tmp_path / "back")) == bits({name: half.astype(np.float32) for name, half in halves.items()})


def test_exported_datasets_are_contiguous_and_uncompressed(tiny_folder: Path, tmp_path: Path) -> None:
    folder_to_allennlp(tiny_folder, tmp_path / "back")
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["options.json", "weights.hdf5"]
    with h5py.File(tmp_path / "back" / "weights.hdf5", "r") as file:
        layouts = {(file[n].chunks, file[n].compression, len(file[n].attrs)) for n in base_checkpoint()[1]}
    assert layouts == {(None, None, 0)}


@pytest.mark.parametrize("changed", ["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", "CNN_high_1/b_carry", "char_embed"])
def test_check_sees_a_change_in_any_array(changed: str, tiny_folder: Path) -> None:
    options, arrays = base_checkpoint()
    assert difference_of(tiny_folder, ReferenceElmo(options, arrays)) < 1e-5
    arrays[changed] = arrays[changed] + 0.05
    assert difference_of(tiny_folder, ReferenceElmo(options, arrays)) > 1e-3


@pytest.mark.parametrize("with_filters", [True, False], ids=["cell as wide", "cell and CNN as wide"])
def test_projections_between_equal_sizes_are_kept(with_filters: bool, tmp_path: Path) -> None:
    options, _, _ = random_options(0)
    options["lstm"] |= {"projection_dim": 7, "dim": 7, "n_layers": 2}
    options["char_cnn"]["filters"] = [[1, 2], [3, 4]] if with_filters else [[1, 2], [3, 5]]
    arrays = random_checkpoint(options, 5, cell_projection=True, char_projection=True)
    assert_returns(write_checkpoint(tmp_path / "source", options, arrays), tmp_path)
    kept = load_file(tmp_path / "there" / "model.safetensors")
    np.testing.assert_array_equal(kept["token_encoder.projection.weight"], arrays["CNN_proj/W_proj"].T)
    np.testing.assert_array_equal(kept["bilm.layers.0.forward_lstm.projection.weight"], arrays[f"{CELL}/W_P_0"].T)


def test_word_input_reads_word_ids_and_returns_with_its_vocabulary(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    notes = assert_returns(word_files, tmp_path, check=False)
    assert notes == ["bilm-tf reads these files, AllenNLP does not, because input is word ids."]
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == VOCABULARY
    original = json.loads(word_files.options.read_text(encoding="utf-8"))
    assert options_of(tmp_path / "back") == {"lstm": original["lstm"] | {"cell_clip": None, "proj_clip": None}}
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "there")
    inputs = tokenizer(["the ferry unseen word32", "the"], padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == [[1, 4, 5, 3, 32, 2], [1, 4, 2, 0, 0, 0]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]

    model = ElmoModel.from_pretrained(tmp_path / "there").eval()
    assert (model.config.token_encoder, model.config.vocab_size) == ("word_embedding", 33)
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


def test_a_word_that_the_vocabulary_has_twice_keeps_both_numbers(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    words = [*VOCABULARY[:9], "the", *VOCABULARY[10:]]
    allennlp_to_folder(replace(word_files, vocabulary=words_file(tmp_path, words)), tmp_path / "there")
    assert ElmoTokenizer.from_pretrained(tmp_path / "there")("the word11")["input_ids"] == [1, 10, 11, 2]
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    returned = (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert returned == [*words[:3], "<unused4>", *words[4:]]


@pytest.mark.parametrize("case", ["base_2l_relu", "one_layer_n261_batch1", "noskip_2l_long"])
def test_the_forward_half_of_a_golden_case_has_allennlps_numbers(case: str, tmp_path: Path) -> None:
    source = FIXTURES / case
    files = write_checkpoint(tmp_path / "source", options_of(source), arrays_of_one_direction(arrays_of(source)))
    allennlp_to_folder(files, tmp_path / "to")
    model, tokenizer = ElmoModel.from_pretrained(tmp_path / "to").eval(), ElmoTokenizer.from_pretrained(tmp_path / "to")
    sentences = json.loads((source / "sentences.json").read_text())
    inputs = tokenizer(sentences["call1"], is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True)
    expected = {name: torch.from_numpy(array) for name, array in np.load(source / "expected.npz").items()}
    for found, theirs in (
        (torch.stack(output.hidden_states), expected["layers_with_boundaries"]),
        (output.state.hidden, expected["call1_state_h"]),
    ):
        torch.testing.assert_close(found, half_of(theirs), atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["export", "save directory", "language model", "words", 0, 1, 2])
def test_one_direction_is_the_witness_and_returns(name: str | int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    if isinstance(name, int):
        options, cell, char = random_options(name)
        arrays = random_checkpoint(options, name, cell_projection=cell, char_projection=char)
        files = write_checkpoint(source, options, arrays_of_one_direction(arrays))
    elif name == "language model":
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
    is_short = name in (0, "language model")
    names = ("rnn/MultiRNNCell/Cell0/", "rnn/") if is_short else ("", "")
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


def test_a_forget_bias_of_torch_is_put_back_into_the_bias_of_one_direction(tmp_path: Path) -> None:
    allennlp_to_folder(UNI, tmp_path / "to")
    ElmoModel.from_pretrained(tmp_path / "to", forget_bias=0.0).save_pretrained(tmp_path / "to")
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    name = "rnn/MultiRNNCell/Cell1/LSTMCell/bias"
    before, after = arrays_of(UNI)[name], arrays_of(tmp_path / "back")[name]
    np.testing.assert_allclose(after, before + np.repeat([0, 0, -1, 0], len(before) // 4), atol=1e-6)
