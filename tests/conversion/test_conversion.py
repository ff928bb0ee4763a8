"""Checkpoints there and back, bit by bit; comparison with the NumPy witness; word input."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from checkpoints import (
    BASE,
    CELL,
    EDGES,
    FIXTURES,
    GOLDEN_CASES,
    VOCABULARY,
    assert_refused,
    assert_returns_bit_by_bit,
    base_checkpoint,
    bits,
    difference_of,
    random_checkpoint,
    random_options,
    read_datasets,
    shared,
    write_checkpoint,
)
from safetensors.numpy import load_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion import check
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
from elmo_hf.conversion.readers.hdf5_layout import config_from_options, options_from_config
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.witness.reference import ReferenceElmo


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_golden_case_returns_bit_by_bit(case: str, tmp_path: Path) -> None:
    assert_returns_bit_by_bit(AllenNlpFiles.in_folder(FIXTURES / case), tmp_path)


def test_cells_without_projection_return_bit_by_bit(tmp_path: Path) -> None:
    files = AllenNlpFiles.in_folder(EDGES / "bi_char_noproj")
    assert_returns_bit_by_bit(files, tmp_path)
    assert not any("W_P_0" in name for name in read_datasets(tmp_path / "back" / "weights.hdf5"))


@pytest.mark.parametrize("name", ["bilm_tf_fixture", "bilm_tf_noskip_fixture"])
def test_fixture_of_bilm_tf_returns_bit_by_bit(name: str, tmp_path: Path) -> None:
    folder = shared("fixtures", name)
    assert_returns_bit_by_bit(AllenNlpFiles(folder / "options.json", folder / "lm_weights.hdf5"), tmp_path)


def test_one_layer_without_the_multi_cell_level_returns_under_the_cell0_names(tmp_path: Path) -> None:
    files = AllenNlpFiles.in_folder(EDGES / "bi_char_1layer")
    difference = allennlp_to_folder(files, tmp_path / "there", source_name="one", check=True)
    assert difference is not None
    assert difference < 1e-5
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    original = read_datasets(files.weights)
    assert "RNN_1/RNN/LSTMCell/W_P_0" in original
    renamed = {name.replace("/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/"): original[name] for name in original}
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(renamed)


def test_one_layer_of_weights_is_no_two_layer_model(tmp_path: Path) -> None:
    options = json.loads((EDGES / "bi_char_1layer" / "options.json").read_text(encoding="utf-8"))
    options["lstm"]["n_layers"] = 2
    files = write_checkpoint(tmp_path / "source", options, read_datasets(EDGES / "bi_char_1layer" / "w.hdf5"))
    assert_refused(files, tmp_path, "weights.hdf5 does not hold the arrays that its options describe")


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_options_return(case: str) -> None:
    original = json.loads((FIXTURES / case / "options.json").read_text(encoding="utf-8"))
    shapes = {name: array.shape for name, array in read_datasets(FIXTURES / case / "weights.hdf5").items()}
    config = config_from_options(original, shapes)
    returned = options_from_config(config)
    assert returned == {
        "lstm": original["lstm"],
        "char_cnn": original["char_cnn"] | {"n_characters": 262},
    }
    assert config_from_options(returned, shapes).to_dict() == config.to_dict()


def test_each_option_becomes_its_field() -> None:
    original = json.loads((FIXTURES / "tight_clip_2l_tanh" / "options.json").read_text(encoding="utf-8"))
    arrays = read_datasets(FIXTURES / "tight_clip_2l_tanh" / "weights.hdf5")
    config = config_from_options(original, {name: array.shape for name, array in arrays.items()})
    expected = {
        "token_encoder": "char_cnn",
        "vocab_size": 262,
        "max_word_length": 50,
        "char_embedding_size": 5,
        "char_filters": [[1, 6], [2, 10], [3, 14]],
        "char_activation": "tanh",
        "num_highway_layers": 1,
        "char_projection": True,
        "projection_size": 12,
        "cell_size": 24,
        "num_hidden_layers": 2,
        "cell_projection": True,
        "cell_clip": 0.35,
        "projection_clip": 0.3,
        "use_skip_connections": True,
        "forget_bias": 1.0,
        "hidden_size": 24,
    }
    assert {name: getattr(config, name) for name in expected} == expected


def test_options_that_bilm_tf_may_leave_out_have_its_defaults() -> None:
    options, arrays = base_checkpoint()
    for key in ("cell_clip", "proj_clip", "use_skip_connections"):
        del options["lstm"][key]
    for key in ("max_characters_per_token", "n_characters"):
        del options["char_cnn"][key]
    options["char_cnn"]["n_highway"] = None
    config = config_from_options(options, {name: array.shape for name, array in arrays.items()})
    found = (config.cell_clip, config.projection_clip, config.use_skip_connections)
    assert found == (None, None, False)
    assert (config.max_word_length, config.num_highway_layers) == (50, 0)
    assert config.num_hidden_layers == 2
    del options["lstm"]["n_layers"]
    config = config_from_options(options, {name: array.shape for name, array in arrays.items()})
    assert config.num_hidden_layers == 1


@pytest.mark.parametrize("number", [261, 262])
def test_number_of_characters_in_the_options_changes_nothing(number: int, tiny_folder: Path, tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    options["char_cnn"]["n_characters"] = number
    allennlp_to_folder(write_checkpoint(tmp_path / "source", options, arrays), tmp_path / "to", source_name="any")
    assert (tmp_path / "to" / "config.json").read_bytes() == (tiny_folder / "config.json").read_bytes()
    assert bits(load_file(tmp_path / "to" / "model.safetensors")) == bits(load_file(tiny_folder / "model.safetensors"))


def test_unknown_keys_beside_the_architecture_are_ignored(tiny_folder: Path, tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    options |= {"bidirectional": True, "n_epochs": 10, "lr": {"decay": [1, 2]}, "note": None}
    allennlp_to_folder(write_checkpoint(tmp_path / "source", options, arrays), tmp_path / "to", source_name="any")
    assert (tmp_path / "to" / "config.json").read_bytes() == (tiny_folder / "config.json").read_bytes()


def test_float16_weights_are_converted_exactly(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    halves = {name: array.astype(np.float16) for name, array in arrays.items()}
    allennlp_to_folder(write_checkpoint(tmp_path / "source", options, halves), tmp_path / "there", source_name="half")
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    wide = {name: half.astype(np.float32) for name, half in halves.items()}
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(wide)


def test_exported_datasets_are_contiguous_and_uncompressed(tiny_folder: Path, tmp_path: Path) -> None:
    folder_to_allennlp(tiny_folder, tmp_path / "back")
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["options.json", "weights.hdf5"]
    layouts = set()
    with h5py.File(tmp_path / "back" / "weights.hdf5", "r") as file:
        file.visititems(
            lambda _, item: (
                layouts.add((item.chunks, item.compression, len(item.attrs)))
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    assert layouts == {(None, None, 0)}


@pytest.mark.parametrize("seed", range(12))
def test_random_architecture_equals_the_reference_and_returns(seed: int, tmp_path: Path) -> None:
    options, cell_projection, char_projection = random_options(seed)
    arrays = random_checkpoint(options, seed, cell_projection=cell_projection, char_projection=char_projection)
    files = write_checkpoint(tmp_path / "source", options, arrays)
    difference = allennlp_to_folder(files, tmp_path / "there", source_name="random", check=True)
    assert difference is not None
    assert difference < 1e-5
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(arrays)
    returned = json.loads((tmp_path / "back" / "options.json").read_text(encoding="utf-8"))
    for clip in ("cell_clip", "proj_clip"):
        options["lstm"][clip] = options["lstm"][clip] or None
    assert returned == options


def test_random_architectures_cover_every_choice() -> None:
    drawn = [random_options(seed) for seed in range(12)]
    lstms, char_cnns = [options["lstm"] for options, _, _ in drawn], [options["char_cnn"] for options, _, _ in drawn]
    assert {lstm["n_layers"] for lstm in lstms} == {1, 2, 3}
    assert {lstm["use_skip_connections"] for lstm in lstms if lstm["n_layers"] > 1} == {True, False}
    assert {lstm["cell_clip"] for lstm in lstms} == {None, 0, 0.4}
    assert {lstm["proj_clip"] for lstm in lstms} == {None, 0, 0.3}
    assert {char_cnn["n_highway"] for char_cnn in char_cnns} == {0, 1, 2}
    assert {char_cnn["activation"] for char_cnn in char_cnns} == {"relu", "tanh"}
    assert {(cell, char) for _, cell, char in drawn} >= {(True, True), (False, True), (True, False)}


@pytest.mark.parametrize("changed", ["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", "CNN_high_1/b_carry", "char_embed"])
def test_check_sees_a_change_in_any_array(changed: str, tiny_folder: Path) -> None:
    options, arrays = base_checkpoint()
    assert difference_of(tiny_folder, ReferenceElmo(options, arrays)) < 1e-5
    arrays[changed] = arrays[changed] + 0.05
    assert difference_of(tiny_folder, ReferenceElmo(options, arrays)) > 1e-3


@pytest.mark.parametrize("sentence", [0, 1, 2])
def test_check_sees_a_nan_in_any_sentence(
    sentence: int, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = ReferenceElmo.embed

    def embed_with_nan(self: ReferenceElmo, words: list[str]) -> np.ndarray:
        return embed(self, words) * (np.nan if list(words) == list(check.CHECK_SENTENCES[sentence]) else 1)

    monkeypatch.setattr(ReferenceElmo, "embed", embed_with_nan)
    assert np.isnan(difference_of(tiny_folder, ReferenceElmo(*base_checkpoint())))
    with pytest.raises(ConversionError, match="the converted model differs from its checkpoint by nan, more than"):
        allennlp_to_folder(AllenNlpFiles.in_folder(BASE), tmp_path / "model", source_name="x", check=True)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("with_filters", [True, False], ids=["cell as wide", "cell and CNN as wide"])
def test_projections_between_equal_sizes_are_kept(with_filters: bool, tmp_path: Path) -> None:
    options, _, _ = random_options(0)
    options["lstm"] |= {"projection_dim": 7, "dim": 7, "n_layers": 2}
    options["char_cnn"]["filters"] = [[1, 2], [3, 4]] if with_filters else [[1, 2], [3, 5]]
    arrays = random_checkpoint(options, 5, cell_projection=True, char_projection=True)
    assert arrays[f"{CELL}/W_P_0"].shape == (7, 7)
    files = write_checkpoint(tmp_path / "source", options, arrays)
    allennlp_to_folder(files, tmp_path / "there", source_name="square")
    model = ElmoModel.from_pretrained(tmp_path / "there")
    assert (model.config.cell_projection, model.config.char_projection) == (True, True)
    kept = model.state_dict()
    np.testing.assert_array_equal(kept["token_encoder.projection.weight"].numpy(), arrays["CNN_proj/W_proj"].T)
    np.testing.assert_array_equal(
        kept["bilm.layers.0.forward_lstm.projection.weight"].numpy(), arrays[f"{CELL}/W_P_0"].T
    )
    assert difference_of(tmp_path / "there", ReferenceElmo(options, arrays)) < 1e-5
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(arrays)


def test_a_model_that_differs_from_its_checkpoint_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = ReferenceElmo.embed
    monkeypatch.setattr(ReferenceElmo, "embed", lambda self, words: embed(self, words) + 0.25)
    message = "the converted model differs from its checkpoint by 2.50e-01, more than 1e-04; nothing was written."
    assert_refused(AllenNlpFiles.in_folder(BASE), tmp_path, message, check=True)


def test_word_input_model_reads_word_ids(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    assert allennlp_to_folder(word_files, tmp_path / "there", source_name="words") is None
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "there")
    inputs = tokenizer(["the ferry unseen word32", "the"], padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == [[1, 4, 5, 3, 32, 2], [1, 4, 2, 0, 0, 0]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]

    model = ElmoModel.from_pretrained(tmp_path / "there").eval()
    assert (model.config.token_encoder, model.config.vocab_size) == ("word_embedding", 33)
    with torch.no_grad():
        layers = model(**inputs, output_hidden_states=True).hidden_states
    arrays = read_datasets(word_files.weights)
    reference = ReferenceElmo(json.loads(word_files.options.read_text(encoding="utf-8")) | {"char_cnn": {}}, arrays)
    vectors = arrays["embedding"][[0, 3, 4, 2, 31, 1]].astype(np.float64)
    np.testing.assert_array_equal(layers[0][0].numpy(), np.concatenate([vectors, vectors], -1).astype(np.float32))
    forward = reference.direction("RNN_0", vectors, {})
    backward = reference.direction("RNN_1", vectors[::-1], {})
    for layer in (1, 2):
        expected = np.concatenate([forward[layer - 1], backward[layer - 1][::-1]], axis=-1)
        np.testing.assert_allclose(layers[layer][0].numpy(), expected, rtol=0, atol=1e-5)


def test_word_input_model_returns_with_its_vocabulary(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    assert_returns_bit_by_bit(word_files, tmp_path)
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == VOCABULARY
    original = json.loads(word_files.options.read_text(encoding="utf-8"))["lstm"]
    returned = json.loads((tmp_path / "back" / "options.json").read_text(encoding="utf-8"))
    assert returned == {"lstm": original | {"cell_clip": None, "proj_clip": None}}
    assert AllenNlpFiles.in_folder(tmp_path / "back").vocabulary == tmp_path / "back" / "vocab.txt"


def test_a_word_that_the_vocabulary_has_twice_keeps_both_numbers(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    words = [*VOCABULARY[:9], "the", *VOCABULARY[10:]]
    assert word_files.vocabulary is not None
    word_files.vocabulary.write_text("\n".join(words), encoding="utf-8")
    allennlp_to_folder(word_files, tmp_path / "there", source_name="words")
    assert ElmoTokenizer.from_pretrained(tmp_path / "there")("the word11")["input_ids"] == [1, 10, 11, 2]
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    returned = (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert returned == [*words[:3], "<unused4>", *words[4:]]


def test_word_input_cannot_be_checked(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    message = "`--check` compares with a reference that reads characters; this model reads word ids."
    assert_refused(word_files, tmp_path, message, check=True)
