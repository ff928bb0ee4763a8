"""What each of two processes does in `test_processes.py`. The model is `FOLDER/model`."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import typer

from elmo_hf.cli import app
from elmo_hf.embedding import shards

WINDOW_CHARACTERS = 59


def run(*arguments: object) -> None:
    """Runs a command and prints its exit code."""
    try:
        app(["embed", *map(str, arguments), "--batch-words", "20"])
    except SystemExit as end:
        typer.echo(f"process {os.environ['RANK']} ended with {end.code}")


def die_at_second_window(embed_window: Any) -> Any:
    calls = []

    def dying(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return embed_window(*arguments)

    return dying


def killed(folder: Path) -> None:
    """The second process dies at its second window; what it writes is `killed.hdf5`."""
    shards.CHUNK_CHARACTERS = WINDOW_CHARACTERS
    shards.embed_window = die_at_second_window(shards.embed_window)
    run(folder / "model", folder / "corpus.txt", "-o", folder / "killed.hdf5")


def killed_shards(folder: Path) -> None:
    """The second process dies at its second window; what it writes is `killed/`."""
    shards.SHARD_CHARACTERS = WINDOW_CHARACTERS
    shards.embed_window = die_at_second_window(shards.embed_window)
    run(folder / "model", folder / "corpus.txt", "-o", f"{folder}/killed/")


def whole(folder: Path) -> None:
    """Embeds into files and shards, also where another run was killed; and makes two errors."""
    shards.CHUNK_CHARACTERS = shards.SHARD_CHARACTERS = WINDOW_CHARACTERS
    model = folder / "model"
    for name in ("whole.hdf5", "resumed.hdf5", "whole/", "resumed/", "whole.hdf5"):
        run(model, folder / "corpus.txt", "-o", f"{folder}/{name}")
    run(model, "-", "-o", folder / "stream.hdf5")
    run(model, folder / "bad.jsonl", "-o", folder / "bad.hdf5")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    whole(Path(sys.argv[1]))
