"""The steps of the packed scan forward; `packed.py` has the equations and the glossary.

Without gradient a run, the steps with b_t texts each, computes in the same memory at every step. With gradient each
step leaves a `Trace`.
"""

from itertools import accumulate, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from .column_products import columns_in, multiply, num_blocks, stored_as_rows
from .parameters import Limits, Weights

# Words whose W_x x_t is computed in one product: enough to be fast; at H = 4096, 8 MiB a direction.
BLOCK_WORDS = 128


class Trace(NamedTuple):
    """What the steps leave for the gradient, step after step in one piece of memory.

    Attributes:
        gates: `(D 4H N,)`, i, f, g, o; the part of a step is `(D, 4H, b_t)`.
        cells: `(D H N,)`, a_t, before clipping.
        previous_cells: `(D H N,)`, c_{t-1}, zero where the state is reset.
        projected: `(D P N,)`, p_t, before clipping.
    """

    gates: Tensor
    cells: Tensor
    previous_cells: Tensor
    projected: Tensor


def run_packed(
    inputs: Tensor,
    columns: list[int],
    keeps: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    weights: Weights,
    limits: Limits,
    trace: Trace | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs all steps and fills `trace`, if given; the rest is as in `scan_packed`."""
    last_hidden, last_cell = hidden.clone(), cell.to(wide(cell.dtype), copy=True)
    state_dtype, cell = cell.dtype, last_cell
    outputs = torch.empty_like(inputs)
    gate_inputs = _GateInputs(weights, inputs, columns)
    workspace = _PackedWorkspace(hidden, cell)
    runs = [(count, len(list(same))) for count, same in groupby(columns)]
    stop = 0
    for run, (count, steps) in enumerate(runs):
        place = None
        used_hidden, used_cell = hidden[..., :count], cell[..., :count]
        for _ in range(steps):
            here = slice(stop, stop + count)
            stop = here.stop
            if place is None or trace is not None:
                place = workspace.place(run, count, trace, here)
            if keeps is not None:
                used_hidden, used_cell = (used * keeps[:, None, here] for used in (used_hidden, used_cell))
            if trace is not None:
                _part(trace.previous_cells, here, *used_cell.shape[:2]).copy_(used_cell)
            gate_inputs.put(here, place.products)
            multiply(weights.recurrent, used_hidden, place.products, adds=True)
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
                multiply(weights.projection, place.memory, place.raw_hidden)
            hidden = used_hidden = _clipped(place.raw_hidden, limits.projection, place.hidden)
            outputs[:, here] = hidden.transpose(1, 2)
        remaining = runs[run + 1][0] if run + 1 < len(runs) else 0
        last_hidden[..., remaining:count] = hidden[..., remaining:]
        last_cell[..., remaining:count] = cell[..., remaining:]
    return outputs, last_hidden, last_cell.to(state_dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and cells, at least float32."""
    return torch.promote_types(dtype, torch.float32)


class _GateInputs:
    """W_x x_t + b of each step, with the products of many words computed at once."""

    def __init__(self, weights: Weights, inputs: Tensor, columns: list[int]) -> None:
        """Takes what `scan_packed` takes; computes nothing yet."""
        directions, num_words, _ = inputs.shape
        self.weight, self.inputs, self.ends = weights.inputs, inputs, list(accumulate(columns))
        self.num_words = min(max([BLOCK_WORDS, *columns]), 2 * num_words)
        self.memory = inputs.new_empty(weights.bias.numel() * self.num_words)
        self.bias = weights.bias.view(directions, num_blocks(self.weight, 2), -1, 1)
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
        as_rows = stored_as_rows(directions, here.stop - here.start)
        most = max(here.stop, here.start + self.num_words // (2 if as_rows else 1))
        self.start, self.stop = here.start, max(end for end in self.ends if end <= most)
        words = self.inputs[:, self.start : self.stop].transpose(1, 2)
        products = columns_in(self.memory, directions, blocks * height, words.shape[2])
        multiply(self.weight, words, products)
        self.products = products.view(directions, blocks, height, -1)
        if as_rows and 2 * products.numel() <= self.memory.numel():
            # Steps with few columns would make scattered reads, so the numbers of a word are gathered in each block.
            other_half = self.memory[products.numel() : 2 * products.numel()]
            by_words = other_half.view(directions, blocks, -1, height).transpose(2, 3)
            self.products = by_words.copy_(self.products)


class _Place(NamedTuple):
    """Memory of one step, each `(D, ., b_t)`.

    These may share memory: gates and products, raw_cell (a_t) and cell (c_t), raw_hidden (p_t) and hidden (h_t). The
    gates of each name are views of `gates`. `gates` and the cells are at least float32.
    """

    products: Tensor
    gates: Tensor
    input_and_forget_gate: Tensor
    input_gate: Tensor
    forget_gate: Tensor
    candidate: Tensor
    output_gate: Tensor
    raw_cell: Tensor
    cell: Tensor
    tanh_cell: Tensor
    memory: Tensor
    raw_hidden: Tensor
    hidden: Tensor


class _PackedWorkspace:
    """Memory for the steps of a scan; a step uses the beginning. Cells of even and odd runs alternate."""

    def __init__(self, hidden: Tensor, cell: Tensor) -> None:
        """Takes the states of all texts, in the dtypes of the computation."""
        self.directions, self.size, self.width = len(hidden), hidden.shape[1], cell.shape[1]
        self.products = hidden.new_empty(4 * cell.numel())
        self.gates = None if cell.dtype == hidden.dtype else cell.new_empty(4 * cell.numel())
        self.cells, self.tanh_cells = cell.new_empty(2, cell.numel()), cell.new_empty(cell.numel())
        self.memories, self.hidden = hidden.new_empty(cell.numel()), hidden.new_empty(hidden.numel())

    def place(self, run: int, count: int, trace: Trace | None, here: slice) -> _Place:
        """The memory of all steps of a run; or of one step, if a trace keeps part of it."""
        cell, tanh_cell, memory = (
            columns_in(memory, self.directions, self.width, count)
            for memory in (self.cells[run % 2], self.tanh_cells, self.memories)
        )
        hidden = columns_in(self.hidden, self.directions, self.size, count)
        products = columns_in(self.products, self.directions, 4 * self.width, count)
        if trace is not None:
            gates = _part(trace.gates, here, self.directions, 4 * self.width)
            raw_cell = _part(trace.cells, here, self.directions, self.width)
            raw_hidden = _part(trace.projected, here, self.directions, self.size)
            if gates.dtype == products.dtype:
                products = gates
        else:
            raw_cell, raw_hidden = cell, hidden
            gates = products if self.gates is None else columns_in(self.gates, self.directions, 4 * self.width, count)
        pair, (i, f, g, o) = gates[:, : 2 * self.width], gates.split(self.width, dim=1)
        return _Place(products, gates, pair, i, f, g, o, raw_cell, cell, tanh_cell, memory, raw_hidden, hidden)


def _part(memory: Tensor, words: slice, directions: int, height: int) -> Tensor:
    """The part of a step, `(D, height, b_t)`, of what the trace keeps of all words."""
    return columns_in(memory[words.start * directions * height :], directions, height, words.stop - words.start)


def _clipped(raw: Tensor, limit: float | None, out: Tensor) -> Tensor:
    return raw if limit is None else torch.clamp(raw, -limit, limit, out=out)
