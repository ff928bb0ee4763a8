"""The scan on a GPU: it computes what `packed.py` computes, with two matrix products and two kernels a step, each way.

In `packed.py` a step is some fifteen small operations, and a GPU waits for the launch of each. Here everything between
two products is one kernel; `triton_kernels.py` has their order. Products with the inputs and gradients of the weights
are one product each for all steps, or for a block of steps.

The cell is float32 between steps. Products follow torch's own switches (TF32, reduced precision). Padding is computed
like words and thrown away: to skip it, Python would have to wait for the GPU.

Memory for the gradient: 4H + 2P numbers per word, direction and layer (gates, p, h) and H in float32 (c); about
4H + P and H in float32 more during the backward pass.

Without gradient the steps run in blocks over memory that is kept, a `_GraphWorkspace`, so that a block is one CUDA
graph (`step_graphs.py`). Batch sizes are rounded up there, and blocks have 2^n steps, so that few shapes occur.

Glossary: D directions, B batch, T steps, P projection, H cell. Tensors of all steps are (D, T, B, .).
"""

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers.utils import logging

from .parameters import Limits, Scanned, Weights, needs_gradient, stack
from .step_graphs import StepGraphs
from .triton_kernels import IS_INTERPRETED, triton
from .triton_steps import Steps, run_steps, run_steps_back

logger = logging.get_logger(__name__)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Without gradient: texts times words in a block of steps, with 4H numbers each; texts there is always room for; and the
# multiple that batch sizes are rounded up to.
BLOCK_ROWS, BATCH_ROWS, BATCH_MULTIPLE = 1024, 256, 16
MAX_WORKSPACES = 4


@functools.cache
def _runs_on(device: torch.device) -> bool:
    """Whether a scan runs there at all: Triton needs a C compiler and a GPU that it supports."""
    one = functools.partial(torch.ones, device=device)
    flag, state = one(2, 1, 1, dtype=torch.uint8), one(2, 1, 1)
    weights = Weights(one(4, 1), one(4), one(4, 1), one(1, 1))
    try:
        with torch.no_grad():
            scan_triton(one(2, 1, 1, 1), flag, flag, state, state, [weights, weights], Limits(1.0, 1.0))
    except Exception as error:  # compilers, drivers and Triton share no error class; the warning quotes theirs
        logger.warning(f"Triton does not run on {device}, so the portable scan is used, which is slower: {error}")
        return False
    return True


def is_available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products in `dtype` can run on `device`: a GPU on which Triton runs, or a CPU that interprets Triton."""
    if triton is None or dtype not in DTYPES:
        return False
    return IS_INTERPRETED if device.type == "cpu" else device.type == "cuda" and _runs_on(device)


def scan_triton(
    inputs: Tensor, is_word: Tensor, keeps: Tensor, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer and never waits for the GPU.

    Maps inputs `(D, T, B, P)`, each direction in its reading order, flags as in `Steps`, and the state before the first
    step, hidden `(D, B, P)` and cell `(D, B, H)`, float32, to h_t after each step and the state after the last one,
    shaped the same.
    """
    with torch.cuda.device_of(inputs):
        if needs_gradient(inputs, hidden, cell, *(weight for parts in weights for weight in parts)):
            outputs, last_cell = _TritonScan.apply(is_word, keeps, limits, inputs, hidden, cell, *stack(weights))
        else:
            outputs, last_cell = _scan_blocks(inputs, is_word, keeps, hidden, cell, weights, limits)
    return outputs, outputs[:, -1].clone(), last_cell


class _TritonScan(torch.autograd.Function):
    """All steps with their gradient; can be differentiated once."""

    @staticmethod
    def forward(ctx: Any, is_word: Tensor, keeps: Tensor, limits: Limits, *tensors: Any) -> tuple[Tensor, Tensor]:
        inputs, hidden, cell, input_weight, bias, recurrent, projection = tensors
        (directions, length, batch, size), width = inputs.shape, cell.shape[-1]
        gates = torch.baddbmm(bias.unsqueeze(1), inputs.flatten(1, 2), input_weight.transpose(1, 2))
        cells = inputs.new_empty(directions, length + 1, batch, width, dtype=torch.float32)
        projected, all_hidden = inputs.new_empty(inputs.shape), inputs.new_empty(directions, length + 1, batch, size)
        steps = Steps(gates.unflatten(1, (length, batch)), is_word, keeps, cells, projected, all_hidden)
        steps.hidden[:, 0], steps.cells[:, 0] = hidden, cell
        products, memory = (inputs.new_empty(directions, batch, n * width) for n in (4, 1))
        run_steps(steps, products, memory, recurrent, projection, limits, keeps_gates=True)
        ctx.save_for_backward(inputs, input_weight, recurrent, projection, *steps)
        ctx.limits = limits
        return steps.hidden[:, 1:], steps.cells[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_last_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, recurrent, projection, *saved = ctx.saved_tensors
        steps = Steps(*saved)
        with torch.cuda.device_of(inputs):
            d_gates, d_projected, d_hidden, d_cell = run_steps_back(
                steps, d_outputs.contiguous(), d_last_cell, recurrent, projection, ctx.limits
            )
        d_z = d_gates.flatten(1, 2)
        *_, needs_inputs, _, _, needs_input_weight, needs_bias, needs_recurrent, needs_projection = ctx.needs_input_grad
        d_projection = None
        if projection is not None and needs_projection:
            memory = steps.gates[..., 3 * steps.cells.shape[-1] :] * steps.cells[:, 1:].tanh()
            d_projection = torch.bmm(d_projected.flatten(1, 2).transpose(1, 2), memory.to(inputs.dtype).flatten(1, 2))
        used_hidden = steps.hidden[:, :-1] * steps.keeps.unsqueeze(-1) if needs_recurrent else None
        return (
            *(None, None, None),
            torch.bmm(d_z, input_weight).view(inputs.shape) if needs_inputs else None,
            d_hidden.to(inputs.dtype),
            d_cell,
            torch.bmm(d_z.transpose(1, 2), inputs.flatten(1, 2)) if needs_input_weight else None,
            d_z.sum(dim=1) if needs_bias else None,
            None if used_hidden is None else torch.bmm(d_z.transpose(1, 2), used_hidden.flatten(1, 2)),
            d_projection,
        )


class _GraphWorkspace:
    """Memory of a block of steps, kept between calls, and the graphs that work on it."""

    def __init__(self, like: Tensor, batch: int, width: int) -> None:
        """Allocates for inputs like `like` `(D, T, B, P)`, up to `batch` texts, and cells of `width`."""
        directions, _, _, size = like.shape
        rows, batch_rows = directions * max(BLOCK_ROWS, batch), directions * batch
        with torch.inference_mode(False):  # tensors of that mode could not be written outside it
            make = functools.partial(torch.empty, dtype=like.dtype, device=like.device)
            self.inputs, self.projected, self.gates = make(rows * size), make(rows * size), make(rows * 4 * width)
            states = rows + batch_rows
            self.hidden, self.cells = make(states * size), make(states * width, dtype=torch.float32)
            self.is_word, self.keeps = make(rows, dtype=torch.uint8), make(rows, dtype=torch.uint8)
            self.products, self.memory = make(batch_rows * 4 * width), make(batch_rows * width)
            # A graph reads weights at fixed addresses, so every call copies its own here.
            self.recurrent, self.projection = make(directions, 4 * width, size), make(directions, size, width)
        self.graphs = StepGraphs(like.device)

    def view(self, name: str, *shape: int) -> Tensor:
        """The beginning of one of its tensors."""
        return getattr(self, name)[: math.prod(shape)].view(shape)

    def steps(self, directions: int, length: int, batch: int, width: int, size: int) -> Steps:
        words, states = (directions, length, batch), (directions, length + 1, batch)
        return Steps(
            self.view("gates", *words, 4 * width),
            self.view("is_word", *words),
            self.view("keeps", *words),
            self.view("cells", *states, width),
            self.view("projected", *words, size),
            self.view("hidden", *states, size),
        )


# By device, stream, dtype and sizes. Calls take turns, so that none overwrites what another has yet to use.
_workspaces: OrderedDict[Any, _GraphWorkspace] = OrderedDict()
_lock = threading.Lock()


def _workspace_of(like: Tensor, batch: int, width: int) -> _GraphWorkspace:
    is_cuda = like.device.type == "cuda"
    if is_cuda and torch.cuda.is_current_stream_capturing():
        return _GraphWorkspace(like, batch, width)  # the caller's graph may outlive ours
    stream = torch.cuda.current_stream(like.device).cuda_stream if is_cuda else None
    key = (like.device, stream, like.dtype, like.shape[0], like.shape[-1], batch, width)
    workspace = _workspaces.pop(key, None) or _GraphWorkspace(like, batch, width)
    _workspaces[key] = workspace
    if len(_workspaces) > MAX_WORKSPACES:
        _workspaces.popitem(last=False)
    return workspace


def _scan_blocks(
    inputs: Tensor, is_word: Tensor, keeps: Tensor, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> tuple[Tensor, Tensor]:
    """All steps without gradient, in blocks; returns h of all steps and the last cell."""
    (directions, length, batch, size), width = inputs.shape, cell.shape[-1]
    padded = -(-batch // BATCH_MULTIPLE) * BATCH_MULTIPLE
    outputs = inputs.new_empty(inputs.shape)
    with _lock:
        workspace = _workspace_of(inputs, max(padded, BATCH_ROWS), width)
        recurrent = torch.stack([parts.recurrent for parts in weights], out=workspace.recurrent)
        projections = [parts.projection for parts in weights if parts.projection is not None]
        projection = torch.stack(projections, out=workspace.projection) if projections else None
        products = workspace.view("products", directions, padded, 4 * width)
        memory = workspace.view("memory", directions, padded, width)
        settings = (padded, limits, projection is None, _precision())
        for block in _blocks(length, max(1, BLOCK_ROWS // padded)):
            block_length = block.stop - block.start
            steps = workspace.steps(directions, block_length, padded, width, size)
            block_inputs = workspace.view("inputs", directions, block_length, padded, size)
            # Rows without a text hold old numbers, which never reach other rows.
            for target, source in ((block_inputs, inputs), (steps.is_word, is_word), (steps.keeps, keeps)):
                target[:, :, :batch].copy_(source[:, block])
            for target, source in ((steps.hidden, hidden), (steps.cells, cell)):
                target[:, 0, :batch].copy_(source)
            for parts, words, gates in zip(weights, block_inputs, steps.gates, strict=True):
                torch.addmm(parts.bias, words.flatten(0, 1), parts.inputs.t(), out=gates.flatten(0, 1))
            run = functools.partial(
                run_steps, steps, products, memory, recurrent, projection, limits, keeps_gates=False
            )
            workspace.graphs.run((block_length, *settings), run, result=steps.hidden[:, 1:])
            outputs[:, block].copy_(steps.hidden[:, 1:, :batch])
            hidden, cell = (state[:, -1, :batch].clone() for state in (steps.hidden, steps.cells))
    return outputs, cell


def _blocks(length: int, longest: int) -> Iterator[slice]:
    """Cuts `length` steps into blocks of 2^n steps, at most `longest`."""
    start = 0
    while start < length:
        stop = start + (1 << (min(longest, length - start).bit_length() - 1))
        yield slice(start, stop)
        start = stop


def _precision() -> tuple[Any, ...]:
    """Torch's switches for matrix products, which a captured graph no longer reads."""
    allowed = ("fp16_accumulation", "bf16_reduced_precision_reduction", "fp16_reduced_precision_reduction")
    names = ["fp32_precision", *(f"allow_{name}" for name in allowed)]
    return (torch.get_float32_matmul_precision(), *(getattr(torch.backends.cuda.matmul, name, None) for name in names))
