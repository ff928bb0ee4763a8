"""Ray Data in place of a launcher's processes: its workers take windows as they become free, and write the shards.

A worker has a GPU, or a processor core and one thread. Ray starts a lost one again, on any machine that has room, and
repeats its window. The model travels to the workers; the documents are read here alone, and the text of windows that
are to be computed goes to Ray's object store.
"""

import json
import logging
import socket
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from ..disk.installed import require
from .input_documents import Line, Window


class RayCluster:
    """The cluster that Ray finds, or else a new one on this machine, which ends with the process."""

    def __init__(self, device: str | None = None) -> None:
        """Connects to no cluster yet.

        Args:
            device: `"cpu"`, `"cuda"`, or None: GPUs if the cluster has any.

        Raises:
            ImportError: if Ray is not installed.
        """
        require("ray", "ray")
        self._device = device

    def make(self, maker: Any, windows: Iterable[Window], bar: tqdm) -> None:
        """Makes the shards of windows, in any order.

        Args:
            maker: `maker(window)` makes a shard; `maker.begin(process, device)` comes before, once a worker.
            windows: what to make.
            bar: counts sentences.

        Raises:
            ValueError: if the cluster has no such device, or a shard cannot be made.
        """
        import ray
        from ray.data import ActorPoolStrategy, DataContext, from_arrow_refs

        ray.init(ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        kind = self._device or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")
        if {"cpu": "CPU", "cuda": "GPU"}.get(kind) not in ray.cluster_resources():
            raise ValueError(f"with Ray, the device must be cpu or cuda, and in its cluster; found {kind!r}.")
        # Each window is a block of its own, so a worker takes one at a time.
        blocks = [ray.put(pa.table({"window": [json.dumps(window)]})) for window in windows]
        if not blocks:
            return
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        DataContext.get_current().enable_progress_bars = False
        made = from_arrow_refs(blocks).map_batches(
            _Worker,
            fn_args=[[ray.put(maker)], kind],
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(min_size=1, max_size=len(blocks)),
            num_cpus=1,
            num_gpus=int(kind == "cuda"),
        )
        for row in made.iter_rows():
            if row["error"]:
                raise ValueError(row["error"])
            bar.update(row["sentences"])


class _Worker:
    """What runs in a process of Ray's."""

    def __init__(self) -> None:
        self._maker: Any = None

    def __call__(self, batch: pa.Table, shared: list[Any], device: str) -> pa.Table:
        (window,) = batch["window"].to_pylist()
        number, first, lines, sentences = json.loads(window)
        error = ""
        try:
            if self._maker is None:
                import ray

                maker = ray.get(shared[0])
                maker.begin(f"a worker on {socket.gethostname()}", device)
                self._maker = maker
            self._maker(Window(number, first, [Line(*line) for line in lines], sentences))
        except (OSError, ValueError) as failure:  # Ray would wrap it in pages of its own
            error = str(failure)
        return pa.table({"sentences": [len(sentences)], "error": [error]})
