"""The processes of one job: those that `torchrun`, `accelerate launch` or `mpirun` started, or one alone.

The first one prints, and does what must be done once; the others get its errors. Data pass through files, so the
machines of a cluster must share a file system. One process alone needs neither accelerate nor a launcher.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch

from ..disk.installed import require

if TYPE_CHECKING:
    from accelerate import PartialState

# How long a process waits for the slowest one, or for the first one to write a large file. If one process fails, the
# launcher ends all of them.
PATIENCE = timedelta(days=30)
# Where MPI's launchers, which `accelerate launch` uses on CPUs, put the number of processes.
MPI_SIZES = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"]


class Processes:
    """This process and those that work with it.

    Attributes:
        index: which process this is, from 0.
        count: how many processes there are.
    """

    def __init__(self, state: "PartialState | None" = None) -> None:
        """None: this process alone."""
        self._state = state
        self.index: int = 0 if state is None else state.process_index
        self.count: int = 1 if state is None else state.num_processes

    @classmethod
    def launched(cls, on_cpu: bool = False) -> "Processes":
        """The processes that a launcher started, or this one alone.

        Args:
            on_cpu: whether they compute on CPUs even if there are GPUs.

        Raises:
            ImportError: if there are several processes, and accelerate is not installed.
        """
        # A cluster may set WORLD_SIZE where nothing was launched; launchers set LOCAL_RANK too.
        names = [*MPI_SIZES, "WORLD_SIZE"] if "LOCAL_RANK" in os.environ else MPI_SIZES
        count = max(int(os.environ.get(name, "1")) for name in names)
        if count == 1:
            return cls()
        require("train", "accelerate")
        from accelerate import PartialState

        # Without `cpu=True`, accelerate does not connect processes that have no GPUs.
        state = PartialState(cpu=on_cpu or not torch.cuda.is_available(), timeout=PATIENCE)
        assert state.num_processes == count
        return cls(state)

    @property
    def is_first(self) -> bool:
        """Whether this process prints."""
        return self.index == 0

    @property
    def device(self) -> torch.device:
        """This process's own GPU if there is one, else the CPU."""
        if self._state is not None:
            return self._state.device
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def wait(self) -> None:
        """Waits until all processes have arrived."""
        if self._state is not None:
            self._state.wait_for_everyone()

    def on_first(self, function: Callable[[], None]) -> None:
        """Calls a function in the first process while the others wait; all get its error."""
        if self._state is None:
            return function()
        from accelerate.utils import broadcast_object_list

        message: list[Exception | None] = [None]
        if self.is_first:
            try:
                function()
            except (ValueError, OSError) as error:
                message = [error]
        (outcome,) = broadcast_object_list(message)
        if outcome is not None:
            raise outcome
