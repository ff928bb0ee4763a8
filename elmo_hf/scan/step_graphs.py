"""Repeated work as one CUDA graph, because a GPU does a step faster than Python launches it.

Each piece of work has a key and always uses the same memory, whose addresses are in the graph. It must give the same
result when done twice, allocate nothing and wait for nothing. A key seen for the first time runs plainly, because a
single use is not worth a capture. The second time the work is captured, and replayed from then on. A graph is used
only if its first replay gives the plain result.

Inside a capture by the caller, work runs plainly and becomes part of that capture. After one failed capture nothing is
captured again.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

logger = logging.get_logger(__name__)

MAX_GRAPHS = 64


class StepGraphs:
    """Graphs by key; the least recently used are dropped."""

    can_capture = True

    def __init__(self, device: torch.device) -> None:
        """Starts without graphs; only a CUDA `device` gets any."""
        self._has_graphs = device.type == "cuda"
        self._graphs: OrderedDict[Hashable, torch.cuda.CUDAGraph | None] = OrderedDict()
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def run(self, key: Hashable, work: Callable[[], None], result: Tensor) -> None:
        """Runs `work`, the same for the same `key`, on the current device and stream; it writes `result`."""
        if not (self._has_graphs and StepGraphs.can_capture) or torch.cuda.is_current_stream_capturing():
            work()
            return
        graph = self._graphs.get(key)
        if graph is not None:
            graph.replay()
        elif key in self._graphs:
            graph = self._capture(work, result)
        if graph is None:
            work()
        self._graphs[key] = graph
        self._graphs.move_to_end(key)
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)

    def _capture(self, work: Callable[[], None], result: Tensor) -> torch.cuda.CUDAGraph | None:
        """Captures `work` and replays it once; returns None if that fails."""
        current = torch.cuda.current_stream()
        try:
            if self._stream is None:
                # On this device; torch's own stream belongs to the device that captured first. Libraries allocate from
                # the pool during a capture, and nothing else uses it.
                self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            # A first call compiles kernels and makes library handles, which must exist before the capture.
            side = torch.cuda.Stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                work()
            current.wait_stream(side)
            expected = result.clone()
            graph = torch.cuda.CUDAGraph()
            # In the mode "thread_local" data loader threads may continue.
            capture = torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")
            with torch.cuda.stream(current), capture:  # the outer context restores the stream if the inner one fails
                work()
            result.zero_()
            graph.replay()
            # A graph may use other algorithms for products, which round differently.
            if not torch.allclose(result, expected, rtol=0, atol=1e-2, equal_nan=True):
                raise RuntimeError("the first replay of a graph gave other numbers than its steps")
        except RuntimeError as error:
            StepGraphs.can_capture = False
            logger.warning(f"CUDA graphs are not used, every step is launched by itself: {error}")
            return None
        return graph
