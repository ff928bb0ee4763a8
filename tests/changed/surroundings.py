"""In what a command is given: its arguments, the working folder, the clock and the number of processes."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from tests.faults.runs import Outcome, Run

from . import programs, shelf
from .elsewhere import go_online, publish_toy
from .things import Thing


class Surroundings(NamedTuple):
    """A command in a working folder, under a clock, in some processes.

    Attributes:
        command: its arguments, with paths from the folder of the case.
        place: the working folder, "." or a folder in that of the case.
        seconds: by how much the clock is wrong.
        num_processes: how many processes run the command together, as `torchrun` starts them.
    """

    command: list[str]
    place: str = "."
    seconds: float = 0.0
    num_processes: int = 1

    @classmethod
    def of(cls, thing: Thing) -> Self:
        """Those in which the command of a thing is given first."""
        return cls(thing.command.split(), thing.place)

    def run(self, folder: Path, arrange: Callable[[], object] = lambda: None) -> Outcome:
        """Gives the command in the folder of a case; `arrange` is called before it.

        Returns:
            how it ended; of several processes, how the first one ended that failed.
        """
        command = self.command
        if self.place != ".":
            command = [re.sub("^(in|work)/|(?<=://)(?=in/|work)", r"../\g<0>", argument) for argument in command]
        port = free_port()
        place = folder / self.place
        runs = [Run(command, place, partial(self._prepare, folder, rank, port, arrange)) for rank in self.ranks]
        outcomes = [run.finish() for run in runs]
        failed = [outcome for outcome in outcomes if outcome.code != 0]
        return (failed or outcomes)[0]

    @property
    def ranks(self) -> range:
        """The numbers of the processes."""
        return range(self.num_processes)

    def _prepare(self, folder: Path, rank: int, port: int, arrange: Callable[[], object]) -> None:
        """What each process does before the command."""
        os.fsync = lambda number: None  # what a killed process wrote stays, so no process waits for the disk
        shelf.register()
        programs.register()
        publish_toy(folder)
        if self.command[0] in ("push", "publish"):
            go_online(folder)
        if self.num_processes > 1:
            size = str(self.num_processes)
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if self.seconds:
            real_time = time.time
            time.time = lambda: real_time() + self.seconds
        arrange()


def interrupt() -> None:
    """What Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
