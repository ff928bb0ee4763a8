"""Training runs for tests: a small text, a tiny language model with all sizes different, and its settings."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_inputs import TINY
from tiny_lm import tiny_lm, tokenizer_with

from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.training.trainer import PretrainingArguments

LETTERS = "abcdefghijklmnopqr"
VOCABULARY = ["<S>", "</S>", "<UNK>", *(letter * (1 + index % 3) for index, letter in enumerate(LETTERS[:14]))]
FIELDS: dict[str, Any] = TINY | {"lm_dropout": 0.0}
ROWS, STEPS = 3, 5


def make_sentences(num_sentences: int, seed: int = 1) -> list[list[str]]:
    """Sentences of 1 to 9 words, one of them longer than any window, some words outside the vocabulary."""
    generator = np.random.default_rng(seed)
    words = [letter * (1 + index % 3) for index, letter in enumerate(LETTERS)]
    lengths = [23, *generator.integers(1, 10, size=num_sentences - 1).tolist()]
    return [[words[k] for k in generator.integers(0, len(words), size=length)] for length in lengths]


def write_text(path: Path, sentences: list[list[str]]) -> Path:
    path.write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
    return path


def make_corpus(num_sentences: int = 20, seed: int = 1, vocabulary: list[str] = VOCABULARY) -> Corpus:
    """By default with 137 predictions in each direction: 9 windows of 3 rows of 5 steps a pass."""
    return Corpus.from_sentences(make_sentences(num_sentences, seed), tokenizer_with(tuple(vocabulary)))


def make_model(**fields: Any) -> ElmoForPreTraining:
    """The same weights at each call: the softmax is a new one, and decay would change the mixes."""
    torch.manual_seed(5)
    model = tiny_lm(**{"lm_dropout": 0.0} | fields)
    model.softmax.init_parameters()
    for mix in model.elmo.scalar_mixes:
        mix.set_weights([0.2, 0.5, 0.3], scale=1.5)
    return model


def make_arguments(folder: Path, **settings: Any) -> PretrainingArguments:
    """Three rows, windows of five steps, no resets, and no files except those asked for."""
    defaults = {
        "per_device_train_batch_size": ROWS,
        "unroll_steps": STEPS,
        "reset_probability": 0.0,
        "seed": 11,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return PretrainingArguments(str(folder), **defaults | settings)
