"""The real AllenNLP, which needs an old Python, an old torch and so an environment of its own; our end of it, and its.

`AllenNlp` starts this file with the other environment's interpreter, which loads a checkpoint and then embeds batches
when asked; so both can take turns in one run. Ids and vectors travel as files. How to make the environment is told in
`benchmarks/README.md`; this file must run in its Python 3.8.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from worker import Worker, serve


class AllenNlp:
    """AllenNLP's `Elmo` in a process of its own.

    Attributes:
        facts: `load_seconds`; `loaded_mib`, the most that loading held beyond the imports; `versions`.
    """

    def __init__(self, python: Path, checkpoint: Path, threads: int, quick_start: bool) -> None:
        """Starts it.

        Args:
            python: the interpreter of an environment with `allennlp`.
            checkpoint: a folder with `options.json` and `weights.hdf5`.
            threads: of torch.
            quick_start: whether to leave out the random weights that it draws before it reads the checkpoint's, which
                takes it most of the time of loading.
        """
        self._worker = Worker(python, Path(__file__), checkpoint, threads, quick_start)
        self.facts = self._worker.ask(batches=[])

    def embed(self, batches: Sequence[Path], output: Path | None = None) -> float:
        """Embeds batches, each from the zero state, and returns the seconds that it took.

        Args:
            batches: files of character ids `(B, T, C)`, without boundaries.
            output: where to write the mixes `(B, T, 2P)`, as `arr_0` and so on; None: nowhere.
        """
        answer = self._worker.ask(batches=list(map(str, batches)), output=None if output is None else str(output))
        return answer["seconds"]

    def close(self) -> None:
        """Ends it."""
        self._worker.close()


def main(checkpoint: Path, threads: int, quick_start: bool) -> None:
    """The other end."""
    import torch
    from allennlp.modules import lstm_cell_with_projection
    from allennlp.modules.elmo import Elmo

    if quick_start:
        lstm_cell_with_projection.block_orthogonal = lambda *arguments: None
    torch.set_num_threads(threads)
    before = memory("VmRSS")
    start = time.perf_counter()
    elmo = Elmo(str(checkpoint / "options.json"), str(checkpoint / "weights.hdf5"), 1, dropout=0.0).eval()
    facts = {
        "load_seconds": time.perf_counter() - start,
        "loaded_mib": memory("VmHWM") - before,
        "versions": f"Python {sys.version.split()[0]}, torch {torch.__version__}",
    }
    # Else its state would go from batch to batch. It is kept all the same, and must fit a batch's size.
    bilm = elmo._elmo_lstm._elmo_lstm
    bilm.stateful = False

    def embed(batches: list[str], output: str | None = None) -> dict[str, Any]:
        ids = [torch.from_numpy(np.load(path)) for path in batches]
        start = time.perf_counter()
        with torch.no_grad():
            mixes = []
            for batch in ids:
                bilm.reset_states()
                mixes.append(elmo(batch)["elmo_representations"][0])
        seconds = time.perf_counter() - start
        if output is not None:
            np.savez(output, *(mix.numpy() for mix in mixes))
        return {**facts, "seconds": seconds}

    serve(embed)


def memory(field: str) -> float:
    """MiB that this process holds (`VmRSS`), or held at most (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True")
