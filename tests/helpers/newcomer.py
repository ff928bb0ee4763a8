"""What a newcomer to language models has, a text, a vocabulary and a config, and pretraining with them."""

import json
from pathlib import Path
from typing import Any

from commands import run
from language_models import words_file
from pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text
from typer.testing import Result

SMALL = ("--rows", 3, "--unroll-steps", 5, "--seed", 4)


def write_files(folder: Path, **fields: Any) -> Path:
    """A text, a held-out text, a vocabulary and a config; returns the folder."""
    write_text(folder / "corpus.txt", make_sentences(40))
    write_text(folder / "held-out.txt", [*make_sentences(8, seed=2), [], ["<UNK>", "never", '"', "<S>"], []])
    (folder / "config.json").write_text(json.dumps(FIELDS | {"lm_dropout": 0.2} | fields))
    words_file(folder, VOCABULARY, "words.txt")
    return folder


def pretrain(work: Path, folder: Path, *options: object) -> Result:
    """Trains for two steps, a new model or an adapted one."""
    return run("pretrain", work / "corpus.txt", "-o", folder, "--max-steps", 2, *SMALL, *options)
