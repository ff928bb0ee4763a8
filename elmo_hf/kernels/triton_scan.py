"""The steps of the packed scan on a GPU.

The results are those of `PackedScan` (`model/scan_elmo.py`). There a step has about fifteen small operations,
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
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.utils import logging

from ..model.scan_elmo import (
    BackwardSteps,
    BatchLayout,
    Kernels,
    Limits,
    ReadingOrder,
    Scanned,
    Steps,
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
    if device.type == "cpu":
        return IS_INTERPRETED
    return device.type == "cuda" and is_right(device, dtype)


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
        if scan is None:
            results = _small_scan(device, dtype, Kernels(faster_scans=(TritonScan(lambda *_: True),)), scan_layer)
        else:
            results = _small_scan(device, dtype, Kernels(), scan)
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(results, expected, strict=True)]
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
        for direction in weights:
            leaves += [tensor for tensor in direction if tensor is not None]
        torch.cat([tensor.float().flatten().square() for tensor in results]).sum().backward()
    gradients = [tensor.grad for tensor in leaves if tensor.grad is not None]
    return [tensor.detach().float() for tensor in (*results, *gradients)]


class TritonScan(NamedTuple):
    """The scan of GPUs, by Triton's kernels.

    Attributes:
        supports_products: whether products in a dtype can run on a device.
        launch_words: about how many words each launch takes, with 4H numbers for each word.
    """

    supports_products: Callable[[torch.device, torch.dtype], bool] = is_available
    launch_words: int = 1024

    def supports(self, weights: Weights) -> bool:
        """Whether Triton's kernels can multiply the weights of a direction."""
        recurrent = weights.recurrent
        return isinstance(recurrent, Tensor) and self.supports_products(recurrent.device, recurrent.dtype)

    def directions_per_step(self, weights: list[Weights]) -> int:
        """All of them."""
        return len(weights)

    def run(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """As in `Scan`; each launch has the steps of about `launch_words` words."""
        order = steps.order
        weights = stack(steps.weights)
        directions, words, _ = steps.words.shape
        _, batch, width = steps.cell.shape
        last_hidden = steps.hidden.clone()
        last_cell = steps.cell.to(torch.float32, copy=True)
        ends = [0, *accumulate(order.columns)]
        starts = torch.tensor(ends, dtype=torch.int32, device=steps.words.device)
        grid, options = _options(steps.words, order, weights, batch)
        memory = steps.hidden.new_empty(directions, batch, width)
        partial = last_cell.new_empty(TILES["SPLITS"], directions, batch, steps.hidden.shape[2])
        trace = Trace(memory, memory, memory) if steps.trace is None else steps.trace
        matrices = (_keeps(order, starts), starts, *_matrices(weights))
        limits = [_limit(limit) for limit in steps.limits]
        first = 0
        with torch.cuda.device_of(steps.words):
            while first < len(order.columns):
                last = max(first + 1, bisect_right(ends, ends[first] + self.launch_words) - 1)
                part = steps.words[:, ends[first] : ends[last]]
                gate_inputs = torch.baddbmm(weights.bias.unsqueeze(1), part, weights.inputs.transpose(1, 2))
                tensors = (gate_inputs, *matrices, last_hidden, last_cell, memory, partial, steps.outputs, *trace)
                arrived = starts.new_zeros(1)
                place = (first, last, ends[first], part.shape[1], words, batch, *limits)
                forward_steps[grid](*tensors, arrived, *place, KEEPS_TRACE=steps.trace is not None, **options)
                first = last
        return last_hidden, last_cell.to(steps.cell.dtype)

    def run_back(self, steps: BackwardSteps) -> tuple[Tensor, Tensor]:
        """As in `Scan`; dz and m have the dtype of the products."""
        trace, order, weights = steps.trace, steps.order, steps.weights
        directions, words, size = steps.d_outputs.shape
        _, batch, width = steps.d_cell.shape
        dtype = steps.d_outputs.dtype
        last = order.columns[-1] if order.columns else 0
        d_projected = steps.d_outputs[:, words - last :].add_(steps.d_hidden[:, :last])
        if steps.limits.projection is not None:
            d_projected *= trace.projected[:, words - last :].abs() <= steps.limits.projection
        d_gates = trace.gates.new_empty(directions, words, 4 * width, dtype=dtype)
        memories = trace.gates.new_empty(directions, words, width, dtype=dtype)
        grid, options = _options(steps.d_outputs, order, weights, batch)
        starts = torch.tensor([0, *accumulate(order.columns)], dtype=torch.int32, device=steps.d_outputs.device)
        partial = steps.d_cell.new_empty(TILES["SPLITS"], directions, batch, size)
        tensors = (*trace, steps.previous_cells.contiguous(), _keeps(order, starts), starts, *_matrices(weights))
        arrived = starts.new_zeros(1)
        gradients = (steps.d_outputs, steps.d_hidden, steps.d_cell, d_gates, memories, partial, arrived)
        limits = [_limit(limit) for limit in steps.limits]
        with torch.cuda.device_of(steps.d_outputs):
            backward_steps[grid](*tensors, *gradients, len(order.columns), words, batch, *limits, **options)
        return d_gates, memories


def _options(rows: Tensor, order: ReadingOrder, weights: Weights, batch: int) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and the sizes that a kernel is compiled for."""
    options = {
        "DIRECTIONS": len(rows),
        "WIDTH": weights.recurrent.shape[1] // 4,
        "SIZE": rows.shape[2],
        "HAS_KEEPS": order.keeps is not None,
        "IS_PROJECTED": weights.projection is not None,
        "ROWS": min(64, max(16, 1 << (batch - 1).bit_length())),
        **TILES,
        "DEPTH": _depth(rows.dtype),
        "PRECISION": _precision(rows.dtype),
        "TYPE": _type(rows.dtype),
    }
    if IS_INTERPRETED:
        return (1,), options
    machine = torch.cuda.get_device_properties(rows.device)
    # The name of what a block can have at most is newer than the oldest torch; a stage of a tile takes 40 KB.
    shared = getattr(machine, "shared_memory_per_block_optin", machine.shared_memory_per_block)
    stages = max(1, min(4, shared // 45_000))
    launch = {"num_warps": 8, "num_stages": stages, "launch_cooperative_grid": True}
    return (machine.multi_processor_count,), options | launch


def _depth(dtype: torch.dtype) -> int:
    """The numbers of a tile's depth; the interpreter, which is slow, gets few."""
    if IS_INTERPRETED:
        return 16
    return 32 if dtype == torch.float32 else 64


def _precision(dtype: torch.dtype) -> str:
    """How Triton multiplies float32."""
    if dtype != torch.float32 or torch.version.hip:
        return "ieee"
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _type(dtype: torch.dtype) -> Any:
    """Triton's type of the products; the interpreter cannot multiply bfloat16."""
    if IS_INTERPRETED:
        return tl.float32
    return getattr(tl, str(dtype).removeprefix("torch."))


def _limit(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _matrices(weights: Weights) -> tuple[Tensor, Tensor]:
    """W_h and W_p; without W_p, what stands in its place is not read."""
    recurrent = weights.recurrent.contiguous()
    if weights.projection is None:
        return recurrent, recurrent
    return recurrent, weights.projection.contiguous()


def _keeps(order: ReadingOrder, other: Tensor) -> Tensor:
    return other if order.keeps is None else order.keeps.contiguous().view(torch.uint8)
