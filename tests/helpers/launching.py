"""Two processes of one program on this machine: forked, with the environment that `torchrun` gives."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch.distributed import TCPStore

from tests.helpers.fresh_process import python_path, run_forked

SECONDS = 240
LOOPBACK = {"linux": "lo", "darwin": "lo0"}


def fork_two(module: str, folder: Path, function: str = "main") -> str:
    """Calls `function(folder)` of a module of this folder in two processes; returns their output.

    As with `torchrun`, the store by which they meet is the launcher's: its port is never another program's, and it
    stays until both have ended. The function must not destroy the group of the processes. Where a model under DDP holds
    the group last, torch waits for the group's threads while it holds Python's lock, and hangs if one of them wants it.
    """
    code = (
        "import os; os.dup2(1, 2); from pathlib import Path; "
        f"from tests.helpers import {module}; {module}.{function}(Path.cwd())"
    )
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    given |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    given |= _environment() | {"PYTHONPATH": python_path(Path(__file__).parents[2])}
    ranks = [given | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(lambda environment: run_forked(code, [], folder, environment, SECONDS), ranks))


def _environment() -> dict[str, str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if sys.platform in LOOPBACK:
        environment["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    return environment
