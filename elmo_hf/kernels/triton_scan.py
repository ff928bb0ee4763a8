"""The steps of the packed scan on a GPU.

The results are those of `packed_steps.py` and `packed_gradient.py`. There a step has about fifteen small operations,
and a GPU waits for the launch of each. Here all steps of a pass are one kernel (`triton_kernels.py`). The products with
the inputs are computed before it, for a block of steps at once.

float32 products follow `torch.set_float32_matmul_precision`: "highest" adds three products in TF32, which together have
the digits of float32; else one product in TF32.

Glossary: D directions, N words, B batch, P projection, H cell.
"""

import functools
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

from ..model.scan_elmo import (
    BatchLayout,
    Kernels,
    Limits,
    ReadingOrder,
    Scanned,
    Trace,
    Weights,
    scan_layer,
    stack,
    using,
)
from .triton_kernels import IS_INTERPRETED, backward_steps, forward_steps, tl, triton

logger = logging.get_logger(__name__)

# By dtype, how far from the packed scan's the norms of Triton's results may be: products may be in TF32 or bfloat16.
TOLERANCES = {torch.float32: 0.01, torch.float16: 0.01, torch.bfloat16: 0.05}
# Sizes of tiles; the interpreter, which is slow, gets small ones. With 8 parts of a sum and 64 columns, 128 programs
# have work in the original's sizes.
TILES = {"UNITS": 16, "COLUMNS": 16, "SPLITS": 2} if IS_INTERPRETED else {"UNITS": 64, "COLUMNS": 64, "SPLITS": 8}


def is_available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products in `dtype` can run on `device`: a GPU on which Triton is right, or a CPU that interprets it."""
    if triton is None or dtype not in TOLERANCES:
        return False
    return IS_INTERPRETED if device.type == "cpu" else device.type == "cuda" and is_right(device, dtype)


@functools.cache
def is_right(device: torch.device, dtype: torch.dtype, scan: Callable[..., Scanned] | None = None) -> bool:
    """Whether a small scan there, and its gradient, equal the packed scan's; computed at the first use.

    Args:
        device: a GPU, or a CPU that interprets Triton.
        dtype: of the products.
        scan: the scan to compare; None: Triton's.

    Raises:
        RuntimeError: if the GPU failed, because then nothing else runs in this process.
    """
    try:
        expected = _small_scan(device, dtype, Kernels(), scan_layer)
        found = _small_scan(
            device, dtype, Kernels() if scan else GpuKernels(triton_serves=lambda *_: True), scan or scan_layer
        )
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
        problem = "" if max(errors) <= TOLERANCES[dtype] else f"its numbers are wrong by {max(errors):.1%}"
    except Exception as error:  # of compilers, drivers or Triton: they share no class
        problem = str(error)
        try:
            torch.ones(1, device=device).item()
        except RuntimeError:
            raise RuntimeError(
                f"{device} failed in Triton's kernels. Start again, and call the model within "
                f'`elmo_hf.kernels.path.scan_path("packed")`, which does not use Triton: {error}'
            ) from error
    if problem:
        logger.warning(f"Triton does not run in {dtype} on {device}, so the slower packed scan is used: {problem}")
    return not problem


def _small_scan(
    device: torch.device, dtype: torch.dtype, kernels: Kernels, scan: Callable[..., Scanned]
) -> list[Tensor]:
    """Outputs, last state and gradients of a scan of two directions, B = 3, T = 5, P = 4, H = 6, with padding."""
    numbers = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers).to(device, dtype).requires_grad_()

    with torch.inference_mode(False), torch.enable_grad(), using(kernels):
        leaves = [leaf(3, 5, 8), leaf(3, 8), leaf(3, 12)]
        weights = [Weights(leaf(24, 4), leaf(24), leaf(24, 4), leaf(4, 6)) for _ in range(2)]
        mask = torch.arange(5, device=device) < torch.tensor([[5], [2], [3]], device=device)
        results = scan(leaves[0], BatchLayout(mask), *leaves[1:], weights, Limits(1.5, 1.5))
        leaves += [tensor for parts in weights for tensor in parts if tensor is not None]
        torch.cat([each.float().flatten().square() for each in results]).sum().backward()
    return [tensor.detach().float() for tensor in (*results, *(leaf.grad for leaf in leaves)) if tensor is not None]


def run_steps(
    inputs: Tensor,
    outputs: Tensor,
    order: ReadingOrder,
    hidden: Tensor,
    cell: Tensor,
    parts: list[Weights],
    limits: Limits,
    trace: Trace | None,
    *,
    launch_words: int = 1024,
) -> tuple[Tensor, Tensor]:
    """Runs all steps, with the results of `run_packed`; each launch has the steps of about `launch_words` words.

    `parts` has one item for each direction.
    """
    weights = stack(parts)
    (directions, words, _), (_, batch, width) = inputs.shape, cell.shape
    last_hidden, last_cell = hidden.clone(), cell.to(torch.float32, copy=True)
    ends = [0, *accumulate(order.columns)]
    rows, options = _options(inputs, order, weights, batch)
    memory = hidden.new_empty(directions, batch, width)
    partial = last_cell.new_empty(TILES["SPLITS"], directions, batch, hidden.shape[2])
    traced = (memory, memory, memory) if trace is None else (trace.gates, trace.cells, trace.projected)
    first, starts = 0, torch.tensor(ends, dtype=torch.int32, device=inputs.device)
    matrices = _keeps(order, starts), starts, *_matrices(weights)
    with torch.cuda.device_of(inputs):
        while first < len(order.columns):
            last = max(first + 1, bisect_right(ends, ends[first] + launch_words) - 1)
            part = inputs[:, ends[first] : ends[last]]
            given = torch.baddbmm(weights.bias.unsqueeze(1), part, weights.inputs.transpose(1, 2))
            arguments = given, *matrices, last_hidden, last_cell, memory, partial, outputs, *traced
            arrived = starts.new_zeros(1)
            place = first, last, ends[first], part.shape[1], words, batch, *map(_limit, limits)
            forward_steps[rows](*arguments, arrived, *place, KEEPS_TRACE=trace is not None, **options)
            first = last
    return last_hidden, last_cell.to(cell.dtype)


def run_steps_back(
    trace: Trace,
    order: ReadingOrder,
    previous_cells: Tensor,
    d_outputs: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    weights: Weights,
    limits: Limits,
) -> tuple[Tensor, Tensor]:
    """Runs all steps backward, with the results of `run_packed_back`; dz and m have the dtype of the products."""
    (directions, words, size), (_, batch, width) = d_outputs.shape, d_cell.shape
    dtype, last = d_outputs.dtype, order.columns[-1] if order.columns else 0
    d_projected = d_outputs[:, words - last :].add_(d_hidden[:, :last])
    if limits.projection is not None:
        d_projected *= trace.projected[:, words - last :].abs() <= limits.projection
    d_gates, memories = (trace.gates.new_empty(directions, words, n * width, dtype=dtype) for n in (4, 1))
    rows, options = _options(d_outputs, order, weights, batch)
    starts = torch.tensor([0, *accumulate(order.columns)], dtype=torch.int32, device=d_outputs.device)
    partial = d_cell.new_empty(TILES["SPLITS"], directions, batch, size)
    arguments = *trace, previous_cells.contiguous(), _keeps(order, starts), starts, *_matrices(weights)
    gradients = d_outputs, d_hidden, d_cell, d_gates, memories, partial, starts.new_zeros(1)
    place = len(order.columns), words, batch, *map(_limit, limits)
    with torch.cuda.device_of(d_outputs):
        backward_steps[rows](*arguments, *gradients, *place, **options)
    return d_gates, memories


@dataclass(eq=False)
class GpuKernels(Kernels):
    """The kernels of GPUs; on other devices those of `Kernels`."""

    # Whether Triton's kernels serve a device and a dtype, and about how many words each launch takes, with 4H numbers
    # for each word.
    triton_serves: Callable[[torch.device, torch.dtype], bool] = is_available
    launch_words: int = 1024

    def at_once(self, weights: list[Weights]) -> int:
        """How many directions take each step together: by Triton's kernels all."""
        return len(weights) if self.runs_triton(weights[0]) else super().at_once(weights)

    def run_steps(self, *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """Runs all steps by Triton's kernels where they run."""
        return run_steps(*arguments, launch_words=self.launch_words) if self.runs_triton(arguments[-3][0]) else None

    def run_steps_back(self, *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """Runs all steps backward by Triton's kernels where they run."""
        return run_steps_back(*arguments) if self.runs_triton(arguments[-2]) else None

    def runs_triton(self, weights: Weights) -> bool:
        """Whether Triton's kernels serve a direction's weights."""
        recurrent = weights.recurrent
        return isinstance(recurrent, Tensor) and self.triton_serves(recurrent.device, recurrent.dtype)


def _options(rows: Tensor, order: ReadingOrder, weights: Weights, batch: int) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and the sizes that a kernel is compiled for."""
    directions, size, width = len(rows), rows.shape[2], weights.recurrent.shape[1] // 4
    is_single = rows.dtype == torch.float32
    precision = "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    options = {
        "DIRECTIONS": directions,
        "WIDTH": width,
        "SIZE": size,
        "HAS_KEEPS": order.keeps is not None,
        "IS_PROJECTED": weights.projection is not None,
        "ROWS": min(64, max(16, 1 << (batch - 1).bit_length())),
        **TILES,
        "DEPTH": 16 if IS_INTERPRETED else 32 if is_single else 64,
        "PRECISION": precision if is_single and not torch.version.hip else "ieee",
        # The interpreter cannot multiply bfloat16.
        "TYPE": tl.float32 if IS_INTERPRETED or is_single else getattr(tl, str(rows.dtype).removeprefix("torch.")),
    }
    if IS_INTERPRETED:
        return (1,), options
    machine = torch.cuda.get_device_properties(rows.device)
    # The name of what a block can have at most is newer than the oldest torch; a stage of a tile takes 40 KB.
    shared = getattr(machine, "shared_memory_per_block_optin", machine.shared_memory_per_block)
    stages = max(1, min(4, shared // 45_000))
    launch = {"num_warps": 8, "num_stages": stages, "launch_cooperative_grid": True}
    return (machine.multi_processor_count,), options | launch


def _limit(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _matrices(weights: Weights) -> tuple[Tensor, Tensor]:
    """W_h and W_p; without W_p, what stands in its place is not read."""
    recurrent = weights.recurrent.contiguous()
    return recurrent, recurrent if weights.projection is None else weights.projection.contiguous()


def _keeps(order: ReadingOrder, other: Tensor) -> Tensor:
    return other if order.keeps is None else order.keeps.contiguous().view(torch.uint8)
