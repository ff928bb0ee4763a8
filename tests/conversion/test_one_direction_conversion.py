"""One-direction language models of bilm-tf: there and back bit by bit, and the numbers of AllenNLP and the witness."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import (
    EDGES,
    FIXTURES,
    VOCABULARY,
    assert_refused,
    assert_returns_bit_by_bit,
    bits,
    random_checkpoint,
    random_options,
    read_datasets,
    write_checkpoint,
)
from language_models import random_language_model, save_directory, words_file
from one_direction import arrays_of_one_direction, half_of

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
from elmo_hf.conversion.readers.bilm_tf import read_variables
from elmo_hf.language_model.pretraining import ElmoForPreTraining

UNI = EDGES / "uni_char_2"


def test_bilm_tfs_own_export_returns_bit_by_bit_and_is_the_witness(tmp_path: Path) -> None:
    assert_returns_bit_by_bit(AllenNlpFiles.in_folder(UNI), tmp_path)
    difference = allennlp_to_folder(AllenNlpFiles.in_folder(UNI), tmp_path / "to", source_name="one", check=True)
    assert difference is not None
    assert difference < 1e-6
    config = ElmoModel.from_pretrained(tmp_path / "to").config
    assert (config.bidirectional, config.hidden_size, config.projection_size) == (False, 8, 8)
    written = json.loads((tmp_path / "back" / "options.json").read_text())
    original = json.loads((UNI / "options.json").read_text())
    assert written["bidirectional"] is original["bidirectional"] is False


@pytest.mark.parametrize("case", ["base_2l_relu", "one_layer_n261_batch1", "noskip_2l_long"])
def test_the_forward_half_of_a_golden_case_has_allennlps_numbers(case: str, tmp_path: Path) -> None:
    source = FIXTURES / case
    options, arrays = json.loads((source / "options.json").read_text()), read_datasets(source / "weights.hdf5")
    files = write_checkpoint(tmp_path / "source", options, arrays_of_one_direction(arrays))
    allennlp_to_folder(files, tmp_path / "to", source_name="one")
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


@pytest.mark.parametrize("seed", range(3))
def test_odd_architectures_are_the_witness_and_return(seed: int, tmp_path: Path) -> None:
    options, cell_projection, char_projection = random_options(seed)
    arrays = random_checkpoint(options, seed, cell_projection=cell_projection, char_projection=char_projection)
    files = write_checkpoint(tmp_path / "source", options, one := arrays_of_one_direction(arrays))
    difference = allennlp_to_folder(files, tmp_path / "to", source_name="odd", check=True)
    assert difference is not None
    assert difference < 1e-4
    notes = folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    assert notes[0] == "this is how bilm-tf exports one direction; neither its own reader nor AllenNLP's reads it."
    returned = read_datasets(tmp_path / "back" / "weights.hdf5")
    if options["lstm"]["n_layers"] == 1:  # as bilm-tf itself would have named them
        one = {name.replace("rnn/MultiRNNCell/Cell0/", "rnn/"): array for name, array in one.items()}
    assert bits(returned) == bits(one)
    assert_returns_bit_by_bit(AllenNlpFiles.in_folder(tmp_path / "back"), tmp_path / "again")


def test_words_and_a_softmax_are_carried(tmp_path: Path) -> None:
    files, _, arrays = random_language_model(0, tmp_path / "source")
    one = write_checkpoint(tmp_path / "one", json.loads(files.options.read_text()), arrays_of_one_direction(arrays))
    allennlp_to_folder(replace(one, vocabulary=files.vocabulary), tmp_path / "to", source_name="lm")
    model = ElmoForPreTraining.from_pretrained(tmp_path / "to").eval()
    scores = model.score([["the", "ferry"]], ElmoTokenizer.from_pretrained(tmp_path / "to"))
    assert np.isfinite(scores.forward).all()
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    returned = read_datasets(tmp_path / "back" / "weights.hdf5") | read_datasets(tmp_path / "back" / "softmax.hdf5")
    short = {name.replace("rnn/MultiRNNCell/Cell0/", "rnn/"): a for name, a in arrays_of_one_direction(arrays).items()}
    assert bits(returned) == bits(short)


def test_word_input_with_one_direction(tmp_path: Path) -> None:
    options = json.loads((EDGES / "bi_word_2" / "options.json").read_text())
    arrays = arrays_of_one_direction(read_datasets(EDGES / "bi_word_2" / "w.hdf5"))
    files = write_checkpoint(tmp_path / "source", options, arrays)
    assert_returns_bit_by_bit(replace(files, vocabulary=words_file(tmp_path, VOCABULARY)), tmp_path)


def test_a_forget_bias_of_torch_is_put_back_into_the_bias(tmp_path: Path) -> None:
    allennlp_to_folder(AllenNlpFiles.in_folder(UNI), tmp_path / "to", source_name="one")
    ElmoModel.from_pretrained(tmp_path / "to", forget_bias=0.0).save_pretrained(tmp_path / "to")
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    name = "rnn/MultiRNNCell/Cell1/LSTMCell/bias"
    before, after = read_datasets(UNI / "w.hdf5")[name], read_datasets(tmp_path / "back" / "weights.hdf5")[name]
    shift = np.repeat([0, 0, -1, 0], len(before) // 4)
    np.testing.assert_allclose(after, before + shift, atol=1e-6)


def test_half_a_checkpoint_of_two_directions_is_refused(tmp_path: Path) -> None:
    arrays = read_datasets(UNI / "w.hdf5") | {"RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/B": np.ones(64, np.float32)}
    files = write_checkpoint(tmp_path / "source", json.loads((UNI / "options.json").read_text()), arrays)
    assert_refused(files, tmp_path, "unknown: `RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/B` (64,)")


def test_bilm_tfs_save_directory_is_its_export_with_the_softmax(tmp_path: Path) -> None:
    files = save_directory("uni_char_2", tmp_path)
    variables = read_variables(files.weights.with_suffix(""))
    difference = allennlp_to_folder(files, tmp_path / "to", source_name="save", check=True)
    assert difference is not None
    assert difference < 1e-6
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(UNI / "w.hdf5"))
    softmax = {name: variables[name] for name in ("softmax/W", "softmax/b")}
    assert bits(read_datasets(tmp_path / "back" / "softmax.hdf5")) == bits(softmax)
    model = ElmoForPreTraining.from_pretrained(tmp_path / "to").eval()
    scores = model.score([VOCABULARY[3:6]], ElmoTokenizer.from_pretrained(tmp_path / "to"))
    assert scores.perplexity == scores.forward_perplexity
