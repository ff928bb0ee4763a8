"""What a newcomer to language models has, a text, a vocabulary and a config, and pretraining with them."""

import json
from pathlib import Path
from typing import Any

from commands import output_of
from language_models import words_file
from pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text

SMALL = ("--rows", 3, "--unroll-steps", 5, "--seed", 4)


def write_files(folder: Path, **fields: Any) -> Path:
    """A text, a held-out text, a vocabulary and a config; returns the folder."""
    write_text(folder / "corpus.txt", make_sentences(40))
    write_text(folder / "held-out.txt", [*make_sentences(8, seed=2), [], ["<UNK>", "never", '"', "<S>"], []])
    defaults = {"lm_dropout": 0.2, "softmax": "full"}
    (folder / "config.json").write_text(json.dumps(FIELDS | defaults | fields))
    words_file(folder, VOCABULARY, "words.txt")
    return folder


def files_of(work: Path) -> tuple[object, ...]:
    return "--vocabulary", work / "words.txt", "--config", work / "config.json"


def pretrain(work: Path, folder: Path, *options: object) -> str:
    """Trains for two steps, a new model or an adapted one; returns what the command printed."""
    return output_of("pretrain", work / "corpus.txt", "-o", folder, "--max-steps", 2, *SMALL, *options)
