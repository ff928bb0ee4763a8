"""The workers of a Ray cluster in place of a launcher's processes: each takes the next shard as soon as it is free.

A worker is an actor with a GPU, or with a processor core and one thread where there are no GPUs. Ray starts a lost one
again, on any machine that has room, and repeats its call. The function travels to them with its model; the documents
are read here alone. What is not computed yet stays here, but for one argument a worker.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tqdm import tqdm

from ..extras import require
from .processes import Processes

DEATHS = 3


class RayWorkers(Processes):
    """This process, which deals with the documents, and Ray's workers, which compute."""

    def __init__(self, device: str | None = None) -> None:
        """Asks nothing of a cluster yet.

        Args:
            device: `cpu`, `cuda`, or None: GPUs if the cluster has any.

        Raises:
            ImportError: if Ray is not installed.
            ValueError: if the device is another.
        """
        if device not in (None, "cpu", "cuda"):
            raise ValueError(f"with Ray, the device must be cpu or cuda, found {device!r}.")
        require("ray", "ray")
        super().__init__()
        self._kinds = {"GPU": device != "cpu", "CPU": device in (None, "cpu")}

    @property
    def device(self) -> torch.device:
        """Where the model is before it travels."""
        return torch.device("cpu")

    def map(self, function: Any, arguments: Iterable[tuple], bar: tqdm) -> None:
        """Calls a function for many arguments, in any order.

        Args:
            function: `function.begin(name, device)` is called once a worker, `function(*argument)` gives a number.
            arguments: the first one of each tuple is its number.
            bar: counts the numbers.

        Raises:
            ValueError: if a worker died `DEATHS` times; if the cluster cannot be reached, or has no such device.
            OSError: as the function, whose errors are raised here.
        """
        import ray

        with _cluster():
            found = ray.cluster_resources()
            kind = next((kind for kind, may_be in self._kinds.items() if may_be and found.get(kind, 0) >= 1), None)
            if kind is None:
                raise ValueError(
                    f"Ray's cluster has no {' or '.join(k for k, may_be in self._kinds.items() if may_be)}."
                )
            asked = {"num_cpus": 1, "num_gpus": int(kind == "GPU")}
            actor = ray.remote(**asked, max_restarts=DEATHS - 1, max_task_retries=DEATHS - 1)(_Worker)
            shared = [ray.put(function)], "cuda" if kind == "GPU" else "cpu"
            idle: list[Any] = []
            busy: dict[Any, tuple[Any, int]] = {}

            def finish_one() -> None:
                (done, *_), _ = ray.wait([*busy])
                worker, number = busy.pop(done)
                idle.append(worker)
                bar.update(_result(done, number))

            for argument in arguments:
                if not idle and len(busy) == int(found[kind]):
                    finish_one()
                worker = idle.pop() if idle else actor.remote()
                busy[worker.call.remote(*shared, *argument)] = worker, argument[0]
            worker = None
            while busy:
                idle.clear()  # ends its workers, which makes room for one that waits, such as a lost one
                finish_one()


class _Worker:
    """What runs in a process of Ray's."""

    def __init__(self) -> None:
        self._function: Any = None

    def call(self, shared: list[Any], device: str, *argument: Any) -> int:
        if self._function is None:
            import ray

            function = ray.get(shared[0])
            function.begin(f"a worker on {socket.gethostname()}", device)
            self._function = function
        return self._function(*argument)


def _result(done: Any, number: int) -> int:
    import ray
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        return ray.get(done)
    except RayTaskError as error:
        raise error.cause from None
    except RayActorError as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"a worker of Ray died {DEATHS} times, the last time at shard {number}: {reason} Finished shards stay; "
            "give the same command again once the cause is mended, such as too little memory."
        ) from error
    except RayError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"Ray gave shard {number} up: {reason} Finished shards stay.") from error


@contextmanager
def _cluster() -> Iterator[None]:
    """The cluster that Ray finds, or else a new one on this machine, which ends with the block."""
    import ray

    if ray.is_initialized():
        yield
        return
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        raise ValueError(f"Ray's cluster cannot be reached: {str(error).splitlines()[0]}") from error
    try:
        yield
    finally:
        ray.shutdown()
