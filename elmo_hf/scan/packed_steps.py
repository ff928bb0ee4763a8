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

_ACTIVATIONS = torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid  # of i, f, g, o


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
    state_dtype = cell.dtype
    hidden, cell = last_hidden, last_cell = hidden.clone(), cell.to(wide(cell.dtype), copy=True)
    tensors = outputs, order.keeps, *(trace or (None, None, None))
    by_step = [[None] * len(order.columns) if each is None else each.split(order.columns, dim=1) for each in tensors]
    steps = zip(order.columns, _gate_inputs(weights, inputs, order, block_words), *by_step, strict=True)
    for count, gate_inputs, output, keeps, gates, cells, projected in steps:
        if count < hidden.shape[1]:  # the last rows' texts have ended; these rows stay as they are
            hidden, cell = hidden[:, :count], cell[:, :count]
        if keeps is not None:
            hidden.mul_(keeps.unsqueeze(2)), cell.mul_(keeps.unsqueeze(2))
        products = weights.recurrent.times(hidden, gate_inputs).to(cell.dtype).chunk(4, dim=2)
        parts = products if gates is None else gates.chunk(4, dim=2)
        for function, product, part in zip(_ACTIVATIONS, products, parts, strict=True):
            function(product, out=part)
        input_gate, forget_gate, candidate, output_gate = parts
        unlimited = torch.mul(forget_gate, cell, out=cell if cells is None else cells)
        _clip(unlimited.addcmul_(input_gate, candidate), limits.cell, out=cell)
        memory = cell.tanh().mul_(output_gate).to(hidden.dtype)
        unlimited = memory if weights.projection is None else weights.projection.times(memory)
        if projected is not None:
            projected.copy_(unlimited)
        output.copy_(_clip(unlimited, limits.projection, out=hidden))
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


def _clip(tensor: Tensor, limit: float | None, out: Tensor) -> Tensor:
    return out.copy_(tensor) if limit is None else torch.clamp(tensor, -limit, limit, out=out)
