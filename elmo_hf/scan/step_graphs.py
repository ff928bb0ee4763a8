"""Work that is the same at every call, launched as one CUDA graph: a GPU does a step faster than Python asks for it.

Work goes by a key and is always done on the same memory, whose addresses are in the key. The first time that a key is
seen the work is done plainly, because what occurs once is not worth a capture; the second time it is captured, and
replayed from then on. It must give the same when done twice, allocate nothing and wait for nothing. A graph is only
used if its first replay gives what the work gave plainly.

Inside a capture of the caller's own, work is done plainly and becomes part of that. After one capture that failed there
are no others.
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
    """Graphs by their keys, the least recently used ones forgotten."""

    can_capture = True

    def __init__(self, device: torch.device) -> None:
        """Starts with no graph; on a `device` without graphs there will be none."""
        self._has_graphs = device.type == "cuda"
        self._graphs: OrderedDict[Hashable, torch.cuda.CUDAGraph | None] = OrderedDict()
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def run(self, key: Hashable, work: Callable[[], None], result: Tensor) -> None:
        """Does `work`, which is the same whenever `key` is, on the current device and stream; it writes `result`."""
        if not (self._has_graphs and StepGraphs.can_capture) or torch.cuda.is_current_stream_capturing():
            work()
            return
        graph = self._graphs.get(key)
        is_done = False
        if graph is None and key in self._graphs:
            graph = self._capture(work, result)
            is_done = graph is not None
        self._graphs[key] = graph
        self._graphs.move_to_end(key)
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        if graph is None:
            work()
        elif not is_done:
            graph.replay()

    def _capture(self, work: Callable[[], None], result: Tensor) -> torch.cuda.CUDAGraph | None:
        """A graph of `work`, replayed once, or None if there is none to be had."""
        current = torch.cuda.current_stream()
        try:
            if self._stream is None:
                # Of this device, where torch's own would be of the one that captured first. What libraries allocate
                # while they are captured is in the pool, which nobody else uses.
                self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            # So that what is made at the first call, compiled kernels and libraries' handles, is there before.
            side = torch.cuda.Stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                work()
            current.wait_stream(side)
            expected = result.clone()
            graph = torch.cuda.CUDAGraph()
            capture = torch.cuda.graph(
                graph,
                pool=self._pool,
                stream=self._stream,
                capture_error_mode="thread_local",  # threads of data loaders may go on
            )
            with torch.cuda.stream(current), capture:  # the outer context brings the stream back if the inner one fails
                work()
            result.zero_()
            graph.replay()
            # Products may be other algorithms in a graph, and round otherwise.
            if not torch.allclose(result, expected, rtol=0, atol=1e-2, equal_nan=True):
                raise RuntimeError("the first replay of a graph gave other numbers than its steps")
        except RuntimeError as error:
            StepGraphs.can_capture = False
            logger.warning(f"CUDA graphs are not used, every step is launched by itself: {error}")
            return None
        return graph
