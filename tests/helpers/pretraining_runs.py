"""A small text, a tiny language model, its settings; what a newcomer has, and pretraining with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo_hf import ElmoForPreTraining
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.training.trainer import PretrainingArguments
from tests.helpers.commands import output_of
from tests.helpers.language_models import words_file
from tests.helpers.tiny_inputs import TINY
from tests.helpers.tiny_lm import tiny_lm, tokenizer_with

LETTERS = "abcdefghijklmnopqr"
WORDS = [letter * (1 + index % 3) for index, letter in enumerate(LETTERS)]
# Words of the softmax that no text of `make_sentences` has.
NEVER_READ = ["s", "tt"]
VOCABULARY = ["<S>", "</S>", "<UNK>", *NEVER_READ, *WORDS[:12]]
# The longer a model with the full softmax trains, the worse it predicts this text.
UNEXPECTED = [NEVER_READ * 4] * 6
FIELDS: dict[str, Any] = TINY | {"lm_dropout": 0.0}
ROWS, STEPS = 3, 5


def make_sentences(num_sentences: int, seed: int = 1) -> list[list[str]]:
    """Sentences of 1 to 9 words, one of them longer than any window, some words outside the vocabulary."""
    generator = np.random.default_rng(seed)
    lengths = [23, *generator.integers(1, 10, size=num_sentences - 1).tolist()]
    return [[WORDS[k] for k in generator.integers(0, len(WORDS), size=length)] for length in lengths]


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


SMALL = {"--max-steps": 2, "--rows": 3, "--unroll-steps": 5, "--seed": 4}


def write_files(folder: Path, **fields: Any) -> Path:
    """A text, a held-out text and an unexpected one, a vocabulary and a config; returns the folder."""
    write_text(folder / "corpus.txt", make_sentences(40))
    odd = [[], ["<UNK>", "never", '"', "<S>"], []]
    write_text(folder / "held-out.txt", [*make_sentences(8, seed=2), *odd])
    write_text(folder / "unexpected.txt", [*UNEXPECTED, *odd])
    defaults = {"lm_dropout": 0.2, "softmax": "full"}
    (folder / "config.json").write_text(json.dumps(FIELDS | defaults | fields))
    words_file(folder, VOCABULARY, "words.txt")
    return folder


def files_of(work: Path) -> tuple[object, ...]:
    return "--vocabulary", work / "words.txt", "--config", work / "config.json"


def pretrain(work: Path, folder: Path, *options: object) -> str:
    """Trains for two steps, a new model or an adapted one; returns what the command printed.

    Options take the place of `SMALL`, because the command refuses an option that is given twice.
    """
    defaults: list[object] = []
    for name, value in SMALL.items():
        if name not in options:
            defaults += [name, value]
    return output_of("pretrain", work / "corpus.txt", "-o", folder, *defaults, *options)
