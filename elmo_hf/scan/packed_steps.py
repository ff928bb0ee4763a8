"""The steps of the packed scan forward; `packed.py` has the equations and the glossary."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from .parameters import Limits
from .products import WeightProducts
from .reading_order import ReadingOrder


class Trace(NamedTuple):
    """The tensors that a scan keeps for its gradient, each for all words in reading order."""

    gates: Tensor  # (D, N, 4H), i, f, g, o; at least float32
    cells: Tensor  # (D, N, H), a_t, before clipping; at least float32
    projected: Tensor  # (D, N, P), p_t, before clipping

    def part(self, directions: slice) -> "Trace":
        """The part of some directions."""
        return Trace(*(tensor[directions] for tensor in self))


def run_packed(
    inputs: Tensor,
    outputs: Tensor,
    order: ReadingOrder,
    hidden: Tensor,
    cell: Tensor,
    weights: WeightProducts,
    limits: Limits,
    block_words: int,
    trace: Trace | None,
) -> tuple[Tensor, Tensor]:
    """Runs all steps over inputs `(D, N, P)`, each direction in its reading order.

    Writes h_t after each word to outputs `(D, N, P)` and fills `trace`, if given. Takes hidden `(D, B, P)` and cell
    `(D, B, H)` before the first step, and returns them after each text's last word, in the same shapes. The texts are
    in the order of `order.texts`; the cell may have another dtype than the rest.
    """
    width, state_dtype = cell.shape[2], cell.dtype
    last_hidden, last_cell = hidden.clone(), cell.to(wide(cell.dtype), copy=True)
    cell, stop = last_cell, 0
    steps = zip(order.columns, [*order.columns, 0][1:], _gate_inputs(weights, inputs, order, block_words), strict=True)
    for count, remaining, gate_inputs in steps:
        here, stop = slice(stop, stop + count), stop + count
        hidden, cell = hidden[:, :count], cell[:, :count]
        if order.keeps is not None:
            hidden, cell = (state * order.keeps[:, here, None] for state in (hidden, cell))
        products = weights.recurrent.times(hidden, gate_inputs).to(cell.dtype)
        gates = products if trace is None else trace.gates[:, here]
        parts = (each.tensor_split((2 * width, 3 * width), dim=2) for each in (products, gates))
        for function, source, out in zip((torch.sigmoid, torch.tanh, torch.sigmoid), *parts, strict=True):
            function(source, out=out)
        input_gate, forget_gate, candidate, output_gate = gates.split(width, dim=2)
        cell = torch.mul(forget_gate, cell, out=None if trace is None else trace.cells[:, here])
        cell = _clipped(cell.addcmul_(input_gate, candidate), limits.cell)
        hidden = (cell.tanh() * output_gate).to(hidden.dtype)
        if weights.projection is not None:
            hidden = weights.projection.times(hidden)
        if trace is not None:
            trace.projected[:, here] = hidden
        outputs[:, here] = hidden = _clipped(hidden, limits.projection)
        last_hidden[:, remaining:count], last_cell[:, remaining:count] = hidden[:, remaining:], cell[:, remaining:]
    return last_hidden, last_cell.to(state_dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and cells, at least float32."""
    return torch.promote_types(dtype, torch.float32)


def _gate_inputs(weights: WeightProducts, inputs: Tensor, order: ReadingOrder, block_words: int) -> Iterator[Tensor]:
    """W_x x_t + b `(D, b_t, 4H)` of each step; one product computes all words of several steps."""
    ends, start, step = list(accumulate(order.columns)), 0, 0
    while step < len(ends):
        next_step = max(step + 1, bisect_right(ends, start + block_words))
        products = weights.inputs.times(inputs[:, start : ends[next_step - 1]], weights.bias)
        yield from products.split(order.columns[step:next_step], dim=1)
        start, step = ends[next_step - 1], next_step


def _clipped(tensor: Tensor, limit: float | None) -> Tensor:
    return tensor if limit is None else tensor.clamp(-limit, limit)
