"""CUDA graphs for machines without CUDA: a graph is a list of what was launched while it was captured.

Work must launch by `FakeGraphs.launch`, which does it, or records it where a capture is under way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class FakeGraph:
    """What `torch.cuda.CUDAGraph` is here."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []

    def replay(self) -> None:
        for launch in self.launches:
            launch()


class FakeGraphs:
    """Puts itself in the place of torch's functions; counts what was done and what was captured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capturing: FakeGraph | None = None
        self.num_done = self.num_captured = 0
        self.can_capture = True
        stream = SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None)
        for name, value in {
            "CUDAGraph": FakeGraph,
            "graph": self.capture,
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": nullcontext,
            "graph_pool_handle": object,
            "is_current_stream_capturing": lambda: self.capturing is not None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @contextmanager
    def capture(self, graph: FakeGraph, **options: Any) -> Iterator[None]:
        if not self.can_capture:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.capturing = graph
        try:
            yield
        finally:
            self.capturing = None

    def launch(self, work: Callable[[], None]) -> None:
        if self.capturing is None:
            self.num_done += 1
            work()
        else:
            self.num_captured += 1
            self.capturing.launches.append(work)
