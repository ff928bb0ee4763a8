"""Language models for tests: bilm-tf's own, in its save directories, and random unusual ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from elmo_hf.conversion.contract import NamedFiles
from tests.helpers.checkpoints import (
    EDGES,
    SAVES,
    TINY_LM,
    VOCABULARY,
    Arrays,
    Options,
    random_checkpoint,
    random_options,
    shared,
    write_checkpoint,
    write_datasets,
)

WORDS = ["<S>", "</S>", "<UNK>", "the", "a", "ferry", "the ", "naïve", "日本", "x", "y"]
LANGUAGE_MODEL_OPTIONS = {
    "n_tokens_vocab": len(WORDS),
    "dropout": 0.25,
    "sample_softmax": True,
    "n_negative_samples_batch": 5,
    "share_embedding_softmax": False,
}


def tiny_files() -> NamedFiles:
    return NamedFiles(TINY_LM / "options.json", TINY_LM / "model.ckpt-1.index", TINY_LM / "vocab.txt")


def words_file(folder: Path, words: list[str], name: str = "vocab.txt") -> Path:
    (folder / name).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder / name


def random_language_model(seed: int, folder: Path, **changes: Any) -> tuple[NamedFiles, Options, Arrays]:
    """An odd character model with a softmax of its own file over `WORDS`, in files."""
    options, projections = random_options(seed)
    options |= LANGUAGE_MODEL_OPTIONS | changes
    arrays = random_checkpoint(options, seed, **projections)
    generator = np.random.default_rng(100 + seed)
    softmax = {
        "softmax/W": generator.normal(size=(len(WORDS), options["lstm"]["projection_dim"])).astype(np.float32),
        "softmax/b": generator.normal(size=len(WORDS)).astype(np.float32),
    }
    files = write_checkpoint(folder, options, arrays)
    softmax_file = write_datasets(folder / "softmax.hdf5", softmax)
    return replace(files, softmax=softmax_file, vocabulary=words_file(folder, WORDS)), options, arrays | softmax


def state_of(folder: Path) -> Arrays:
    state: Arrays = {}
    for path in folder.glob("*.safetensors"):
        state |= load_file(path)
    return state


def save_directory(name: str, work: Path) -> NamedFiles:
    """One of `bilm_tf_edges` as a save directory, with a vocabulary of 32 words."""
    folder = SAVES / name if (SAVES / name).is_dir() else shared("fixtures", "bilm_tf_edges", name)
    return NamedFiles(folder / "options.json", folder / "model.ckpt-6.index", words_file(work, VOCABULARY))


def word_files(work: Path) -> NamedFiles:
    """`bi_word_2` with a vocabulary of its 32 words."""
    folder = EDGES / "bi_word_2"
    return NamedFiles(folder / "options.json", folder / "w.hdf5", words_file(work, VOCABULARY))
