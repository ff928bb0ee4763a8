"""Two processes of one script, started as `torchrun` does, on this machine alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

LAUNCH = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--local-addr", "127.0.0.1")
LAUNCH += ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
TIME_LIMIT = 900


def launch(script: str, *arguments: object, stdin: Path = Path(os.devnull)) -> tuple[int, str]:
    """Runs a script of this folder in two processes; returns the exit code, and all that they said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    if sys.platform in LOOPBACK:
        environment["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    path = Path(__file__).with_name(script)
    with stdin.open("rb") as file:
        process = subprocess.Popen(
            [sys.executable, *LAUNCH, str(path), *map(str, arguments)],
            env=environment,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIME_LIMIT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output
