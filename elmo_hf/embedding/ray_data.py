"""Embeds with Ray Data instead of a launcher's processes: each free worker gets the next window and writes its shard.

A worker has a GPU, or a processor core and one thread. Ray restarts a lost worker on any machine that has room, and
repeats its window. The model is sent to the workers. Only this process reads the documents; it puts the text of missing
windows into Ray's object store.
"""

import logging
import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, DataContext, from_arrow_refs
from tqdm import tqdm

from ..folder.saved_json import one_line
from ..folder.store_errors import line_of_store
from .input_documents import SentenceWindow
from .shards import Maker


def in_workers(maker: Maker, windows: Iterable[SentenceWindow], bar: tqdm, device: str | None = None) -> None:
    """Makes the shards of windows on the cluster that Ray finds, or on a new one that ends with this process.

    Args:
        maker: makes a shard.
        windows: the windows whose shards are made.
        bar: counts sentences.
        device: `"cpu"`, `"cuda"`, or None: GPUs if the cluster has any.

    Raises:
        ValueError: if the cluster has no such device, or if a shard cannot be made.
    """
    ray.init(ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    kind = device or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")
    if {"cpu": "CPU", "cuda": "GPU"}.get(kind) not in ray.cluster_resources():  # Ray would wait for such a device
        raise ValueError(f"with Ray, the device must be cpu or cuda, and in its cluster; found {kind!r}.")
    # Each window is its own block, so a worker takes one at a time.
    blocks = [ray.put(pa.table({"window": [pickle.dumps(window)]})) for window in windows]
    if not blocks:
        return
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    DataContext.get_current().enable_progress_bars = False
    made = from_arrow_refs(blocks).map_batches(
        _Worker,
        fn_constructor_args=[[ray.put(maker)], kind],
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
    """Makes shards in a process of Ray."""

    def __init__(self, shared: list[Any], device: str) -> None:
        self._maker: Maker = ray.get(shared[0])
        self._maker.model.to(device)
        self._knows_job = False

    def __call__(self, batch: pa.Table) -> pa.Table:
        window = pickle.loads(batch["window"][0].as_py())  # `in_workers` made this pickle
        error = ""
        try:
            self._make(window)
        except Exception as failure:
            line = line_of_worker(failure)
            if line is None:
                raise
            error = line
        return pa.table({"sentences": [len(window.sentences)], "error": [error]})

    def _make(self, window: SentenceWindow) -> None:
        if not self._knows_job:
            self._maker.shards.check_job()
            self._knows_job = True
        self._maker(window)


def line_of_worker(error: Exception) -> str | None:
    """The line for an error of the input, the disk or a store, which Ray would wrap in pages of text; None for others.

    The line is never empty.
    """
    line = line_of_store(error)
    if line is None and isinstance(error, (OSError, ValueError)):
        return one_line(error)
    return line
