"""Runs a command in a forked process in which something goes wrong.

What is on the disk changes when a process opens a file for writing, or renames or removes one: these are the moments at
which it dies or meets an error. `python -m tests.faults` kills at any time.
"""

import errno
import fcntl
import gc
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

# What a command imports while it runs is imported here, once for all forked processes.
import matplotlib.figure  # noqa: F401
import tensorboard.summary  # noqa: F401
import torch.utils.tensorboard
from tqdm import tqdm

import elmo_hf.conversion.convert
import elmo_hf.language_model.surprisal_table
import elmo_hf.share.export
import elmo_hf.training.corpora
import elmo_hf.training.run
from elmo_hf.cli import app
from elmo_hf.embedding import shards
from elmo_hf.folder.loading import tiny_model

# Processes forked from this one would share tqdm's own lock, which a killed one may hold for ever.
tqdm.set_lock(threading.RLock())
TIME_LIMIT = 120
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
# Characters of a window of `embed`: a few sentences, so that there are several shards.
WINDOW_CHARACTERS = 40
PIPE_BYTES = 1 << 20


class Outcome(NamedTuple):
    """How a command ended: its exit code, or minus the signal that ended it; and what it printed."""

    code: int
    output: str

    @property
    def is_refused(self) -> bool:
        """Whether the command ended with one line of error and no traceback."""
        errors = [line for line in self.output.splitlines() if line.startswith("Error: ")]
        return self.code == 1 and len(errors) == 1 and "Traceback" not in self.output


def at_change(act: Callable[[], object], wanted: int | None = None) -> Callable[[], None]:
    """The process calls a function before a change to its folder, the `wanted` one from 1, or before each."""

    def arrange() -> None:
        folder, numbers = os.getcwd(), count(1)

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            path, _, flags = (*arguments, None, None)[:3] if event in CHANGES else (None, None, None)
            if event == "open" and not (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
            if not isinstance(path, str | os.PathLike) or not os.path.abspath(path).startswith(folder + os.sep):
                return
            if wanted in (next(numbers), None):
                act()

        sys.addaudithook(watch)

    return arrange


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(code: int = errno.EIO) -> None:
    """Raises an error of the system, which the process gets instead of the change."""
    raise OSError(code, os.strerror(code))


def limit_files(size: int) -> Callable[[], None]:
    """No file of the process can grow above a size in bytes, as if the disk were full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Run:
    """A command in a forked process that works in `folder`; starts at once."""

    def __init__(self, arguments: list[str], folder: Path, arrange: Callable[[], object] = lambda: None) -> None:
        """Makes the folder unless it is there; `arrange` is called in the new process before the command."""
        folder.mkdir(exist_ok=True)
        # A pipe has no size that a limit of files could forbid.
        self._output, end = os.pipe()
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self._output, False)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_become, args=(arguments, folder, arrange, end))
        self._process.start()
        os.close(end)

    def finish(self, kill_after: float = TIME_LIMIT, what: int = signal.SIGKILL) -> Outcome:
        """Waits for the end; after so many seconds the process gets a signal."""
        self._process.join(kill_after)
        if self._process.is_alive():
            os.kill(self._process.pid or 0, what)
            self._process.join(TIME_LIMIT)
            self._process.kill()
            self._process.join()
        printed = b""
        with suppress(BlockingIOError):  # a process that it left holds the other end
            printed = os.read(self._output, PIPE_BYTES)
        os.close(self._output)
        return Outcome(self._process.exitcode or 0, printed.decode(errors="replace"))


def warm_up(folder: Path, corpus: Path) -> None:
    """Does once what every forked process would do again: transformers, typer and matplotlib make tables.

    Args:
        folder: for what is written.
        corpus: a text.
    """
    folder.mkdir(exist_ok=True)
    tiny_model()
    app(["vocab", str(corpus), "-o", str(folder / "words.txt")], standalone_mode=False)
    elmo_hf.training.run.draw_curve([{"forward_loss": 1.0, "step": 1}], folder / "curve.png")


def _become(arguments: list[str], folder: Path, arrange: Callable[[], object], output: int) -> None:
    """What a forked process does: it becomes one that runs the command alone."""
    gc.freeze()  # `gc.collect`, which a Trainer calls, would copy all that this process shares with its parent
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    os.chdir(folder)
    # Torch replaces its pool of threads after a fork; if two threads ask for it at once, one may find none.
    torch.set_num_threads(torch.get_num_threads())
    tempfile.tempdir = str(folder.parent)  # what a killed process left there is the system's to remove
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shards.CHUNK_CHARACTERS = shards.SHARD_CHARACTERS = WINDOW_CHARACTERS
    arrange()
    app(arguments)
