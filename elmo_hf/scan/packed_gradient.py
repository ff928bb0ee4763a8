"""The steps of the packed scan backward; `packed.py` has the equations and the glossary."""

from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from .packed_steps import Trace
from .parameters import Limits
from .reading_order import ReadingOrder

PRODUCT_ROWS, COPIED_ROWS = 1024, 128  # at once, so that they are still in a core's cache when read again


class _Factors(NamedTuple):
    """Factors `(steps, D, ., b_t)` for the gradient of a run, which is all steps with the same b_t."""

    forget_gate: Tensor  # f_t
    to_cell: Tensor  # o_t (1 - tanh^2 c_t)
    inside_cell: Tensor | None  # 1[a_t], or None without a limit
    inside_hidden: Tensor | None  # 1[p_t], or None without a limit
    gates: Tensor  # the factors of dz_t, which each step turns into dz_t in place
    memories: Tensor  # m_t


def run_packed_back(
    trace: Trace,
    order: ReadingOrder,
    d_outputs: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    recurrent_back: Callable[[Tensor], Tensor],
    projection_back: Callable[[Tensor], Tensor] | None,
    limits: Limits,
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs all steps, the last one first; returns dz `(D, 4H, N)`, dp `(D, P, N)` and m `(D, H, N)` of all words.

    `recurrent_back` multiplies `(D, 4H, b)` by W_h^T, `projection_back` `(D, P, b)` by W_p^T, if there is a projection.
    d_hidden `(D, P, B)` and d_cell `(D, H, B)`, the gradients of the last states, become those of the first states.
    """
    (directions, stop, size), width = d_outputs.shape, d_cell.shape[1]
    d_gates, d_projected, memories = (d_outputs.new_empty(directions, n, stop) for n in (4 * width, size, width))
    for count, steps in reversed([(count, len(list(run))) for count, run in groupby(order.columns)]):
        words = slice(stop - steps * count, stop)
        stop = words.start
        factors = _factors(trace, words, count, (directions, size, width), limits)
        of_cell, of_output = factors.gates[:, :, : 3 * width].unflatten(2, (3, width)), factors.gates[:, :, 3 * width :]
        for step in range(steps - 1, -1, -1):
            here = slice(words.start + step * count, words.start + (step + 1) * count)
            d_raw = d_hidden[..., :count] + d_outputs[:, here].transpose(1, 2)
            if factors.inside_hidden is not None:
                d_raw *= factors.inside_hidden[step]
            d_projected[..., here] = d_raw
            d_memory = (d_raw if projection_back is None else projection_back(d_raw)).to(d_cell.dtype)
            d_here = torch.addcmul(d_cell[..., :count], d_memory, factors.to_cell[step])
            if factors.inside_cell is not None:
                d_here *= factors.inside_cell[step]
            of_cell[step] *= d_here.unsqueeze(1)
            of_output[step] *= d_memory
            torch.mul(d_here, factors.forget_gate[step], out=d_cell[..., :count])
            d_hidden[..., :count] = recurrent_back(factors.gates[step].to(d_hidden.dtype))
            if order.keeps is not None:
                d_hidden[..., :count] *= order.keeps[:, None, here]
                d_cell[..., :count] *= order.keeps[:, None, here]
        for of_words, of_steps in ((d_gates, factors.gates), (memories, factors.memories)):
            of_words[..., words].unflatten(2, (steps, count)).copy_(of_steps.permute(1, 2, 0, 3))
    return d_gates, d_projected, memories


def product(first: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
    """`first` `(m, N)` times `second` `(N, n)`, in `dtype`."""
    if first.dtype == dtype:
        return torch.mm(first, second)
    result = first.new_empty(len(first), second.shape[1], dtype=dtype)
    for rows, out in zip(first.split(PRODUCT_ROWS), result.split(PRODUCT_ROWS), strict=True):
        out.copy_(torch.mm(rows, second))
    return result


def transposed(weight: Tensor) -> Tensor:
    """`(..., m, n)` to `(..., n, m)` in memory: products with it are twice as fast as with a view."""
    return torch.cat([rows.mT for rows in weight.split(COPIED_ROWS, dim=-2)], dim=-1)


def _factors(trace: Trace, words: slice, count: int, sizes: tuple[int, int, int], limits: Limits) -> _Factors:
    """Computes the factors of a run; `sizes` are D, P and H."""
    directions, size, width = sizes
    gates = _steps_of(trace.gates, words, directions, 4 * width, count, trace.few_columns)
    input_gate, forget_gate, candidate, output_gate = gates.split(width, dim=2)
    raw_cells = _steps_of(trace.cells, words, directions, width, count, trace.few_columns)
    tanh_cells = raw_cells.tanh() if limits.cell is None else raw_cells.clamp(-limits.cell, limits.cell).tanh_()
    to_cell = tanh_cells.square().neg_().add_(1).mul_(output_gate)
    inside_cell = None if limits.cell is None else raw_cells.abs() <= limits.cell
    inside_hidden = None
    if limits.projection is not None:
        projected = _steps_of(trace.projected, words, directions, size, count, trace.few_columns)
        inside_hidden = projected.abs() <= limits.projection
    factors = torch.empty_like(gates)
    of_input, of_forget, of_candidate, of_output = factors.split(width, dim=2)
    torch.addcmul(input_gate, input_gate, input_gate, value=-1, out=of_input).mul_(candidate)
    previous_cells = _steps_of(trace.previous_cells, words, directions, width, count, trace.few_columns)
    torch.addcmul(forget_gate, forget_gate, forget_gate, value=-1, out=of_forget).mul_(previous_cells)
    torch.addcmul(input_gate, input_gate, candidate.square(), value=-1, out=of_candidate)
    torch.addcmul(output_gate, output_gate, output_gate, value=-1, out=of_output).mul_(tanh_cells)
    return _Factors(forget_gate, to_cell, inside_cell, inside_hidden, factors, tanh_cells.mul_(output_gate))


def _steps_of(memory: Tensor, words: slice, directions: int, height: int, count: int, few_columns: int) -> Tensor:
    """A view `(steps, D, height, count)` of several steps in a buffer of the trace."""
    of_steps = memory[words.start * directions * height : words.stop * directions * height]
    if count < few_columns:
        return of_steps.view(-1, directions, count, height).transpose(2, 3)
    return of_steps.view(-1, directions, height, count)
