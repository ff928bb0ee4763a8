"""The processes of one job: those that `torchrun`, `accelerate launch` or `mpirun` started, or one alone.

They are numbered from 0. The first one speaks, and does what is done once; the others get its results, or its errors.
Between them go only messages. Data go through files, so machines of a cluster must share a file system.

One process alone needs neither accelerate nor a launcher.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from accelerate import PartialState

Result = TypeVar("Result")

# How long a process waits for another: one that is done for the slowest, and all for the first to write a large file.
# The launcher ends them all at once if one fails.
PATIENCE = timedelta(days=30)
# Where the launchers of MPI, which `accelerate launch` uses on processors, say how many there are.
MPI_SIZES = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"]


class Processes:
    """This process and those it works with.

    Attributes:
        index: this one's number.
        number: of all processes.
    """

    def __init__(self, state: "PartialState | None" = None) -> None:
        """One process alone, or those of accelerate's `state`."""
        self._state = state
        self.index: int = 0 if state is None else state.process_index
        self.number: int = 1 if state is None else state.num_processes

    @classmethod
    def launched(cls, on_cpu: bool = False) -> "Processes":
        """Those that a launcher started, or this one alone where none did.

        Args:
            on_cpu: whether they compute on processors though there are GPUs.

        Raises:
            ValueError: if there are several, and accelerate is not installed.
        """
        # A cluster may set WORLD_SIZE for machines on which nothing was launched; launchers set LOCAL_RANK too.
        names = [*MPI_SIZES, "WORLD_SIZE"] if "LOCAL_RANK" in os.environ else MPI_SIZES
        number = max(int(os.environ.get(name, "1")) for name in names)
        if number == 1:
            return cls()
        if find_spec("accelerate") is None:
            raise ValueError(f"{number} processes need accelerate, not installed here: pip install 'elmo-hf[train]'.")
        from accelerate import PartialState

        # Without being told, accelerate takes processes without GPUs for strangers to each other.
        state = PartialState(cpu=on_cpu or not torch.cuda.is_available(), timeout=PATIENCE)
        assert state.num_processes == number
        return cls(state)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that speaks."""
        return self.index == 0

    @property
    def device(self) -> torch.device:
        """Where this process computes: its own GPU, if there is one."""
        if self._state is not None:
            return self._state.device
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def wait(self) -> None:
        """Waits until all processes are here."""
        if self._state is not None:
            self._state.wait_for_everyone()

    def on_first(self, function: Callable[[], Result]) -> Result:
        """Calls a function in the first process while the others wait; all get its result, or its error."""
        if self._state is None:
            return function()
        from accelerate.utils import broadcast_object_list

        message: list[Result | Exception | None] = [None]
        if self.is_first:
            try:
                message = [function()]
            except (ValueError, OSError) as error:
                message = [error]
        (outcome,) = broadcast_object_list(message)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
