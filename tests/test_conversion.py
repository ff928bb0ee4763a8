"""Checkpoints in and out: round trips bit by bit, the NumPy witness, every refusal, and the folder's card."""

import copy
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from conftest import FIXTURES, GOLDEN_CASES, shared
from huggingface_hub import ModelCard
from safetensors.numpy import load_file, save_file
from transformers import BertConfig, BertModel

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion import convert
from elmo_hf.conversion.allennlp import config_from_options, options_from_config
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp, largest_difference
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.files import read_hdf5
from elmo_hf.conversion.reference import ReferenceElmo

Options = dict[str, Any]
Arrays = dict[str, np.ndarray]

BASE = FIXTURES / "base_2l_relu"
EDGES = FIXTURES / "bilm_tf_edges"
# 32 words, as many as `bi_word_2` has rows.
VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "ferry"] + [f"word{number}" for number in range(6, 33)]
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


def read_datasets(path: Path) -> Arrays:
    """Every dataset of an hdf5 file, read without the package."""
    datasets: Arrays = {}
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: datasets.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return datasets


def write_datasets(path: Path, arrays: Arrays) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def write_checkpoint(folder: Path, options: Options, arrays: Arrays) -> AllenNlpFiles:
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    return AllenNlpFiles(folder / "options.json", write_datasets(folder / "weights.hdf5", arrays))


def base_checkpoint() -> tuple[Options, Arrays]:
    return json.loads((BASE / "options.json").read_text(encoding="utf-8")), read_datasets(BASE / "weights.hdf5")


def bits(arrays: Arrays) -> dict[str, tuple[np.dtype, tuple[int, ...], bytes]]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def assert_returns_bit_by_bit(files: AllenNlpFiles, work: Path) -> None:
    """Converts there and back; names, dtypes, shapes and bytes of all datasets are those of the source."""
    allennlp_to_folder(files, work / "there", source_name="source")
    folder_to_allennlp(work / "there", work / "back")
    returned, original = read_datasets(work / "back" / "weights.hdf5"), read_datasets(files.weights)
    assert {array.dtype for array in original.values()} == {np.dtype("float32")}
    assert bits(returned) == bits(original)


def random_checkpoint(options: Options, seed: int, *, cell_projection: bool, char_projection: bool) -> Arrays:
    """Random arrays of the options' shapes, in bilm-tf's names and layout."""
    generator = np.random.default_rng(seed)
    lstm, char_cnn = options["lstm"], options["char_cnn"]
    size, cell, d = lstm["projection_dim"], lstm["dim"], char_cnn["embedding"]["dim"]
    n = sum(count for _, count in char_cnn["filters"])
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, d)}
    for index, (width, count) in enumerate(char_cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{index}": (1, width, d, count), f"CNN/b_cnn_{index}": (count,)}
    for index in range(char_cnn["n_highway"]):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{index}/W_{name}": (n, n), f"CNN_high_{index}/b_{name}": (n,)}
    if char_projection:
        shapes |= {"CNN_proj/W_proj": (n, size), "CNN_proj/b_proj": (size,)}
    for direction in ("RNN_0", "RNN_1"):
        for layer in range(lstm["n_layers"]):
            theirs = f"{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{theirs}/W_0": (2 * size, 4 * cell), f"{theirs}/B": (4 * cell,)}
            if cell_projection:
                shapes[f"{theirs}/W_P_0"] = (cell, size)
    return {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def random_options(seed: int) -> tuple[Options, bool, bool]:
    """An odd architecture, and whether it has the projections of the cell and of the CNN."""
    generator = np.random.default_rng(1000 + seed)
    max_characters = int(generator.integers(7, 61))
    size = int(generator.integers(3, 12))
    cell_projection, char_projection = seed % 4 != 1, seed % 5 != 2
    filters = [[int(generator.integers(1, 8)), int(generator.integers(1, 7))] for _ in range(generator.integers(1, 4))]
    if not char_projection:
        filters = [[3, 1], [1, size - 1]]
    options = {
        "lstm": {
            "projection_dim": size,
            "dim": int(generator.integers(4, 15)) if cell_projection else size,
            "n_layers": 1 + seed % 3,
            "cell_clip": (None, 0, 0.4)[seed // 2 % 3],
            "proj_clip": (0.3, None, 0)[seed % 3],
            "use_skip_connections": seed % 2 == 0,
        },
        "char_cnn": {
            "embedding": {"dim": int(generator.integers(2, 7))},
            "filters": filters,
            "n_highway": seed // 3 % 3,
            "activation": ("relu", "tanh")[seed // 2 % 2],
            "max_characters_per_token": max_characters,
            "n_characters": 262,
        },
    }
    return options, cell_projection, char_projection


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base case, converted and checked."""
    folder = tmp_path_factory.mktemp("conversion") / "tiny"
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), folder, source_name="our_tiny", check=True)
    return folder


# ---- there and back ----


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


# ---- the NumPy witness ----


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
    assert largest_difference(tiny_folder, options, arrays) < 1e-5
    assert largest_difference(tiny_folder, options, arrays | {changed: arrays[changed] + 0.05}) > 1e-3


@pytest.mark.parametrize("sentence", [0, 1, 2])
def test_check_sees_a_nan_in_any_sentence(sentence: int, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed = ReferenceElmo.embed

    def embed_with_nan(self: ReferenceElmo, words: list[str]) -> np.ndarray:
        return embed(self, words) * (np.nan if list(words) == list(convert.CHECK_SENTENCES[sentence]) else 1)

    monkeypatch.setattr(ReferenceElmo, "embed", embed_with_nan)
    assert np.isnan(largest_difference(tiny_folder, *base_checkpoint()))


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
    assert largest_difference(tmp_path / "there", options, arrays) < 1e-5
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(arrays)


def test_a_model_that_differs_from_its_checkpoint_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = ReferenceElmo.embed
    monkeypatch.setattr(ReferenceElmo, "embed", lambda self, words: embed(self, words) + 0.25)
    message = "the converted model differs from its checkpoint by 2.50e-01, more than 1e-04; nothing was written."
    assert_refused(AllenNlpFiles.in_folder(BASE), tmp_path, message, check=True)


# ---- word input ----


@pytest.fixture
def word_files(tmp_path: Path) -> AllenNlpFiles:
    """`bi_word_2` with a vocabulary of its 32 words."""
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word}\n" for word in VOCABULARY), encoding="utf-8")
    return AllenNlpFiles(EDGES / "bi_word_2" / "options.json", EDGES / "bi_word_2" / "w.hdf5", path)


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


def test_word_input_model_needs_its_vocabulary(tmp_path: Path) -> None:
    message = "reads word ids, so its vocabulary is needed to make them: put `vocab.txt` beside it"
    assert_refused(AllenNlpFiles.in_folder(EDGES / "bi_word_2"), tmp_path, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*VOCABULARY, "more"], "words.txt has more words than `embedding` in "),
        (VOCABULARY[3:], "words.txt: the vocabulary lacks <S>, </S>, <UNK>"),
    ],
    ids=["more words than rows", "no boundaries"],
)
def test_a_vocabulary_of_another_model_is_refused(
    words: list[str], message: str, word_files: AllenNlpFiles, tmp_path: Path
) -> None:
    assert word_files.vocabulary is not None
    word_files.vocabulary.write_text("\n".join(words), encoding="utf-8")
    assert_refused(word_files, tmp_path, message)


def test_a_missing_vocabulary_file_is_named(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    assert word_files.vocabulary is not None
    word_files.vocabulary.unlink()
    assert_refused(word_files, tmp_path, "words.txt")


def test_word_input_cannot_be_checked(word_files: AllenNlpFiles, tmp_path: Path) -> None:
    message = "`--check` compares with a reference that reads characters; this model reads word ids."
    assert_refused(word_files, tmp_path, message, check=True)


# ---- refusals ----


def assert_refused(files: AllenNlpFiles, work: Path, message: str, *, check: bool = False) -> None:
    """The conversion fails with the text and leaves nothing: no DEST, no `.DEST.partial*`."""
    place = work / "place"
    place.mkdir()
    with pytest.raises(ConversionError, match=re.escape(message)):
        allennlp_to_folder(files, place / "DEST", source_name="any", check=check)
    assert list(place.iterdir()) == []


def test_one_direction_model_is_refused(tmp_path: Path) -> None:
    message = "these weights are of a one-direction language model; an ELMo reads in both directions."
    assert_refused(AllenNlpFiles.in_folder(EDGES / "uni_char_2"), tmp_path, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no options file "),
        (b"<html>Not found</html>", "options.json is not JSON: "),
        (b'{"lstm": {"dim": 32', "options.json is not JSON: "),
        (b"\xff\xfe{\x00", "options.json is not JSON: "),
        (b"", "options.json is not JSON: "),
        (b"[1, 2]", "options.json must hold a JSON object with an object `lstm` in it"),
        (b'{"char_cnn": {}}', "options.json must hold a JSON object with an object `lstm` in it"),
        (b'{"lstm": 3}', "options.json must hold a JSON object with an object `lstm` in it"),
    ],
    ids=["missing", "html", "cut", "not utf-8", "empty", "list", "no lstm", "lstm is a number"],
)
def test_options_file_that_is_none_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    if content is not None:
        path.write_bytes(content)
    assert_refused(AllenNlpFiles(path, BASE / "weights.hdf5"), tmp_path, message)


ABSENT = object()
FAULTY_OPTIONS = {
    "no projection_dim": ("lstm.projection_dim", ABSENT, "lacks `lstm.projection_dim`, which every ELMo needs."),
    "no dim": ("lstm.dim", ABSENT, "lacks `lstm.dim`, which every ELMo needs."),
    "no char embedding": ("char_cnn.embedding", ABSENT, "lacks `char_cnn.embedding.dim`, which every ELMo needs."),
    "no char embedding dim": ("char_cnn.embedding.dim", ABSENT, "lacks `char_cnn.embedding.dim`, which every"),
    "no filters": ("char_cnn.filters", ABSENT, "lacks `char_cnn.filters`, which every ELMo needs."),
    "no activation": ("char_cnn.activation", ABSENT, "lacks `char_cnn.activation`, which every ELMo needs."),
    "char_cnn null": ("char_cnn", None, "`char_cnn` must be an object, found None."),
    "embedding number": ("char_cnn.embedding", 4, "`char_cnn.embedding` must be an object, found 4."),
    "unknown in lstm": ("lstm.layer_norm", True, "unknown key `lstm.layer_norm`. It may change the architecture"),
    "unknown in char_cnn": ("char_cnn.dilation", 2, "unknown key `char_cnn.dilation`. It may change the architecture"),
    "activation": ("char_cnn.activation", "gelu", "`char_activation` must be one of 'relu', 'tanh', found 'gelu'."),
    "filters": ("char_cnn.filters", [[1, 4], [2]], "`char_filters` must be [width, count] pairs, found [2] at"),
    "filters no list": ("char_cnn.filters", 7, "char_filters"),
    "filter too wide": ("char_cnn.filters", [[51, 4]], "`char_filters` may be at most `max_word_length` = 50"),
    "highway text": ("char_cnn.n_highway", "two", "num_highway_layers"),
    "short words": ("char_cnn.max_characters_per_token", 2, "`max_word_length` must be a whole number of at least 3"),
    "no layers": ("lstm.n_layers", 0, "`num_hidden_layers` must be a whole number of at least 1, found 0."),
    "half a layer": ("lstm.n_layers", 1.5, "num_hidden_layers"),
    "dim text": ("lstm.dim", "32", "cell_size"),
    "negative projection": ("lstm.projection_dim", -8, "`projection_size` must be a whole number of at least 1"),
    "skip text": ("lstm.use_skip_connections", "yes", "use_skip_connections"),
    "negative clip": ("lstm.cell_clip", -3, "`cell_clip` must be a positive number, or None to switch it off"),
    "clip text": ("lstm.cell_clip", "three", "options.json"),
    "clip true": ("lstm.cell_clip", True, "`cell_clip` must be a positive number, or None to switch it off"),
    "clip list": ("lstm.proj_clip", [3], "options.json"),
    "embedding wider than the file's": ("char_cnn.embedding.dim", 5, "`char_embed` must be (261, 5), found (261, 4)"),
    "more layers than the file has": ("lstm.n_layers", 3, "missing: `RNN_1/RNN/MultiRNNCell/Cell2/LSTMCell/W_0`"),
    "fewer layers than the file has": ("lstm.n_layers", 1, "unknown: `RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/B`"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), FAULTY_OPTIONS.values(), ids=FAULTY_OPTIONS)
def test_faulty_option_is_named(path: str, value: Any, message: str, tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    *parents, key = path.split(".")
    place = options
    for parent in parents:
        place = place[parent]
    if value is ABSENT:
        del place[key]
    else:
        place[key] = value
    assert_refused(write_checkpoint(tmp_path / "source", options, arrays), tmp_path, message)


def test_known_keys_are_listed_beside_an_unknown_one(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    options["lstm"]["layer_norm"] = True
    known = "known keys are cell_clip, dim, n_layers, proj_clip, projection_dim, use_skip_connections."
    assert_refused(write_checkpoint(tmp_path / "source", options, arrays), tmp_path, known)


def damaged(damage: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(damage((BASE / "weights.hdf5").read_bytes())) and None


def flip(*places: int) -> Callable[[bytes], bytes]:
    """Inverts the bits of bytes."""
    return lambda content: bytes(byte ^ 255 if place in places else byte for place, byte in enumerate(content))


DAMAGED_FILES = {
    "missing": (lambda path: None, "there is no weights file "),
    "text": (damaged(lambda _: b"<html>404\n" * 9), "weights.hdf5 is not an hdf5 file; ELMo weights are `*.hdf5`"),
    "empty": (damaged(lambda _: b""), "weights.hdf5 is not an hdf5 file"),
    "half": (damaged(lambda content: content[: len(content) // 2]), "weights.hdf5 cannot be read, it may be truncated"),
    "end lost": (damaged(lambda content: content[:-1]), "weights.hdf5 cannot be read, it may be truncated"),
    "shape corrupt": (damaged(flip(834)), "weights.hdf5 cannot be read, it may be truncated"),
    "type corrupt": (damaged(flip(891)), "weights.hdf5 cannot be read, it may be truncated"),
    "name corrupt": (damaged(flip(6264)), "weights.hdf5 cannot be read, it may be truncated"),
}  # fmt: skip


@pytest.mark.parametrize(("write", "message"), DAMAGED_FILES.values(), ids=DAMAGED_FILES)
def test_damaged_weights_file_is_refused(write: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.hdf5"
    write(path)
    assert_refused(AllenNlpFiles(BASE / "options.json", path), tmp_path, message)


def test_weights_kept_in_another_file_are_not_followed(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    table = arrays.pop("char_embed")
    (tmp_path / "secret.bin").write_bytes(table.tobytes())
    files = write_checkpoint(tmp_path / "source", options, arrays)
    with h5py.File(files.weights, "a") as file:
        external = [(str(tmp_path / "secret.bin"), 0, table.nbytes)]
        file.create_dataset("char_embed", shape=table.shape, dtype=table.dtype, external=external)
    np.testing.assert_array_equal(read_datasets(files.weights)["char_embed"], table)
    assert_refused(files, tmp_path, "`char_embed` refers to another file, which is not followed.")


def test_virtual_weights_are_not_followed(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    write_datasets(tmp_path / "other.hdf5", {"table": arrays["char_embed"]})
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "table", shape=(261, 4))
    del arrays["char_embed"]
    files = write_checkpoint(tmp_path / "source", options, arrays)
    with h5py.File(files.weights, "a") as file:
        file.create_virtual_dataset("char_embed", layout)
    assert_refused(files, tmp_path, "`char_embed` refers to another file, which is not followed.")


def test_links_to_another_file_are_not_followed(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    write_datasets(tmp_path / "other.hdf5", {"bias": arrays[f"{CELL}/B"]})
    del arrays[f"{CELL}/B"]
    files = write_checkpoint(tmp_path / "source", options, arrays)
    with h5py.File(files.weights, "a") as file:
        file[f"{CELL}/B"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "bias")
    assert_refused(files, tmp_path, f"missing: `{CELL}/B` (128,)")


def with_nan(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[3] = np.nan
    return array


FAULTY_ARRAYS = {
    "missing": (f"{CELL}/B", lambda array: None, f"missing: `{CELL}/B` (128,)"),
    "one cell's projection missing": (f"{CELL}/W_P_0", lambda array: None, f"missing: `{CELL}/W_P_0` (32, 8)"),
    "no CNN projection": ("CNN_proj/W_proj", lambda array: None, "`char_projection` can be False only where"),
    "no CNN projection bias": ("CNN_proj/b_proj", lambda array: None, "missing: `CNN_proj/b_proj` (8,)"),
    "no table": ("char_embed", lambda array: None, "describes characters input, so the weights must hold `char_embed`"),
    "unknown": ("CNN/W_cnn_4", lambda array: np.ones((1, 5, 4, 8), np.float32), "unknown: `CNN/W_cnn_4` (1, 5, 4, 8)"),
    "shape": (f"{CELL}/W_0", lambda array: array.T, f"shape: `{CELL}/W_0` must be (16, 128), found (128, 16)"),
    "short table": ("char_embed", lambda array: array[:100], "`char_embed` must have 261 rows, found 100."),
    "flat table": ("char_embed", lambda array: array[:, 0], "shape: `char_embed` must be (261, 4), found (261,)"),
    "scalar table": ("char_embed", lambda array: array[0, 0], "`char_embed`"),
    "whole numbers": ("CNN/b_cnn_0", lambda array: array.astype(int), "type: `CNN/b_cnn_0` must be float32, found"),
    "texts": ("CNN/b_cnn_0", lambda array: np.array([b"a"] * 4, object), "type: `CNN/b_cnn_0` must be float32, found"),
    "nan": ("CNN_high_1/W_carry", with_nan, "values: `CNN_high_1/W_carry` holds NaN or infinite numbers"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), FAULTY_ARRAYS.values(), ids=FAULTY_ARRAYS)
def test_faulty_array_is_named(
    name: str, change: Callable[[Any], np.ndarray | None], message: str, tmp_path: Path
) -> None:
    options, arrays = base_checkpoint()
    changed = change(arrays.pop(name, None))
    if changed is not None:
        arrays[name] = changed
    assert_refused(write_checkpoint(tmp_path / "source", options, arrays), tmp_path, message)


def test_word_options_with_character_weights_are_refused(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    del options["char_cnn"]
    files = write_checkpoint(tmp_path / "source", options, arrays)
    assert_refused(files, tmp_path, "describes word input, so the weights must hold `embedding`, found CNN/W_cnn_0")


# ---- where files lie ----


def test_files_of_a_folder_are_found_by_their_suffixes(tmp_path: Path) -> None:
    for name in ("elmo_options.json", "config.json", "elmo_weights.hdf5", "my_vocab.txt", "README.txt"):
        (tmp_path / name).touch()
    found = AllenNlpFiles.in_folder(tmp_path)
    assert found == AllenNlpFiles(
        tmp_path / "elmo_options.json", tmp_path / "elmo_weights.hdf5", tmp_path / "my_vocab.txt"
    )
    (tmp_path / "options.json").touch()
    assert AllenNlpFiles.in_folder(tmp_path).options == tmp_path / "options.json"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["options.json", "a.hdf5", "b.hdf5"], "found a.hdf5, b.hdf5, options.json; name the files with"),
        (["a.hdf5", "config.json"], "found a.hdf5, config.json; name the files with `--options FILE --weights FILE`."),
        (["options.json"], "found options.json; name the files with"),
        (["a_options.json", "b_options.json", "a.hdf5"], "found a.hdf5, a_options.json, b_options.json; name the"),
        ([], "found nothing; name the files with"),
    ],
    ids=["two weights", "no options", "no weights", "two options", "empty"],
)
def test_a_folder_without_exactly_one_checkpoint_is_refused(names: list[str], found: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(
        ConversionError, match=re.escape(f"must hold `options.json` and exactly one `.hdf5` file, {found}")
    ):
        AllenNlpFiles.in_folder(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_source_that_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConversionError, match=rf"{name} is not a folder; give a folder with `options\.json`"):
        AllenNlpFiles.in_folder(tmp_path / name)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_existing_destination_is_left_as_it_is(kind: str, tiny_folder: Path, tmp_path: Path) -> None:
    destination = tmp_path / "DEST"
    precious = destination / "precious.txt" if kind == "folder" else destination
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("mine", encoding="utf-8")
    message = "DEST exists already; remove it or choose another place. Nothing was written."
    with pytest.raises(ConversionError, match=re.escape(message)):
        allennlp_to_folder(AllenNlpFiles.in_folder(BASE), destination, source_name="any")
    with pytest.raises(ConversionError, match=re.escape(message)):
        folder_to_allennlp(tiny_folder, destination)
    assert precious.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.rglob("*")) == sorted({destination, precious})


def test_an_empty_destination_folder_is_filled(tiny_folder: Path, tmp_path: Path) -> None:
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), tmp_path / "there", source_name="any")
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "there"]
    assert {path.name for path in (tmp_path / "there").iterdir()} == {path.name for path in tiny_folder.iterdir()}
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(BASE / "weights.hdf5"))


def test_folders_above_the_destination_are_made(tmp_path: Path) -> None:
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), tmp_path / "a" / "b" / "DEST", source_name="any")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["DEST"]


# ---- export ----


def assert_export_refused(source: Path, work: Path, message: str) -> None:
    place = work / "place"
    place.mkdir()
    with pytest.raises(ConversionError, match=re.escape(message)):
        folder_to_allennlp(source, place / "DEST")
    assert list(place.iterdir()) == []


def test_a_model_without_the_forget_bias_cannot_be_exported(tiny_config: ElmoConfig, tmp_path: Path) -> None:
    tiny_config.forget_bias = 0.0
    ElmoModel(tiny_config).save_pretrained(tmp_path / "source")
    message = "AllenNLP's format always adds 1.0 to the forget gate; this model has `forget_bias` 0.0."
    assert_export_refused(tmp_path / "source", tmp_path, message)


def test_a_model_with_a_padding_vector_cannot_be_exported(tiny_model: ElmoModel, tmp_path: Path) -> None:
    with torch.no_grad():
        tiny_model.get_input_embeddings().weight[0, 2] = 1e-20
    tiny_model.save_pretrained(tmp_path / "source")
    message = "row 0 of the embedding must be zero: the format has no place for a padding vector."
    assert_export_refused(tmp_path / "source", tmp_path, message)


def make_empty_folder(folder: Path) -> None:
    folder.mkdir()


def make_allennlp_folder(folder: Path) -> None:
    write_checkpoint(folder, *base_checkpoint())


def make_bert(folder: Path) -> None:
    config = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9)
    BertModel(config).save_pretrained(folder)


@pytest.mark.parametrize(
    "make", [make_empty_folder, make_allennlp_folder, make_bert], ids=["empty folder", "AllenNLP's files", "BERT"]
)
def test_a_source_that_is_no_elmo_cannot_be_exported(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "source")
    assert_export_refused(tmp_path / "source", tmp_path, "source cannot be loaded as an ELMo model: ")


def test_a_source_that_is_not_there_cannot_be_exported(tmp_path: Path) -> None:
    message = f"there is no folder {tmp_path / 'source'}, and a Hub name looks like org/name."
    assert_export_refused(tmp_path / "source", tmp_path, message)


def test_a_model_that_lacks_a_tensor_is_not_exported_with_random_numbers(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    tensors = load_file(path)
    del tensors["bilm.layers.1.backward_lstm.recurrent_linear.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    assert_export_refused(tmp_path / "source", tmp_path, "bilm.layers.1.backward_lstm.recurrent_linear.weight")


def test_a_truncated_model_cannot_be_exported(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    assert_export_refused(tmp_path / "source", tmp_path, "source cannot be loaded as an ELMo model: ")


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
        ["the scalar mix is not carried: the format holds the biLM only."],
    ),
    "both notes": (
        {"scalar_mix_weights": [0, 0, 1.0]},
        [
            "the scalar mix is not carried: the format holds the biLM only.",
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


def test_a_learned_mix_is_noted(tiny_config: ElmoConfig, tmp_path: Path) -> None:
    tiny_config.max_word_length = 50
    model = ElmoModel(tiny_config)
    model.scalar_mixes[0].set_weights([0.25, 0.25, 0.5])
    model.save_pretrained(tmp_path / "source")
    notes = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert notes == ["the scalar mix is not carried: the format holds the biLM only."]


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


# ---- the folder and its card ----


def test_folder_holds_exactly_the_files_of_a_hub_repository(tiny_folder: Path) -> None:
    assert sorted(path.name for path in tiny_folder.iterdir()) == [
        "README.md",
        "config.json",
        "configuration_elmo.py",
        "lstmp.py",
        "model.safetensors",
        "modeling_elmo.py",
        "padding.py",
        "pipeline_elmo.py",
        "scalar_mix.py",
        "token_encoder.py",
        "tokenization_elmo.py",
        "tokenizer.json",
        "tokenizer_config.json",
        "word_codec.py",
        "word_encoding.py",
        "word_splitter.py",
    ]


def test_folder_has_no_scalar_mix_that_the_checkpoint_lacks(tiny_folder: Path) -> None:
    names = load_file(tiny_folder / "model.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"token_encoder", "bilm"}


def test_weights_are_the_checkpoints_own_in_the_places_of_torch(tiny_folder: Path) -> None:
    tensors, (_, arrays) = load_file(tiny_folder / "model.safetensors"), base_checkpoint()
    kernel, bias = arrays[f"{CELL}/W_0"], arrays[f"{CELL}/B"]
    lstm = "bilm.layers.0.forward_lstm"
    for ours, theirs in enumerate((0, 2, 1, 3)):
        rows, columns = slice(32 * ours, 32 * (ours + 1)), slice(32 * theirs, 32 * (theirs + 1))
        np.testing.assert_array_equal(tensors[f"{lstm}.input_linear.weight"][rows], kernel[:8, columns].T)
        np.testing.assert_array_equal(tensors[f"{lstm}.recurrent_linear.weight"][rows], kernel[8:, columns].T)
        np.testing.assert_array_equal(tensors[f"{lstm}.input_linear.bias"][rows], bias[columns])
    table = tensors["token_encoder.embedding.weight"]
    np.testing.assert_array_equal(table, np.concatenate([np.zeros((1, 4), np.float32), arrays["char_embed"]]))
    np.testing.assert_array_equal(
        tensors["token_encoder.convolutions.3.weight"], arrays["CNN/W_cnn_3"][0].transpose(2, 1, 0)
    )
    np.testing.assert_array_equal(tensors["token_encoder.highways.1.gate.weight"], arrays["CNN_high_1/W_carry"].T)
    np.testing.assert_array_equal(
        tensors["bilm.layers.1.backward_lstm.projection.weight"],
        arrays["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"].T,
    )


def test_card_says_what_the_hub_reads(tiny_folder: Path) -> None:
    card = ModelCard((tiny_folder / "README.md").read_text(encoding="utf-8"))
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "bilm", "word-embeddings"],
    }
    assert card.text.startswith("\n# our_tiny\n") or card.text.startswith("# our_tiny\n")


def test_card_says_where_the_weights_come_from(tiny_folder: Path) -> None:
    text = (tiny_folder / "README.md").read_text(encoding="utf-8")
    for name in ("options.json", "weights.hdf5"):
        digest = hashlib.sha256((BASE / name).read_bytes()).hexdigest()
        assert f"| `{name}` | `{digest}` |" in text.splitlines()
    difference = largest_difference(tiny_folder, *base_checkpoint())
    assert f"NumPy biLM in float64\non the source's arrays was {difference:.1e}." in text
    assert "Not checked" not in text


def test_card_describes_the_architecture(tiny_folder: Path) -> None:
    lines = (tiny_folder / "README.md").read_text(encoding="utf-8").splitlines()
    _, arrays = base_checkpoint()
    assert f"| parameters | {sum(array.size for array in arrays.values()):,} |" in lines
    assert "| token encoder | 4-d characters, filters 1:4, 2:8, 3:12, 4:8 (relu), 2 highway layers |" in lines
    assert "| biLM | 2 layers, with skip connections |" in lines
    assert "| cell, projection | 32, 8 |" in lines
    assert "| cell clip, projection clip | 3.0, 3.0 |" in lines
    assert "- **Long words.** A word is cut after 48 bytes of UTF-8." in lines


def test_card_of_an_unchecked_word_model_claims_neither_check_nor_characters(
    word_files: AllenNlpFiles, tmp_path: Path
) -> None:
    allennlp_to_folder(word_files, tmp_path / "there", source_name="words")
    text = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    assert "Not checked against the source; `elmo-hf convert --check` does so." in text
    assert "| token encoder | word embedding, 32 words |" in text.splitlines()
    assert "| biLM | 2 layers, with skip connections |" in text.splitlines()
    assert "Long words" not in text


def test_reading_an_hdf5_file_gives_its_arrays_by_their_full_names() -> None:
    assert bits(read_hdf5(BASE / "weights.hdf5")) == bits(read_datasets(BASE / "weights.hdf5"))
