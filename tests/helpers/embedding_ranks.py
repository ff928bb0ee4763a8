"""What each of two processes does in `test_processes.py`. The model is `FOLDER/model`."""

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from elmo_hf.cli import app
from elmo_hf.embedding import shards

WINDOW_CHARACTERS = 59


def run(folder: Path, output: object, source: object = "corpus.txt") -> None:
    """Embeds the corpus, or standard input, in windows of a few sentences."""
    shards.CHUNK_CHARACTERS = shards.SHARD_CHARACTERS = WINDOW_CHARACTERS
    source = source if source == "-" else folder / str(source)
    app(
        ["embed", f"{folder}/model", str(source), "-o", f"{folder}/{output}", "--batch-words", "20"],
        standalone_mode=False,
    )


def killed(folder: Path, output: str = "killed.hdf5") -> None:
    """The second process dies at its second window."""
    embed_window, calls = shards.embed_window, count(1)

    def dying(*arguments: Any) -> Any:
        if next(calls) == 2 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return embed_window(*arguments)

    shards.embed_window = dying
    run(folder, output)


def killed_shards(folder: Path) -> None:
    killed(folder, "killed/")


def whole(folder: Path) -> None:
    """Embeds into files and shards, also where another run was killed."""
    for name in ("whole.hdf5", "resumed.hdf5", "whole/", "resumed/"):
        run(folder, name)
    os.dup2(os.open(folder / "corpus.txt", os.O_RDONLY), sys.stdin.fileno())
    run(folder, "stream.hdf5", "-")
