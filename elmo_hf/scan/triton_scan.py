"""The scan on a GPU: what `bilm_scan.py` computes, by two matrix products and two kernels a step, each way.

There a step is some fifteen small operations, and a GPU waits for each of them to be launched. Here everything between
two products is one kernel; see `triton_kernels.py` for their order. Equations and gradients are the same. The products
with the inputs and the gradients of the weights are still one product each for all steps, or a block of them.

The cell's state is float32 between steps, and everything is inside a kernel, whatever the inputs are. Products follow
torch's own switches (TF32, reduced precision).

Memory for the gradient: 4H + 2P numbers a word and direction and layer (gates, p, h) and H in float32 (c); going back
needs 4H + P more, and H, for a while.

Without gradient the steps go in blocks over memory that is kept, a `_GraphWorkspace`, so that a block is one CUDA graph
(`step_graphs.py`). Batches are rounded up there, and blocks have 2^n steps, so that few shapes occur.

Glossary: D = 2 directions, B batch, T steps, P projection, H cell. Tensors of all steps are (D, T, B, .). Padding
is computed like words and thrown away: to know where it is, Python would have to wait for the GPU.
"""

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers.utils import logging

from .packed import Limits, Weights, stack
from .step_graphs import StepGraphs
from .triton_kernels import IS_INTERPRETED, triton
from .triton_steps import Steps, run_steps, run_steps_back

logger = logging.get_logger(__name__)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Without gradient: rows (texts times words) of a block of steps, each with 4H numbers in memory; rows of a batch that
# there is room for at least; and what batches are rounded up to.
BLOCK_ROWS, BATCH_ROWS, BATCH_MULTIPLE = 1024, 256, 16
MAX_WORKSPACES = 4


@functools.cache
def _runs_on(device: torch.device) -> bool:
    """Whether a scan runs there at all: Triton needs a C compiler, and a GPU that it knows."""
    one = functools.partial(torch.ones, device=device)
    flag, state = one(2, 1, 1, dtype=torch.uint8), one(2, 1, 1)
    weights = Weights(one(4, 1), one(4), one(4, 1), one(1, 1))
    try:
        with torch.no_grad():
            scan_triton(one(2, 1, 1, 1), flag, flag, state, state, [weights, weights], Limits(1.0, 1.0))
    except Exception as error:  # compilers, drivers and Triton raise errors of no common class; the warning names them
        logger.warning(f"Triton does not run on {device}, so the portable scan is used, which is slower: {error}")
        return False
    return True


def is_available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products may be in `dtype` here: on a GPU on which Triton runs, or where Triton is interpreted."""
    if triton is None or dtype not in DTYPES:
        return False
    return IS_INTERPRETED if device.type == "cpu" else device.type == "cuda" and _runs_on(device)


def scan_layer(
    inputs: Tensor,
    mask: Tensor,
    hidden: Tensor,
    cell: Tensor,
    resets: tuple[Tensor, Tensor] | None,
    weights: Sequence[Weights],
    limits: Limits,
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs one layer, padding too, without asking the GPU for anything.

    Args:
        inputs: `(B, T, 2P)`, forward half first, as everywhere.
        mask: `(B, T)`, True on words.
        hidden: `(B, 2P)`.
        cell: `(B, 2H)`.
        resets: for each direction `(B, T)`, True on words before which its state is set to zero; None: nowhere.
        weights: of each direction; their dtype is the one that products are in.
        limits: of clipping.

    Returns:
        Outputs `(B, T, 2P)`, zero where the mask is False, and the last states.
    """
    dtype = weights[0].inputs.dtype
    is_word = _in_order(mask, mask)
    keeps = torch.ones_like(is_word) if resets is None else ~_in_order(*resets)
    outputs, hidden, cell = scan_triton(
        _in_order(*inputs.to(dtype).chunk(2, dim=-1)),
        is_word.to(torch.uint8),
        keeps.to(torch.uint8),
        torch.stack(hidden.to(dtype).chunk(2, dim=-1)),
        torch.stack(cell.float().chunk(2, dim=-1)),
        weights,
        limits,
    )
    in_reading_order = torch.cat([outputs[0], outputs[1].flip(0)], dim=-1).transpose(0, 1)  # (B, T, 2P)
    return (
        in_reading_order.masked_fill(~mask.unsqueeze(-1), 0).to(inputs.dtype),
        torch.cat(hidden.unbind(), dim=-1).to(inputs.dtype),
        torch.cat(cell.unbind(), dim=-1).to(inputs.dtype),
    )


def _in_order(forward: Tensor, backward: Tensor) -> Tensor:
    """Two tensors `(B, T, ...)` in reading order to `(2, T, B, ...)`, each direction in its own order."""
    return torch.stack([forward.transpose(0, 1), backward.transpose(0, 1).flip(0)])


def scan_triton(
    inputs: Tensor,
    is_word: Tensor,
    keeps: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[Weights],
    limits: Limits,
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps of a layer.

    Args:
        inputs: `(D, T, B, P)`, each direction in its own order of reading.
        is_word: `(D, T, B)`, bytes, 0 where the state stands still.
        keeps: `(D, T, B)`, bytes, 0 where the state is reset before the step.
        hidden: `(D, B, P)`, the state before the first step.
        cell: `(D, B, H)`, likewise, float32.
        weights: of each direction.
        limits: of clipping.

    Returns:
        `(D, T, B, P)`, the state h_t after each step; then `hidden` and `cell` after the last one.
    """
    leaves = (inputs, hidden, cell, *(weight for parts in weights for weight in parts))
    with torch.cuda.device_of(inputs):
        if torch.is_grad_enabled() and any(leaf is not None and leaf.requires_grad for leaf in leaves):
            outputs, last_cell = _TritonScan.apply(inputs, hidden, cell, *stack(weights), is_word, keeps, limits)
        else:
            outputs, last_cell = _scan_blocks(inputs, is_word, keeps, hidden, cell, weights, limits)
    return outputs, outputs[:, -1].clone(), last_cell


class _TritonScan(torch.autograd.Function):
    """All steps with their gradient; may be differentiated once."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        hidden: Tensor,
        cell: Tensor,
        input_weight: Tensor,
        bias: Tensor,
        recurrent: Tensor,
        projection: Tensor | None,
        is_word: Tensor,
        keeps: Tensor,
        limits: Limits,
    ) -> tuple[Tensor, Tensor]:
        directions, length, batch, size = inputs.shape
        width = cell.shape[-1]
        gates = torch.baddbmm(bias.unsqueeze(1), inputs.flatten(1, 2), input_weight.transpose(1, 2))
        steps = Steps(
            gates.unflatten(1, (length, batch)),
            is_word,
            keeps,
            inputs.new_empty(directions, length + 1, batch, width, dtype=torch.float32),
            inputs.new_empty(inputs.shape),
            inputs.new_empty(directions, length + 1, batch, size),
        )
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
        rows = d_gates.flatten(1, 2)
        needs = ctx.needs_input_grad
        d_projection = None
        if projection is not None and needs[6]:
            memory = steps.gates[..., 3 * steps.cells.shape[-1] :] * steps.cells[:, 1:].tanh()
            d_projection = torch.bmm(d_projected.flatten(1, 2).transpose(1, 2), memory.to(inputs.dtype).flatten(1, 2))
        used_hidden = steps.hidden[:, :-1] * steps.keeps.unsqueeze(-1) if needs[5] else None
        return (
            torch.bmm(rows, input_weight).view(inputs.shape) if needs[0] else None,
            d_hidden.to(inputs.dtype),
            d_cell,
            torch.bmm(rows.transpose(1, 2), inputs.flatten(1, 2)) if needs[3] else None,
            rows.sum(dim=1) if needs[4] else None,
            None if used_hidden is None else torch.bmm(rows.transpose(1, 2), used_hidden.flatten(1, 2)),
            d_projection,
            None,
            None,
            None,
        )


class _GraphWorkspace:
    """Memory of a block of steps, always the same, and graphs of what is done on it."""

    def __init__(self, like: Tensor, batch: int, width: int) -> None:
        """Makes room for inputs like `like` `(D, T, B, P)` in any number, up to `batch`, and cells of `width`."""
        directions, _, _, size = like.shape
        rows, batch_rows = directions * max(BLOCK_ROWS, batch), directions * batch
        with torch.inference_mode(False):  # or it could not be written outside of that mode
            make = functools.partial(torch.empty, dtype=like.dtype, device=like.device)
            self.inputs, self.projected, self.gates = make(rows * size), make(rows * size), make(rows * 4 * width)
            states = rows + batch_rows
            self.hidden, self.cells = make(states * size), make(states * width, dtype=torch.float32)
            self.is_word, self.keeps = make(rows, dtype=torch.uint8), make(rows, dtype=torch.uint8)
            self.products, self.memory = make(batch_rows * 4 * width), make(batch_rows * width)
            # A graph reads weights where they were, so every call puts its own here.
            self.recurrent, self.projection = make(directions, 4 * width, size), make(directions, size, width)
        self.graphs = StepGraphs(like.device)

    def view(self, name: str, *shape: int) -> Tensor:
        """The beginning of one of its tensors as one of `shape`."""
        return getattr(self, name)[: math.prod(shape)].view(shape)

    def steps(self, directions: int, length: int, batch: int, width: int, size: int) -> Steps:
        """Memory of `length` steps."""
        rows = (directions, length, batch)
        states = (directions, length + 1, batch)
        return Steps(
            self.view("gates", *rows, 4 * width),
            self.view("is_word", *rows),
            self.view("keeps", *rows),
            self.view("cells", *states, width),
            self.view("projected", *rows, size),
            self.view("hidden", *states, size),
        )


# By device, stream, dtype and sizes. All calls take turns: what one put there must not be another's before it is used.
_workspaces: OrderedDict[Any, _GraphWorkspace] = OrderedDict()
_lock = threading.Lock()


def _workspace_of(like: Tensor, batch: int, width: int) -> _GraphWorkspace:
    is_cuda = like.device.type == "cuda"
    if is_cuda and torch.cuda.is_current_stream_capturing():
        return _GraphWorkspace(like, batch, width)  # a graph of the caller's may outlive ours
    stream = torch.cuda.current_stream(like.device).cuda_stream if is_cuda else None
    key = (like.device, stream, like.dtype, like.shape[0], like.shape[-1], batch, width)
    workspace = _workspaces.pop(key, None) or _GraphWorkspace(like, batch, width)
    _workspaces[key] = workspace
    if len(_workspaces) > MAX_WORKSPACES:
        _workspaces.popitem(last=False)
    return workspace


def _scan_blocks(
    inputs: Tensor,
    is_word: Tensor,
    keeps: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[Weights],
    limits: Limits,
) -> tuple[Tensor, Tensor]:
    """All steps without gradient, in blocks; returns h of all steps and the last cell."""
    directions, length, batch, size = inputs.shape
    width = cell.shape[-1]
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
            number = block.stop - block.start
            steps = workspace.steps(directions, number, padded, width, size)
            block_inputs = workspace.view("inputs", directions, number, padded, size)
            # Rows of no text hold what was there before; nothing of theirs reaches the others.
            for target, source in ((block_inputs, inputs), (steps.is_word, is_word), (steps.keeps, keeps)):
                target[:, :, :batch].copy_(source[:, block])
            for target, source in ((steps.hidden, hidden), (steps.cells, cell)):
                target[:, 0, :batch].copy_(source)
            for parts, rows, gates in zip(weights, block_inputs, steps.gates, strict=True):
                torch.addmm(parts.bias, rows.flatten(0, 1), parts.inputs.t(), out=gates.flatten(0, 1))
            workspace.graphs.run(
                (number, *settings),
                functools.partial(run_steps, steps, products, memory, recurrent, projection, limits, keeps_gates=False),
                result=steps.hidden[:, 1:],
            )
            outputs[:, block].copy_(steps.hidden[:, 1:, :batch])
            hidden, cell = (state[:, -1, :batch].clone() for state in (steps.hidden, steps.cells))
    return outputs, cell


def _blocks(length: int, longest: int) -> Iterator[slice]:
    """Cuts `length` steps into blocks of 2^n steps, of `longest` at most, so that few lengths occur."""
    start = 0
    while start < length:
        number = 1 << (min(longest, length - start).bit_length() - 1)
        yield slice(start, start + number)
        start += number


def _precision() -> tuple[Any, ...]:
    """Torch's switches of matrix products, which a graph does not look at again."""
    names = (
        "fp32_precision",
        "allow_fp16_accumulation",
        *(f"allow_{t}_reduced_precision_reduction" for t in ("bf16", "fp16")),
    )
    switches = torch.backends.cuda.matmul
    return (torch.get_float32_matmul_precision(), *(getattr(switches, name, None) for name in names))
