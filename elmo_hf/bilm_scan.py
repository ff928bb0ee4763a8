"""The fast scan: one biLM layer, both directions in step, with a gradient of its own.

The same numbers as `LSTMP.forward`, which is the reference, up to the order of float sums. Time step t of the forward
direction and step t of the backward one (its words in its own order of reading) are one batch of two matrix products:

    z_t = W_x x_t + b + W_h h_{t-1}     of all t at once for x; b has the forget bias in it
    c_t = clip(a_t),  a_t = f_t c_{t-1} + i_t g_t        i, f, o = sigmoid, g = tanh of z's four parts
    h_t = clip(p_t),  p_t = W_p (o_t tanh(c_t))

Going back, with e_t the gradient of the output at t and 1[.] that of a clip (1 inside the limits, themselves included):

    dp_t = (e_t + dh_t) 1[p_t]        dm_t = W_p^T dp_t         dc_t += dm_t o_t (1 - tanh^2 c_t),  then  dc_t 1[a_t]
    dz_t = (dc_t g_t i_t (1 - i_t), dc_t c_{t-1} f_t (1 - f_t), dc_t i_t (1 - g_t^2), dm_t tanh(c_t) o_t (1 - o_t))
    dh_{t-1} = W_h^T dz_t             dc_{t-1} = dc_t f_t

What does not depend on the gradients is computed for all t before the steps, and the gradients of the weights are one
product each after them. Where there is no word the state stands still; where it is reset, h_{t-1} and c_{t-1} are zero.

Memory for the gradient: 5H + 4P numbers a word and direction and layer (gates, a, and four vectors of width P); going
back needs 5H more for a while. Without gradient the steps go in blocks, and nothing of the length of the text is kept
but the output. Steps allocate nothing.

Glossary: D = 2 directions, B batch, T steps, P projection, H cell. What a step reads and writes is one piece of memory,
(T, D, B, .); what is multiplied for all steps at once is (D, T, B, .).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Weights(NamedTuple):
    """Both directions' parameters.

    Attributes:
        inputs: `(D, 4H, P)`, W_x.
        bias: `(D, 4H)`, b, with the forget bias in it.
        recurrent: `(D, 4H, P)`, W_h.
        projection: `(D, P, H)`, W_p, or None where P = H and nothing is projected.
    """

    inputs: Tensor
    bias: Tensor
    recurrent: Tensor
    projection: Tensor | None


class Flags(NamedTuple):
    """What is special at some positions; None where nothing is.

    Attributes:
        is_word: `(T, D, B, 1)`, False where the state stands still.
        keeps: `(T, D, B, 1)`, False where the state is reset before the step.
    """

    is_word: Tensor | None
    keeps: Tensor | None


class Limits(NamedTuple):
    """Of clipping; None: no limit."""

    cell: float | None
    projection: float | None


class Trace(NamedTuple):
    """What the steps leave behind.

    Attributes:
        gates: `(T, D, B, 4H)`, i, f, g, o.
        cells: `(T, D, B, H)`, a_t, before clipping.
        previous_cells: `(T, D, B, H)`, c_{t-1} as used.
        projected: `(T, D, B, P)`, p_t, before clipping.
        previous_hidden: `(T, D, B, P)`, h_{t-1} as used.
        hidden: `(T, D, B, P)`, h_t.
    """

    gates: Tensor
    cells: Tensor
    previous_cells: Tensor
    projected: Tensor
    previous_hidden: Tensor
    hidden: Tensor


def scan(
    inputs: Tensor, flags: Flags, hidden: Tensor, cell: Tensor, weights: Weights, limits: Limits, block_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs one layer.

    Args:
        inputs: `(D, T, B, P)`, each direction in its own order of reading.
        flags: positions without words, and resets.
        hidden: `(D, B, P)`, the state before the first step.
        cell: `(D, B, H)`, likewise.
        weights: of both directions.
        limits: of clipping.
        block_length: steps whose gates are in memory at once where no gradient is needed.

    Returns:
        `(T, D, B, P)`, the state h_t after each step; then `hidden` and `cell` after the last one.
    """
    needs_gradient = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (inputs, hidden, cell, *weights)
    )
    if needs_gradient:
        return _Scan.apply(inputs, hidden, cell, *weights, flags, limits)
    outputs = []
    for start in range(0, inputs.shape[1], block_length):
        block = slice(start, start + block_length)
        block_flags = Flags(*(None if flag is None else flag[block] for flag in flags))
        trace, cell = _steps(inputs[:, block], block_flags, hidden, cell, weights, limits, keeps_trace=False)
        hidden = trace.hidden[-1]
        outputs.append(trace.hidden)
    return torch.cat(outputs), hidden, cell


def _steps(
    inputs: Tensor, flags: Flags, hidden: Tensor, cell: Tensor, weights: Weights, limits: Limits, keeps_trace: bool
) -> tuple[Trace, Tensor]:
    """All steps; returns their trace and the last cell. Without a trace, only `hidden` is filled for every step."""
    directions, length, batch, size = inputs.shape
    width = cell.shape[-1]
    gate_inputs = torch.baddbmm(
        weights.bias.unsqueeze(1), inputs.reshape(directions, length * batch, size), weights.inputs.transpose(1, 2)
    ).view(directions, length, batch, 4 * width)
    kept = length if keeps_trace else 1
    gates = inputs.new_empty(kept, directions, batch, 4 * width)
    cells, previous_cells = (inputs.new_empty(kept, directions, batch, width) for _ in range(2))
    projected, previous_hidden = (inputs.new_empty(kept, directions, batch, size) for _ in range(2))
    outputs = inputs.new_empty(length, directions, batch, size)
    trace = Trace(gates, cells, previous_cells, projected, previous_hidden, outputs)
    recurrent = weights.recurrent.transpose(1, 2).contiguous()
    projection = None if weights.projection is None else weights.projection.transpose(1, 2).contiguous()
    memory = torch.empty_like(cell)
    for t in range(length):
        place = t if keeps_trace else 0
        used_hidden, used_cell, step = previous_hidden[place], previous_cells[place], gates[place]
        if flags.keeps is None:
            used_hidden.copy_(hidden)
            used_cell.copy_(cell)
        else:
            torch.mul(hidden, flags.keeps[t], out=used_hidden)
            torch.mul(cell, flags.keeps[t], out=used_cell)
        torch.baddbmm(gate_inputs[:, t], used_hidden, recurrent, out=step)
        step[..., : 2 * width].sigmoid_()
        step[..., 2 * width : 3 * width].tanh_()
        step[..., 3 * width :].sigmoid_()
        input_gate, forget_gate, candidate, output_gate = step.split(width, dim=-1)
        raw_cell = torch.mul(forget_gate, used_cell, out=cells[place]).addcmul_(input_gate, candidate)
        cell = raw_cell if limits.cell is None else raw_cell.clamp(-limits.cell, limits.cell)
        torch.tanh(cell, out=memory).mul_(output_gate)
        raw_hidden = projected[place]
        if projection is None:
            raw_hidden.copy_(memory)
            new_hidden = raw_hidden
        else:
            torch.bmm(memory, projection, out=raw_hidden)
            new_hidden = (
                raw_hidden if limits.projection is None else raw_hidden.clamp(-limits.projection, limits.projection)
            )
        if flags.is_word is not None:
            new_hidden = torch.where(flags.is_word[t], new_hidden, used_hidden)
            cell = torch.where(flags.is_word[t], cell, used_cell)
        hidden = outputs[t].copy_(new_hidden)
    return trace, cell.clone()


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
        flags: Flags,
        limits: Limits,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights = Weights(input_weight, bias, recurrent, projection)
        trace, cell = _steps(inputs, flags, hidden, cell, weights, limits, keeps_trace=True)
        ctx.save_for_backward(inputs, input_weight, recurrent, projection, *flags, *trace)
        ctx.limits = limits
        return trace.hidden, trace.hidden[-1].clone(), cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, recurrent, projection, is_word, keeps, *saved = ctx.saved_tensors
        trace, limits = Trace(*saved), ctx.limits
        directions, length, _, size = inputs.shape
        width = trace.cells.shape[-1]
        input_gate, forget_gate, candidate, output_gate = trace.gates.split(width, dim=-1)
        clipped = trace.cells if limits.cell is None else trace.cells.clamp(-limits.cell, limits.cell)
        tanh_cells = clipped.tanh()
        memory = output_gate * tanh_cells
        # What dm_t is multiplied with to reach a_t, and c_t: the clip's gradient is in both.
        to_cell = tanh_cells.square().neg_().add_(1).mul_(output_gate)
        inside_cell = _inside(trace.cells, limits.cell)
        inside_hidden = None if projection is None else _inside(trace.projected, limits.projection)
        # The factors of dz_t, which become dz_t.
        d_gates = torch.empty_like(trace.gates)
        factors = d_gates.split(width, dim=-1)
        torch.mul(input_gate * (1 - input_gate), candidate, out=factors[0])
        torch.mul(forget_gate * (1 - forget_gate), trace.previous_cells, out=factors[1])
        torch.mul(1 - candidate.square(), input_gate, out=factors[2])
        torch.mul(output_gate * (1 - output_gate), tanh_cells, out=factors[3])
        d_projected = torch.empty_like(trace.projected)
        d_hidden, d_cell = d_hidden.clone(), d_cell.clone()
        for t in range(length - 1, -1, -1):
            d_hidden += d_outputs[t]
            d_raw, d_here = d_hidden, d_cell
            if is_word is not None:
                d_raw, d_here = d_hidden * is_word[t], d_cell * is_word[t]
            torch.mul(d_raw, 1 if inside_hidden is None else inside_hidden[t], out=d_projected[t])
            d_memory = d_projected[t] if projection is None else torch.bmm(d_projected[t], projection)
            d_here = torch.addcmul(d_here, d_memory, to_cell[t])
            if inside_cell is not None:
                d_here.mul_(inside_cell[t])
            d_step = d_gates[t]
            d_step[..., : 3 * width].unflatten(-1, (3, width)).mul_(d_here.unsqueeze(-2))
            d_step[..., 3 * width :].mul_(d_memory)
            before_hidden, before_cell = torch.bmm(d_step, recurrent), d_here.mul_(forget_gate[t])
            if is_word is not None:
                before_hidden = torch.where(is_word[t], before_hidden, d_hidden)
                before_cell = torch.where(is_word[t], before_cell, d_cell)
            if keeps is not None:
                before_hidden, before_cell = before_hidden * keeps[t], before_cell * keeps[t]
            d_hidden, d_cell = before_hidden, before_cell

        rows = _by_direction(d_gates)
        d_projection = None
        if projection is not None:
            d_projection = torch.bmm(_by_direction(d_projected).transpose(1, 2), _by_direction(memory))
        return (
            torch.bmm(rows, input_weight).view(inputs.shape) if ctx.needs_input_grad[0] else None,
            d_hidden,
            d_cell,
            torch.bmm(rows.transpose(1, 2), inputs.reshape(directions, -1, size)),
            rows.sum(dim=1),
            torch.bmm(rows.transpose(1, 2), _by_direction(trace.previous_hidden)),
            d_projection,
            None,
            None,
        )


def _by_direction(tensor: Tensor) -> Tensor:
    """`(T, D, B, n)` to `(D, T B, n)`."""
    return tensor.transpose(0, 1).flatten(1, 2)


def _inside(raw: Tensor, limit: float | None) -> Tensor | None:
    """1 where a clip lets the gradient through, 0 where not; None for no clip."""
    return None if limit is None else (raw.abs() <= limit).to(raw.dtype)
