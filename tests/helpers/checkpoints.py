"""Checkpoints for tests: golden cases, third-party ones if present, and small random ones."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import FolderSettings, convert_source, folder_to_allennlp
from elmo_hf.conversion.options import make_config
from elmo_hf.conversion.readers.bilm_tf import read_variables
from elmo_hf.conversion.readers.hdf5_layout import CHAR_CNN_OPTIONS, LSTM_OPTIONS, allennlp_rules
from tests.helpers.fresh_process import run_forked
from tests.helpers.loopback_hub import LoopbackHub

Options = dict[str, Any]
Arrays = dict[str, np.ndarray]

FIXTURES = Path(__file__).parents[1] / "fixtures"
BASE = FIXTURES / "base_2l_relu"
EDGES = FIXTURES / "bilm_tf_edges"
TINY_LM = FIXTURES / "bilm_tf_lm_tiny"
SAVES = FIXTURES / "bilm_tf_saves"
# 32 words, as many as `bi_word_2` has rows.
VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "ferry"] + [f"word{number}" for number in range(6, 33)]
CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
SHARED = Path(__file__).parents[3] / "shared"

# Each carries real AllenNLP numbers; see fixtures/README.md.
GOLDEN_CASES = [
    "base_2l_relu",
    "tight_clip_2l_tanh",
    "one_layer_n261_batch1",
    "three_layer_nohighway_noclip",
    "four_layer",
    "char_edges",
    "noskip_2l_long",
    "ext_max_chars_24",
]


def shared(*parts: str) -> Path:
    """A path below ../shared; skips the test if it does not exist."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of this project")
    return path


def run_python(code: str, folder: Path, *arguments: object) -> str:
    """Runs a program in a process of its own, offline and with a code cache of its own; returns what it printed."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(folder / "modules")}
    return run_forked(code, [*map(str, arguments)], folder, environment)


def run_online(code: str, hub: LoopbackHub, home: Path, *arguments: object, **variables: str) -> str:
    """Runs a program in a process of its own, whose cache is `home`; returns what it printed."""
    environment = os.environ | hub.environment() | {"HF_HOME": str(home), "OMP_NUM_THREADS": "1"} | variables
    return run_forked(code, [*map(str, arguments)], Path.cwd(), environment)


def read_datasets(path: Path) -> Arrays:
    """Every dataset of an hdf5 file, read without the package; one that was never written raises ValueError."""
    datasets: Arrays = {}

    def read(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            if item.size and not item.id.get_storage_size():
                raise ValueError(f"{name} was never written")
            datasets[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(read)
    return datasets


def write_datasets(path: Path, arrays: Arrays) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def write_checkpoint(folder: Path, options: Options, arrays: Arrays) -> NamedFiles:
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    return NamedFiles(folder / "options.json", write_datasets(folder / "weights.hdf5", arrays))


def allennlp_to_folder(files: NamedFiles | Path, destination: Path, **writing: Any) -> float | None:
    if isinstance(files, Path):
        return convert_source(files, destination, NamedFiles(), FolderSettings(**writing))
    return convert_source(files.weights, destination, replace(files, weights=None), FolderSettings(**writing))


def base_checkpoint() -> tuple[Options, Arrays]:
    return json.loads((BASE / "options.json").read_text(encoding="utf-8")), read_datasets(BASE / "weights.hdf5")


def bits(arrays: Arrays) -> dict[str, tuple[np.dtype, tuple[int, ...], bytes]]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def arrays_of(files: NamedFiles | Path) -> Arrays:
    paths = sorted(files.glob("*.hdf5")) if isinstance(files, Path) else [files.weights, files.softmax]
    arrays: Arrays = {}
    for path in filter(None, paths):
        arrays |= read_datasets(path) if path.suffix == ".hdf5" else read_variables(path.with_suffix(""))
    return arrays


def converted(source: Path, destination: Path, word_splitter: str | None = None, **files: Path) -> list[str]:
    """Converts a SOURCE to a model that has the witness's numbers; returns what is told."""
    told: list[str] = []
    settings = FolderSettings(word_splitter, check=True)
    assert convert_source(source, destination, NamedFiles(**files), settings, told.append) < 1e-5
    return told


def outputs_of(folder: Path, sentences: list[list[str]]) -> Any:
    """What a folder's model computes for sentences of words."""
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder).eval()
    inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


def digested(folder: Path) -> list[str]:
    """The files whose checksums are in a folder's card."""
    return re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def options_of(folder: Path) -> Options:
    return json.loads((folder / "options.json").read_text(encoding="utf-8"))


def assert_returns(files: NamedFiles | Path, work: Path) -> list[str]:
    """Converts there, back and there again; returns the notes of the way back.

    The model is the witness's if it reads characters; dtypes, shapes and bytes of all arrays are those of the source;
    the second folder is the first.
    """
    reads_characters = "char_cnn" in options_of(files if isinstance(files, Path) else files.options.parent)
    difference = allennlp_to_folder(files, work / "there", check=reads_characters)
    assert difference < 1e-5 if reads_characters else difference is None
    notes = folder_to_allennlp(work / "there", work / "back")
    # AllenNLP's names for two directions, bilm-tf's own for one.
    begin = "rnn/MultiRNNCell/Cell0/" if options_of(work / "back")["lstm"]["n_layers"] == 1 else "rnn/"
    expected = {
        name.replace("/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/").replace(begin, "rnn/"): array
        for name, array in arrays_of(files).items()
    }
    assert bits(arrays_of(work / "back")) == bits(expected)
    allennlp_to_folder(work / "back", work / "again")
    for path in [*(work / "there").glob("*.safetensors"), work / "there" / "config.json"]:
        assert (work / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    return notes


def random_checkpoint(options: Options, seed: int, **projections: bool) -> Arrays:
    """Random arrays with bilm-tf's names and the options' shapes, with or without each of the two projections."""
    config = make_config(options, LSTM_OPTIONS + CHAR_CNN_OPTIONS, "options", vocab_size=262, **projections)
    generator = np.random.default_rng(seed)
    return {rule.source: generator.normal(0, 0.5, rule.shape).astype(np.float32) for rule in allennlp_rules(config)}


def random_options(seed: int) -> tuple[Options, dict[str, bool]]:
    """Options of an unusual architecture, and whether its cell and its CNN have projections."""
    generator = np.random.default_rng(1000 + seed)
    max_characters = int(generator.integers(7, 61))
    size = int(generator.integers(3, 12))
    projections = {"cell_projection": seed % 4 != 1, "char_projection": seed % 5 != 2}
    filters = [[int(generator.integers(1, 8)), int(generator.integers(1, 7))] for _ in range(generator.integers(1, 4))]
    options = {
        "lstm": {
            "projection_dim": size,
            "dim": int(generator.integers(4, 15)) if projections["cell_projection"] else size,
            "n_layers": 1 + seed % 3,
            "cell_clip": (None, 0, 0.4)[seed // 2 % 3],
            "proj_clip": (0.3, None, 0)[seed % 3],
            "use_skip_connections": seed % 2 == 0,
        },
        "char_cnn": {
            "embedding": {"dim": int(generator.integers(2, 7))},
            "filters": filters if projections["char_projection"] else [[3, 1], [1, size - 1]],
            "n_highway": seed // 3 % 3,
            "activation": ("relu", "tanh")[seed // 2 % 2],
            "max_characters_per_token": max_characters,
            "n_characters": 262,
        },
    }
    return options, projections
