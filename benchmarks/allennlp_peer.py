"""The real AllenNLP in another environment, because it needs an old Python and an old torch; both ends are here.

`AllenNlp` starts this file with the other environment's interpreter, which loads a checkpoint and embeds batches on
request, so both can take turns in one run. Ids and vectors are exchanged as files. `benchmarks/README.md` shows how to
make the environment; this file must run in its Python 3.8.
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
    """AllenNLP's `Elmo` in another process.

    Attributes:
        facts: `load_seconds`; `loaded_mib`, the peak memory of loading beyond the imports; `versions`.
    """

    def __init__(self, python: Path, checkpoint: Path, threads: int, quick_start: bool) -> None:
        """Starts the process.

        Args:
            python: the interpreter of an environment with `allennlp`.
            checkpoint: a folder with `options.json` and `weights.hdf5`.
            threads: count of torch's threads.
            quick_start: whether to skip the random weights that AllenNLP draws before it reads the checkpoint, which
                take most of its loading time.
        """
        self._worker = Worker(python, Path(__file__), checkpoint, threads, quick_start)
        self.facts = self._worker.ask(batches=[])

    def embed(self, batches: Sequence[Path], output: Path | None = None) -> float:
        """Embeds batches, each from the zero state, and returns the seconds.

        Args:
            batches: files of character ids `(B, T, C)`, without boundaries.
            output: file for the mixes `(B, T, 2P)`, as `arr_0` and so on; None writes nothing.
        """
        answer = self._worker.ask(batches=list(map(str, batches)), output=None if output is None else str(output))
        return answer["seconds"]

    def close(self) -> None:
        """Ends the process."""
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
    # Otherwise the state is carried from batch to batch. AllenNLP keeps it even so, and it must fit the batch size.
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
    """MiB of this process: current (`VmRSS`) or peak (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True")
