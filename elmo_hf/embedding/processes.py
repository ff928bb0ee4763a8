"""The processes of one job, started by `torchrun`, `accelerate launch` or `mpirun`, or a single process.

The first process prints and does the work that must be done once; if a process fails, the launcher ends all. Processes
exchange files, so machines must share a file system. A single process needs neither accelerate nor a launcher.
"""

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from accelerate import PartialState

# How long a process waits for the slowest process, or for the first process to write a large file.
PATIENCE = timedelta(days=30)
# Variables in which MPI's launchers, which `accelerate launch` uses on CPUs, put the number of processes.
MPI_SIZES = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"]


class Alone:
    """A single process, with the attributes of accelerate's `PartialState` that this package uses."""

    process_index, num_processes, is_main_process = 0, 1, True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def wait_for_everyone(self) -> None:
        """Does nothing."""


def launched(on_cpu: bool = False) -> "Alone | PartialState":
    """The processes that a launcher started, or this one; with `on_cpu` they use CPUs even if there are GPUs.

    Raises:
        ImportError: if there are several processes, and accelerate is not installed.
    """
    # A cluster may set WORLD_SIZE where nothing was launched; launchers set LOCAL_RANK too.
    names = [*MPI_SIZES, "WORLD_SIZE"] if "LOCAL_RANK" in os.environ else MPI_SIZES
    if max(int(os.environ.get(name, "1")) for name in names) == 1:
        return Alone()
    from accelerate import PartialState

    # Without `cpu=True`, accelerate does not connect processes that have no GPUs.
    return PartialState(cpu=on_cpu or not torch.cuda.is_available(), timeout=PATIENCE)
