"""Saved folders that ask for much memory or time, each with the error that must answer it."""

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archives import write_files
from tiny_lm import tiny_lm, tiny_tokenizer_of

from elmo_hf import ElmoForPreTraining
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.folder.saved_config import MOST, MOST_NUMBER

MILLION = 1_000_000


@functools.cache
def saved() -> dict[str, bytes]:
    """The files of a language model with nothing wrong in them."""
    model = tiny_lm()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = tiny_tokenizer_of(model, Path(folder))
        model.save_pretrained(folder, max_shard_size="4KB")
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def edited(file: str, **fields: Any) -> Callable[[Path], Path]:
    """A folder with fields of a JSON file replaced."""

    def make(folder: Path) -> Path:
        path = write_files(folder, saved()) / file
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
        return folder

    return make


def holding(file: str, head: bytes, size: int = 0) -> Callable[[Path], Path]:
    """A folder with a file replaced: by `head`, then zeros that take no room on the disk, up to `size` bytes."""

    def make(folder: Path) -> Path:
        path = write_files(folder, saved()) / file
        path.write_bytes(head)
        os.truncate(path, max(size, len(head)))
        return folder

    return make


def with_header(header: bytes) -> Callable[[Path], Path]:
    """A folder whose weights begin with a header of a safetensors file."""
    return holding("model-00001-of-00005.safetensors", len(header).to_bytes(8, "little") + header)


def open_folder(folder: Path) -> None:
    """Opens all of a folder, as a command does."""
    load_tokenizer(folder)
    load_complete(folder, ElmoForPreTraining)


LARGE = "must be a file of at most"
EMPTY_TENSORS = {f"t{index}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for index in range(60_000)}
SIZES = ("vocab_size", "char_embedding_size", "projection_size", "cell_size", "num_softmax_words")
# Fields that may have their largest value, because no weight of this model has their size.
HARMLESS = dict.fromkeys(
    ("max_word_length", "num_output_representations", "task_hidden_size", "num_softmax_samples", "num_labels"),
    "no error",
)
HOSTILE_FOLDERS: dict[str, tuple[Callable[[Path], Path], str]] = {
    **{
        f"config.json: {name}": (edited("config.json", **{name: most}), HARMLESS.get(name, "/source"))
        for name, most in (dict.fromkeys(SIZES, MOST_NUMBER) | MOST).items()
    },
    "config.json: layers": (edited("config.json", num_hidden_layers=10**5), "`num_hidden_layers`"),
    "config.json: labels": (edited("config.json", num_labels=10**9), "`num_labels`"),
    "config.json: names": (edited("config.json", id2label={n: "x" for n in range(200_000)}), "`id2label`"),
    "config.json: filters": (edited("config.json", char_filters=[[1, 2**14]] * 100), "config.json's shape"),
    "config.json: deep": (holding("config.json", b"[" * MILLION), "config.json is damaged"),
    "config.json: large": (holding("config.json", b"{", 1 << 32), LARGE),
    "config.json: wide": (holding("config.json", b'{"a": [' + b"{}," * MILLION + b"1]}"), "/source"),
    "index: large": (holding("model.safetensors.index.json", b"{", 1 << 32), LARGE),
    "index: names": (
        edited("model.safetensors.index.json", weight_map={f"w{n}": "model-9.safetensors" for n in range(10**5)}),
        "model-9.safetensors",
    ),
    "weights: header": (holding("model-00001-of-00005.safetensors", b"\xff" * 7 + b"\x00"), "header too"),
    "weights: junk": (with_header(b"{" * (1 << 22)), "is damaged"),
    "weights: tensors": (with_header(json.dumps(EMPTY_TENSORS).encode()), "would be random"),
    "tokenizer.json: deep": (holding("tokenizer.json", b'{"a":' * MILLION), "tokenizer.json is damaged"),
    "tokenizer.json: large": (holding("tokenizer.json", b"{", 1 << 34), LARGE),
    "tokenizer_config.json: length": (
        edited("tokenizer_config.json", max_word_length=50 * MILLION),
        "`max_word_length` must be at most",
    ),
    "tokenizer_config.json: large": (holding("tokenizer_config.json", b"{", 1 << 32), LARGE),
    "words.txt: one line": (holding("words.txt", b"x", 1 << 31), "words.txt"),
}
