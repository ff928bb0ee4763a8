"""The real AllenNLP, which needs an old Python, old torch and an environment of its own: both ends of a pipe to it.

`AllenNlp` starts this file with the other environment's interpreter, which loads a checkpoint and then embeds the
batches it is sent, one request and one answer a line of JSON. So both can take turns in one run. Ids travel as files.
The environment is described in `benchmarks/README.md`; this file must run in Python 3.8.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


class AllenNlp:
    """AllenNLP's `Elmo` in a process of its own.

    Attributes:
        facts: `load_seconds`, `loaded_mib` (what loading added at most) and `versions`.
    """

    def __init__(self, python: Path, checkpoint: Path, threads: int) -> None:
        """Starts it.

        Args:
            python: the interpreter of an environment with `allennlp`.
            checkpoint: a folder with `options.json` and `weights.hdf5`.
            threads: of torch.
        """
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", __file__, str(checkpoint), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._answer()

    def embed(self, batches: Sequence[Path], output: Path | None = None) -> dict[str, float]:
        """Embeds batches, each from the zero state.

        Args:
            batches: files of character ids `(B, T, C)`, without boundaries.
            output: where to write the mixes `(B, T, 2P)`, by the batches' numbers; None: nowhere.

        Returns:
            `seconds` of all batches, and `peak_mib`, the most the process held so far beyond what it began with.
        """
        assert self._process.stdin is not None
        request = {"batches": [str(path) for path in batches], "output": None if output is None else str(output)}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """Ends it."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"AllenNLP's process ended with status {self._process.wait()}; its message is above.")
        return json.loads(line)


def serve(checkpoint: Path, threads: int) -> None:
    """The other end."""
    import torch
    from allennlp.modules.elmo import Elmo

    torch.set_num_threads(threads)
    before = memory("VmRSS")
    start = time.perf_counter()
    elmo = Elmo(str(checkpoint / "options.json"), str(checkpoint / "weights.hdf5"), 1, dropout=0.0).eval()
    seconds = time.perf_counter() - start
    # Its state goes from batch to batch otherwise.
    elmo._elmo_lstm._elmo_lstm.stateful = False
    facts = {
        "load_seconds": seconds,
        "loaded_mib": memory("VmHWM") - before,
        "versions": f"Python {sys.version.split()[0]}, torch {torch.__version__}",
    }
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        batches = [torch.from_numpy(np.load(path)) for path in request["batches"]]
        start = time.perf_counter()
        with torch.no_grad():
            mixes = [elmo(batch)["elmo_representations"][0] for batch in batches]
        seconds = time.perf_counter() - start
        if request["output"]:
            np.savez(request["output"], *(mix.numpy() for mix in mixes))
        print(json.dumps({"seconds": seconds, "peak_mib": memory("VmHWM") - before}), flush=True)


def memory(field: str) -> float:
    """MiB that this process holds (`VmRSS`), or held at most (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
