"""Training runs for tests: a small text, a tiny language model with all sizes different, and its settings."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from language_models import words_file

from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.training.trainer import PretrainingArguments

LETTERS = "abcdefghijklmnopqr"
VOCABULARY = ["<S>", "</S>", "<UNK>", *(letter * (1 + index % 3) for index, letter in enumerate(LETTERS[:14]))]
FIELDS: dict[str, Any] = {
    "max_word_length": 6,
    "char_embedding_size": 3,
    "char_filters": [[1, 4], [2, 5]],
    "num_highway_layers": 1,
    "projection_size": 7,
    "cell_size": 8,
    "num_hidden_layers": 2,
    "cell_clip": 0.6,
    "projection_clip": 0.5,
    "lm_dropout": 0.0,
}
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


def make_tokenizer(folder: Path, vocabulary: list[str] = VOCABULARY) -> ElmoTokenizer:
    return ElmoTokenizer(max_word_length=FIELDS["max_word_length"], words_file=str(words_file(folder, vocabulary)))


def make_corpus(tokenizer: ElmoTokenizer, num_sentences: int = 20, seed: int = 1) -> Corpus:
    return Corpus.from_sentences(make_sentences(num_sentences, seed), tokenizer)


def make_model(**fields: Any) -> ElmoForPreTraining:
    """The same weights at each call; large enough for the cell's clips to act, with mixes that decay would change."""
    torch.manual_seed(5)
    model = ElmoForPreTraining(ElmoConfig(**FIELDS | {"num_softmax_words": len(VOCABULARY)} | fields))
    with torch.no_grad():
        for parameter in model.elmo.bilm.parameters():
            parameter.mul_(3)
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
