"""The steps of the packed scan forward; `packed.py` has the equations and the glossary.

Without gradient all steps of a run, those with equal b_t, compute in the same memory. With gradient each step leaves a
`Trace`.
"""

from bisect import bisect_right
from itertools import accumulate, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from .parameters import Limits
from .products import BlockProducts, WeightProducts, columns_in
from .reading_order import ReadingOrder


class Trace(NamedTuple):
    """The tensors that the steps keep for the gradient; each buffer holds one step after the other."""

    gates: Tensor  # (D 4H N,), i, f, g, o; the part of a step is (D, 4H, b_t)
    cells: Tensor  # (D H N,), a_t, before clipping
    previous_cells: Tensor  # (D H N,), c_{t-1}, zero where the state is reset
    projected: Tensor  # (D P N,), p_t, before clipping
    few_columns: int  # a step with fewer texts stores each column as a row


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

    Writes h_t after each word to outputs `(D, N, P)` and fills `trace`, if given. Takes hidden `(D, P, B)` and cell
    `(D, H, B)` before the first step, and returns them after each text's last word, in the same shapes. The texts are
    in the order of `order.texts`; the cell may have another dtype than the rest.
    """
    last_hidden, last_cell = hidden.clone(), cell.to(wide(cell.dtype), copy=True)
    state_dtype, cell = cell.dtype, last_cell
    gate_inputs, place = (
        _GateInputs(weights, inputs, order.columns, block_words),
        _PackedWorkspace(hidden, cell, weights.recurrent),
    )
    runs = [(count, len(list(same))) for count, same in groupby(order.columns)]
    stop = 0
    for run, (count, steps) in enumerate(runs):
        used_hidden, used_cell = hidden[..., :count], cell[..., :count]
        for step in range(steps):
            here = slice(stop, stop + count)
            stop = here.stop
            if step == 0 or trace is not None:
                place.move(run, count, trace, here)
            if order.keeps is not None:
                used_hidden, used_cell = (used * order.keeps[:, None, here] for used in (used_hidden, used_cell))
            if trace is not None:
                as_rows = count < trace.few_columns
                _part(trace.previous_cells, here, place.directions, place.width, as_rows).copy_(used_cell)
            gate_inputs.put(here, place.products)
            weights.recurrent.multiply(used_hidden, place.products, adds=True)
            if place.gates is not place.products:
                place.gates.copy_(place.products)
            place.input_and_forget_gate.sigmoid_()
            place.candidate.tanh_()
            place.output_gate.sigmoid_()
            torch.mul(place.forget_gate, used_cell, out=place.raw_cell).addcmul_(place.input_gate, place.candidate)
            cell = used_cell = _clipped(place.raw_cell, limits.cell, place.cell)
            torch.tanh(cell, out=place.tanh_cell)
            if weights.projection is None:
                torch.mul(place.tanh_cell, place.output_gate, out=place.raw_hidden)
            else:
                torch.mul(place.tanh_cell, place.output_gate, out=place.memory)
                weights.projection.multiply(place.memory, place.raw_hidden)
            hidden = used_hidden = _clipped(place.raw_hidden, limits.projection, place.hidden)
            outputs[:, here] = hidden.transpose(1, 2)
        remaining = runs[run + 1][0] if run + 1 < len(runs) else 0
        last_hidden[..., remaining:count] = hidden[..., remaining:]
        last_cell[..., remaining:count] = cell[..., remaining:]
    return last_hidden, last_cell.to(state_dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and cells, at least float32."""
    return torch.promote_types(dtype, torch.float32)


class _GateInputs:
    """W_x x_t + b of each step; one product computes many words."""

    def __init__(self, weights: WeightProducts, inputs: Tensor, columns: list[int], block_words: int) -> None:
        directions, num_words, _ = inputs.shape
        self.weight, self.inputs, self.ends = weights.inputs, inputs, list(accumulate(columns))
        self.num_words = min(max([block_words, *columns]), 2 * num_words)
        self.memory = inputs.new_empty(weights.bias.numel() * self.num_words)
        self.bias = weights.bias.view(directions, self.weight.num_blocks(2), -1, 1)
        self.start = self.stop = 0

    def put(self, here: slice, out: Tensor) -> None:
        """Writes `(D, 4H, b_t)` of the next step."""
        if here.stop > self.stop:
            self._compute(here)
        columns = self.products[..., here.start - self.start : here.stop - self.start]
        torch.add(columns, self.bias, out=out.view(*self.bias.shape[:3], -1))

    def _compute(self, here: slice) -> None:
        """Makes `products`, `(D, blocks, 4H / blocks, words)`, for this step and some after it."""
        directions, blocks, height, _ = self.bias.shape
        as_rows = self.weight.wants_rows(here.stop - here.start)
        most = max(here.stop, here.start + self.num_words // (2 if as_rows else 1))
        self.start, self.stop = here.start, self.ends[bisect_right(self.ends, most) - 1]
        words = self.inputs[:, self.start : self.stop].transpose(1, 2)
        count = words.shape[2]
        products = columns_in(self.memory, directions, blocks * height, count, self.weight.wants_rows(count))
        self.weight.multiply(words, products)
        self.products = products.view(directions, blocks, height, -1)
        if as_rows and not self.weight.wants_rows(count) and 2 * products.numel() <= self.memory.numel():
            # Steps with few columns would make scattered reads, so the numbers of a word are gathered in each block.
            other_half = self.memory[products.numel() : 2 * products.numel()]
            by_words = other_half.view(directions, blocks, -1, height).transpose(2, 3)
            self.products = by_words.copy_(self.products)


class _PackedWorkspace:
    """Buffers for the steps of a scan, and views `(D, ., b_t)` of the beginning of each buffer for one step.

    Views may share memory: gates and products, raw_cell (a_t) and cell (c_t), raw_hidden (p_t) and hidden (h_t). The
    cells of even and odd runs alternate. Gates and cells are at least float32.
    """

    def __init__(self, hidden: Tensor, cell: Tensor, recurrent: BlockProducts) -> None:
        self.recurrent = recurrent
        self.directions, self.size, self.width = len(hidden), hidden.shape[1], cell.shape[1]
        self.all_products = hidden.new_empty(4 * cell.numel())
        self.all_gates = None if cell.dtype == hidden.dtype else cell.new_empty(4 * cell.numel())
        self.all_cells, self.all_tanh_cells = cell.new_empty(2, cell.numel()), cell.new_empty(cell.numel())
        self.all_memories, self.all_hidden = hidden.new_empty(cell.numel()), hidden.new_empty(hidden.numel())

    def move(self, run: int, count: int, trace: Trace | None, here: slice) -> None:
        """Sets the views for all steps of a run, or with a trace for the one step `here`."""
        directions, size, width = self.directions, self.size, self.width
        as_rows = self.recurrent.wants_rows(count) if trace is None else count < trace.few_columns
        self.cell, self.tanh_cell, self.memory = (
            columns_in(memory, directions, width, count, as_rows)
            for memory in (self.all_cells[run % 2], self.all_tanh_cells, self.all_memories)
        )
        self.hidden = columns_in(self.all_hidden, directions, size, count, as_rows)
        self.products = self.gates = columns_in(self.all_products, directions, 4 * width, count, as_rows)
        self.raw_cell, self.raw_hidden = self.cell, self.hidden
        if trace is not None:
            self.gates = _part(trace.gates, here, directions, 4 * width, as_rows)
            self.raw_cell = _part(trace.cells, here, directions, width, as_rows)
            self.raw_hidden = _part(trace.projected, here, directions, size, as_rows)
            if self.gates.dtype == self.products.dtype:
                self.products = self.gates
        elif self.all_gates is not None:
            self.gates = columns_in(self.all_gates, directions, 4 * width, count, as_rows)
        self.input_and_forget_gate = self.gates[:, : 2 * width]
        self.input_gate, self.forget_gate, self.candidate, self.output_gate = self.gates.split(width, dim=1)


def _part(memory: Tensor, words: slice, directions: int, height: int, as_rows: bool) -> Tensor:
    """A view `(D, height, b_t)` of one step in a buffer of the trace."""
    count = words.stop - words.start
    return columns_in(memory[words.start * directions * height :], directions, height, count, as_rows)


def _clipped(raw: Tensor, limit: float | None, out: Tensor) -> Tensor:
    return raw if limit is None else torch.clamp(raw, -limit, limit, out=out)
