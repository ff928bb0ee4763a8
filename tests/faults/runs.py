"""Runs a command in a forked process in which something goes wrong.

A process dies at the n-th time that it opens a file for writing in its folder, or renames or removes one there: that is
when what is on the disk changes, so these are the moments that matter. `python -m tests.faults` kills at any time.
"""

import contextlib
import errno
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a command imports while it runs is imported here, once for all forked processes.
import matplotlib.figure  # noqa: F401
import tensorboard.summary  # noqa: F401
import torch.utils.tensorboard
from tqdm import tqdm

import elmo_hf.conversion.convert
import elmo_hf.language_model.surprisal_table
import elmo_hf.share.export
import elmo_hf.training.corpora
import elmo_hf.training.run  # noqa: F401
from elmo_hf.cli import app
from elmo_hf.embedding import shards

# Processes forked from this one would share tqdm's own lock, which a killed one may hold for ever.
tqdm.set_lock(threading.RLock())
TIME_LIMIT = 120
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
# Characters of a window of `embed`: a few sentences, so that there are several shards.
WINDOW_CHARACTERS = 40


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, or minus the signal that ended it; and what it printed."""

    code: int
    output: str

    @property
    def is_refused(self) -> bool:
        """Whether the command ended with one line of error and no traceback."""
        errors = [line for line in self.output.splitlines() if line.startswith("Error: ")]
        return self.code == 1 and len(errors) == 1 and "Traceback" not in self.output


def at_change(action: Callable[[str], None]) -> None:
    """Calls a function, with the path, before every change of this process to its folder."""
    folder = os.getcwd()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        path, _, flags = (*arguments, None, None)[:3] if event in CHANGES else (None, None, None)
        if event == "open" and not (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(folder + os.sep):
            action(os.fspath(path))

    sys.addaudithook(watch)


def die_at_change(number: int) -> Callable[[], None]:
    """The process is killed before its change of this number, counted from 1."""
    left = [number]

    def die(path: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: at_change(die)


def count_changes_into(file: Path) -> Callable[[], None]:
    """The process adds a byte to a file for each of its changes."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda: at_change(lambda path: os.write(descriptor, b".") and None)


def deny_changes() -> None:
    """The process may not write in its folder."""

    def deny(path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    at_change(deny)


def limit_files(size: int) -> Callable[[], None]:
    """No file of the process can grow above a size in bytes, as if the disk were full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Run:
    """A command in a forked process that works in `folder`; starts at once."""

    def __init__(self, arguments: list[str], folder: Path, arrange: Callable[[], object] = lambda: None) -> None:
        """`arrange` is called in the new process before the command."""
        # A pipe has no size that a limit of files could forbid.
        self._output, end = os.pipe()
        os.set_blocking(self._output, False)
        self._process = os.fork()
        if self._process == 0:
            try:
                _become(arguments, folder, arrange, end)
            finally:
                os._exit(71)  # whatever happens: the process never goes on as a second test run
        os.close(end)

    def finish(self, kill_after: float = TIME_LIMIT, what: int = signal.SIGKILL) -> Outcome:
        """Waits for the end; after so many seconds the process gets a signal."""
        begin, printed = time.monotonic(), b""
        while True:
            ended, status = os.waitpid(self._process, os.WNOHANG)
            with contextlib.suppress(BlockingIOError):
                while block := os.read(self._output, 1 << 16):
                    printed += block
            if ended:
                os.close(self._output)
                return Outcome(os.waitstatus_to_exitcode(status), printed.decode(errors="replace"))
            if time.monotonic() - begin > kill_after:
                os.kill(self._process, what)
                kill_after, what = TIME_LIMIT, signal.SIGKILL
            time.sleep(0.002)


def run(arguments: list[str], folder: Path, arrange: Callable[[], object] = lambda: None) -> Outcome:
    """Runs a command in a forked process that works in `folder`."""
    return Run(arguments, folder, arrange).finish()


def _become(arguments: list[str], folder: Path, arrange: Callable[[], object], output: int) -> None:
    """What a forked process does: it becomes one that runs the command alone."""
    code = 70
    try:
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
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
