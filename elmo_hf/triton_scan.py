"""The scan on a GPU: what `bilm_scan.py` computes, by two matrix products and two kernels a step, each way.

There a step is some fifteen small operations, and a GPU waits for every one to be launched. Here all that stands between
two products is one kernel (`triton_kernels.py`, which has the order of things); equations, gradients and what may be asked
for are the same. Input gates of all steps, or of a block of them, and the gradients of the weights stay one product each.

Gates, cells and what leads to a clip are float32 inside the kernels, the cell's state between steps too, whatever the
inputs are; results have the dtypes that went in. Products follow torch's own switches (TF32, reduced precision). Under
autocast everything but the cell's state is cast to its dtype.

Memory for the gradient: 4H + 2P numbers a word and direction and layer, and H in float32 (gates, p, h; c); going back
needs 4H + P more, H for a while.

Without gradient the steps go in blocks over a piece of memory that is kept, a `_Workspace`, so that a block can be replayed
as one CUDA graph (`step_graphs.py`). Batches are rounded up to a multiple of 16 rows there, so that few shapes occur.

Glossary: D = 2 directions, B batch, T steps, P projection, H cell. Tensors of all steps are (D, T, B, .) here, states
(D, T + 1, B, .): the state before the first step, then one after each.
"""

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers.utils import logging

from .bilm_scan import Flags, Limits, Weights
from .step_graphs import StepGraphs
from .triton_kernels import (
    IS_INTERPRETED,
    cell_gradient_step,
    cell_step,
    hidden_gradient_step,
    hidden_step,
    triton,
)

logger = logging.get_logger(__name__)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Numbers that one program of a kernel works on.
BLOCK = 1024
# Rows (texts times words) of a block of steps without gradient: what is in memory at once is 4H numbers of each.
WORKSPACE_ROWS = 1024
MAX_WORKSPACES = 4
# Batches are rounded up to it, so that few shapes occur.
BATCH_MULTIPLE = 16


class _Steps(NamedTuple):
    """Memory of a number of steps.

    Attributes:
        gates: `(D, T, B, 4H)`: W_x x_t + b, and once the step is done i, f, g, o, if they are kept.
        is_word: `(D, T, B)`, 0 where the state stands still.
        keeps: `(D, T, B)`, 0 where the state is reset before the step.
        cells: `(D, T + 1, B, H)`, c, float32.
        projected: `(D, T, B, P)`, p_t, before clipping.
        hidden: `(D, T + 1, B, P)`, h.
    """

    gates: Tensor
    is_word: Tensor
    keeps: Tensor
    cells: Tensor
    projected: Tensor
    hidden: Tensor


@functools.cache
def _runs_on(device: torch.device) -> bool:
    """Whether a scan runs there at all: Triton needs a C compiler, and a GPU that it knows."""
    try:
        weights = Weights(*(torch.zeros(2, *shape, device=device) for shape in ((4, 1), (4,), (4, 1), (1, 1))))
        state = torch.zeros(2, 1, 1, device=device)
        with torch.no_grad():
            scan(state.unsqueeze(1), Flags(None, None), state, state, weights, Limits(1.0, 1.0), block_length=1)
    except Exception as error:
        logger.warning(f"Triton does not run on {device}, the portable scan goes on in its place: {error}")
        return False
    return True


def is_available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `scan` takes tensors of this kind: on a GPU on which Triton runs, or where Triton is interpreted."""
    if triton is None or dtype not in DTYPES:
        return False
    return IS_INTERPRETED if device.type == "cpu" else device.type == "cuda" and _runs_on(device)


def scan(
    inputs: Tensor, flags: Flags, hidden: Tensor, cell: Tensor, weights: Weights, limits: Limits, block_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs one layer; arguments and results are those of `bilm_scan.scan`."""
    kind = inputs.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        weights = Weights(*(None if weight is None else weight.to(dtype) for weight in weights))
        with torch.autocast(kind, enabled=False):
            return scan(inputs.to(dtype), flags, hidden.to(dtype), cell, weights, limits, block_length)
    needs_gradient = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (inputs, hidden, cell, *weights)
    )
    shape = inputs.shape[:3]
    is_word, keeps = (_as_bytes(flag, shape, inputs.device) for flag in flags)
    with torch.cuda.device_of(inputs):
        if needs_gradient:
            outputs, last_cell = _Scan.apply(inputs, hidden, cell, *weights, is_word, keeps, limits)
        else:
            outputs, last_cell = _scan_blocks(inputs, hidden, cell, weights, is_word, keeps, limits, block_length)
    return outputs.transpose(0, 1), outputs[:, -1].clone(), last_cell


def _as_bytes(flag: Tensor | None, shape: torch.Size, device: torch.device) -> Tensor:
    """`(T, D, B, 1)` or None to `(D, T, B)`, 1 or 0."""
    if flag is None:
        return torch.ones(shape, dtype=torch.uint8, device=device)
    return flag.squeeze(-1).transpose(0, 1).to(torch.uint8).contiguous()


def _run_steps(
    steps: _Steps,
    products: Tensor,
    memory: Tensor,
    weights: Weights,
    limits: Limits,
    places: Iterable[int],
    keeps_gates: bool,
) -> None:
    """Does the steps at `places`; `products` `(D, B, 4H)` and `memory` `(D, B, H)` are scratch. Allocates nothing."""
    directions, length, batch, width = *steps.is_word.shape, steps.cells.shape[-1]
    size = steps.hidden.shape[-1]
    recurrent = weights.recurrent.transpose(1, 2)
    projection = None if weights.projection is None else weights.projection.transpose(1, 2)
    is_projected = projection is not None
    cell_limit, hidden_limit = _limits(limits, is_projected)
    cell_count, hidden_count = directions * batch * width, directions * batch * size
    for step in places:
        torch.bmm(steps.hidden[:, step], recurrent, out=products)
        cell_step[_grid(cell_count)](
            steps.gates,
            products,
            steps.is_word,
            steps.keeps,
            steps.cells,
            memory if is_projected else steps.projected,
            cell_limit,
            step,
            length,
            batch,
            cell_count,
            WIDTH=width,
            KEEPS_GATES=keeps_gates,
            IS_PROJECTED=is_projected,
            BLOCK=BLOCK,
        )
        if projection is not None:
            torch.bmm(memory, projection, out=steps.projected[:, step])
        hidden_step[_grid(hidden_count)](
            steps.projected,
            steps.is_word,
            steps.keeps,
            steps.hidden,
            hidden_limit,
            step,
            length,
            batch,
            hidden_count,
            SIZE=size,
            BLOCK=BLOCK,
        )


def _limits(limits: Limits, is_projected: bool) -> tuple[float, float]:
    """Of the cell and the hidden state, which is clipped where it is projected only; infinite where there is none."""
    projection = limits.projection if is_projected else None
    return (math.inf if limits.cell is None else limits.cell, math.inf if projection is None else projection)


def _grid(count: int) -> tuple[int]:
    return (-(-count // BLOCK),)


class _Workspace:
    """Memory of a block of steps, always the same, and graphs of what is done on it."""

    def __init__(self, like: Tensor, num_rows: int, width: int) -> None:
        """Makes room for `num_rows` rows (texts times words) of inputs like `like` `(D, T, B, P)`, and cells of `width`."""
        directions, _, _, size = like.shape
        rows = directions * num_rows
        with torch.inference_mode(False):  # or it could not be written outside of that mode
            make = functools.partial(torch.empty, dtype=like.dtype, device=like.device)
            self.inputs, self.projected, self.hidden = make(rows * size), make(rows * size), make(2 * rows * size)
            self.gates, self.products = make(rows * 4 * width), make(rows * 4 * width)
            self.memory, self.cells = make(rows * width), make(2 * rows * width, dtype=torch.float32)
            self.is_word, self.keeps = make(rows, dtype=torch.uint8), make(rows, dtype=torch.uint8)
        self.graphs = StepGraphs()

    def view(self, name: str, *shape: int) -> Tensor:
        """The beginning of one of its tensors as one of `shape`."""
        return getattr(self, name)[: math.prod(shape)].view(shape)

    def steps(self, directions: int, length: int, batch: int, width: int, size: int) -> _Steps:
        """Memory of `length` steps."""
        rows = (directions, length, batch)
        states = (directions, length + 1, batch)
        return _Steps(
            self.view("gates", *rows, 4 * width),
            self.view("is_word", *rows),
            self.view("keeps", *rows),
            self.view("cells", *states, width),
            self.view("projected", *rows, size),
            self.view("hidden", *states, size),
        )


# By device, stream, dtype and sizes. All calls take turns: what one put there must not be another's before it is used.
_workspaces: OrderedDict[Any, _Workspace] = OrderedDict()
_lock = threading.Lock()


def _workspace_of(like: Tensor, num_rows: int, width: int) -> _Workspace:
    is_cuda = like.device.type == "cuda"
    if is_cuda and torch.cuda.is_current_stream_capturing():
        return _Workspace(like, num_rows, width)  # a graph of the caller's may outlive ours
    stream = torch.cuda.current_stream(like.device).cuda_stream if is_cuda else None
    key = (like.device, stream, like.dtype, like.shape[0], like.shape[-1], num_rows, width)
    workspace = _workspaces.pop(key, None) or _Workspace(like, num_rows, width)
    _workspaces[key] = workspace
    if len(_workspaces) > MAX_WORKSPACES:
        _workspaces.popitem(last=False)
    return workspace


def _scan_blocks(
    inputs: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Weights,
    is_word: Tensor,
    keeps: Tensor,
    limits: Limits,
    block_length: int,
) -> tuple[Tensor, Tensor]:
    """All steps without gradient, in blocks of 2^n; returns h of all steps, `(D, T, B, P)`, and the last cell."""
    directions, length, batch, size = inputs.shape
    width = cell.shape[-1]
    padded = -(-batch // BATCH_MULTIPLE) * BATCH_MULTIPLE
    longest = _power_of_two(min(block_length, max(1, WORKSPACE_ROWS // padded)))
    outputs = torch.empty_like(inputs)
    with _lock:
        workspace = _workspace_of(inputs, max(WORKSPACE_ROWS, padded), width)
        products = workspace.view("products", directions, padded, 4 * width)
        memory = workspace.view("memory", directions, padded, width)
        last_hidden, last_cell = hidden, cell
        start = 0
        while start < length:
            number = _power_of_two(min(longest, length - start))
            block = slice(start, start + number)
            steps = workspace.steps(directions, number, padded, width, size)
            block_inputs = workspace.view("inputs", directions, number, padded, size)
            # Rows of no text hold what was there before; nothing of theirs reaches the others.
            for target, source in ((block_inputs, inputs), (steps.is_word, is_word), (steps.keeps, keeps)):
                target[:, :, :batch].copy_(source[:, block])
            for target, source in ((steps.hidden, last_hidden), (steps.cells, last_cell)):
                target[:, 0, :batch].copy_(source)
            torch.baddbmm(
                weights.bias.unsqueeze(1),
                block_inputs.flatten(1, 2),
                weights.inputs.transpose(1, 2),
                out=steps.gates.flatten(1, 2),
            )
            work = functools.partial(
                _run_steps, steps, products, memory, weights, limits, range(number), keeps_gates=False
            )
            if inputs.device.type == "cuda":
                workspace.graphs.run((number, padded, limits, _addresses(weights), _precision()), work)
            else:
                work()
            outputs[:, block].copy_(steps.hidden[:, 1:, :batch])
            last_hidden, last_cell = (state[:, -1, :batch].clone() for state in (steps.hidden, steps.cells))
            start += number
        return outputs, last_cell.to(cell.dtype)


def _power_of_two(number: int) -> int:
    """The largest that is not above `number`."""
    return 1 << (number.bit_length() - 1)


def _addresses(weights: Weights) -> tuple[Any, ...]:
    """Of the weights that a step reads; whatever is there now is what the caller wants to be read."""
    return tuple(
        None if weight is None else (weight.data_ptr(), weight.stride())
        for weight in (weights.recurrent, weights.projection)
    )


def _precision() -> tuple[Any, ...]:
    """Torch's switches of matrix products, which a graph does not look at again."""
    names = ("fp32_precision", "allow_fp16_accumulation", *(f"allow_{t}_reduced_precision_reduction" for t in ("bf16", "fp16")))
    switches = torch.backends.cuda.matmul
    return (torch.get_float32_matmul_precision(), *(getattr(switches, name, None) for name in names))


class _Scan(torch.autograd.Function):
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
        weights = Weights(input_weight, bias, recurrent, projection)
        gates = torch.baddbmm(bias.unsqueeze(1), inputs.flatten(1, 2), input_weight.transpose(1, 2))
        steps = _Steps(
            gates.unflatten(1, (length, batch)),
            is_word,
            keeps,
            inputs.new_empty(directions, length + 1, batch, width, dtype=torch.float32),
            torch.empty_like(inputs),
            inputs.new_empty(directions, length + 1, batch, size),
        )
        steps.hidden[:, 0], steps.cells[:, 0] = hidden, cell
        products, memory = (inputs.new_empty(directions, batch, n * width) for n in (4, 1))
        _run_steps(steps, products, memory, weights, limits, range(length), keeps_gates=True)
        ctx.save_for_backward(inputs, input_weight, recurrent, projection, *steps)
        ctx.limits, ctx.cell_dtype = limits, cell.dtype
        return steps.hidden[:, 1:], steps.cells[:, -1].to(cell.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_last_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, recurrent, projection, *saved = ctx.saved_tensors
        steps = _Steps(*saved)
        with torch.cuda.device_of(inputs):
            d_gates, d_projected, d_hidden, d_cell = _run_steps_back(
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
            d_cell.to(ctx.cell_dtype),
            torch.bmm(rows.transpose(1, 2), inputs.flatten(1, 2)) if needs[3] else None,
            rows.sum(dim=1) if needs[4] else None,
            None if used_hidden is None else torch.bmm(rows.transpose(1, 2), used_hidden.flatten(1, 2)),
            d_projection,
            None,
            None,
            None,
        )


def _run_steps_back(
    steps: _Steps, d_outputs: Tensor, d_last_cell: Tensor, recurrent: Tensor, projection: Tensor | None, limits: Limits
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dz and dp of all steps, `(D, T, B, 4H)` and `(D, T, B, P)`; then those of the state before the first, float32."""
    directions, length, batch, width = *steps.is_word.shape, steps.cells.shape[-1]
    size = steps.hidden.shape[-1]
    is_projected = projection is not None
    cell_limit, hidden_limit = _limits(limits, is_projected)
    cell_count, hidden_count = directions * batch * width, directions * batch * size
    d_gates, d_projected = torch.empty_like(steps.gates), torch.empty_like(steps.projected)
    d_memory = d_gates.new_empty(directions, batch, width) if is_projected else d_projected
    # What the last step gets from behind is zero, but for the outputs' own gradients.
    products = torch.zeros_like(steps.hidden[:, 0])
    d_hidden, d_cell = torch.zeros_like(products, dtype=torch.float32), d_last_cell.float().clone()
    for step in range(length - 1, -1, -1):
        hidden_gradient_step[_grid(hidden_count)](
            products,
            d_hidden,
            d_outputs,
            steps.is_word,
            steps.keeps,
            steps.projected,
            d_projected,
            hidden_limit,
            step,
            length,
            batch,
            hidden_count,
            SIZE=size,
            BLOCK=BLOCK,
        )
        if projection is not None:
            torch.bmm(d_projected[:, step], projection, out=d_memory)
        cell_gradient_step[_grid(cell_count)](
            d_memory,
            steps.gates,
            steps.cells,
            steps.is_word,
            steps.keeps,
            d_cell,
            d_gates,
            cell_limit,
            step,
            length,
            batch,
            cell_count,
            WIDTH=width,
            IS_PROJECTED=is_projected,
            BLOCK=BLOCK,
        )
        torch.bmm(d_gates[:, step], recurrent, out=products)
    d_hidden = torch.where(steps.is_word[:, 0].bool().unsqueeze(-1), products.float(), d_hidden)
    return d_gates, d_projected, d_hidden * steps.keeps[:, 0].unsqueeze(-1), d_cell
