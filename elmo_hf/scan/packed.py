"""The packed scan: one biLM layer, both directions in step, words only, with a gradient of its own.

The same numbers as `LSTMP.forward`, which is the reference, up to the order of float sums. Step t of the forward
direction and step t of the backward one (each in its own order of reading) are computed together, for the texts that
have a word there (`reading_order.py`):

    z_t = W_x x_t + b + W_h h_{t-1}     W_x x_t for many t at once; b has the forget bias in it
    c_t = clip(a_t),  a_t = f_t c_{t-1} + i_t g_t        i, f, o = sigmoid, g = tanh of z's four parts
    h_t = clip(p_t),  p_t = W_p m_t,  m_t = o_t tanh(c_t)

Going back, with e_t the gradient of the output at t and 1[.] that of a clip (1 inside the limits, themselves included):

    dp_t = (e_t + dh_t) 1[p_t]        dm_t = W_p^T dp_t         dc_t += dm_t o_t (1 - tanh^2 c_t),  then  dc_t 1[a_t]
    dz_t = (dc_t g_t i_t (1 - i_t), dc_t c_{t-1} f_t (1 - f_t), dc_t i_t (1 - g_t^2), dm_t tanh(c_t) o_t (1 - o_t))
    dh_{t-1} = W_h^T dz_t             dc_{t-1} = dc_t f_t

The gradients of the weights are one product each after the steps. Where the state is reset, h_{t-1} and c_{t-1} are 0.

Words are columns: a step's z is (4H, b_t), and W h is a product of large weights with few columns
(`column_products.py`).

Memory for the gradient: 6H + 3P numbers a word and direction and layer (gates, cells, and vectors of width P); going
back needs about 12H more for a while. Without gradient nothing of the length of the text is kept but the output.

In half precision the products are of half precision, and gates and cells float32.

Glossary: D = 2 directions, B batch, b_t texts that have a word at step t, N words in all, P projection, H cell.
"""

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .column_products import columns_in, lie_as_rows, multiply, multiply_back, num_blocks

# Words whose input gates are computed in one product: enough to be fast; at H = 4096, 8 MiB a direction.
BLOCK_WORDS = 128
# Up to this many bytes of W_h both directions take each step together, which saves calls. Beyond, one direction goes
# after the other, so that its weights stay in the cache from step to step.
JOINT_BYTES = 1 << 22


class Weights(NamedTuple):
    """The parameters of one direction; or of D directions, with D in front of each shape.

    Attributes:
        inputs: `(4H, P)`, W_x.
        bias: `(4H,)`, b, with the forget bias in it.
        recurrent: `(4H, P)`, W_h.
        projection: `(P, H)`, W_p, or None where P = H and nothing is projected.
    """

    inputs: Tensor
    bias: Tensor
    recurrent: Tensor
    projection: Tensor | None


class Limits(NamedTuple):
    """Of clipping; None: no limit."""

    cell: float | None
    projection: float | None


class Trace(NamedTuple):
    """What each step leaves behind for the gradient, step after step in one piece of memory.

    Attributes:
        gates: `(D 4H N,)`, i, f, g, o; a step's part is `(D, 4H, b_t)`.
        cells: `(D H N,)`, a_t, before clipping.
        previous_cells: `(D H N,)`, c_{t-1} as used.
        projected: `(D P N,)`, p_t, before clipping.
    """

    gates: Tensor
    cells: Tensor
    previous_cells: Tensor
    projected: Tensor


def stack(weights: Sequence[Weights]) -> Weights:
    """The parameters of several directions as those of all; those of one keep their place in memory."""

    def of_all(parts: list[Tensor]) -> Tensor:
        return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)

    projections = [direction.projection for direction in weights if direction.projection is not None]
    return Weights(
        of_all([direction.inputs for direction in weights]),
        of_all([direction.bias for direction in weights]),
        of_all([direction.recurrent for direction in weights]),
        of_all(projections) if projections else None,
    )


def scan_packed(
    inputs: Tensor,
    columns: list[int],
    keeps: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    weights: Sequence[Weights],
    limits: Limits,
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs one layer.

    Args:
        inputs: `(D, N, P)`, the words in each direction's order of reading, step by step.
        columns: b_t of every step, never rising.
        keeps: `(D, N)`, False where the state is reset before the word; None: nowhere.
        hidden: `(D, P, B)`, the state before the first step, texts by falling number of words.
        cell: `(D, H, B)`, likewise; may be of another dtype than the rest.
        weights: of each direction.
        limits: of clipping.

    Returns:
        `(D, N, P)`, the state h_t after each word; then `hidden` and `cell` after each text's last word.
    """
    if len(weights) > 1 and weights[0].recurrent.nbytes > JOINT_BYTES:
        outputs, hiddens, cells = zip(
            *(
                scan_packed(
                    inputs[d], columns, None if keeps is None else keeps[d], hidden[d], cell[d], weights[d], limits
                )
                for d in (slice(number, number + 1) for number in range(len(weights)))
            ),
            strict=True,
        )
        return torch.cat(outputs), torch.cat(hiddens), torch.cat(cells)
    joint = stack(weights)
    if torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (inputs, hidden, cell, *joint)
    ):
        return _PackedScan.apply(inputs, hidden, cell, *joint, keeps, columns, limits)
    return _steps(inputs, columns, keeps, hidden, cell, joint, limits, None)


def _steps(
    inputs: Tensor,
    columns: list[int],
    keeps: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    weights: Weights,
    limits: Limits,
    trace: Trace | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps, of directions together; `trace` is filled if there is one. The rest is as in `scan_packed`."""
    last_hidden, last_cell = hidden.clone(), cell.to(_wide(cell.dtype), copy=True)
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
                _step(trace.previous_cells, here, *used_cell.shape[:2]).copy_(used_cell)
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


class _GateInputs:
    """W_x x_t + b of each step's words; the products are computed for many words at once."""

    def __init__(self, weights: Weights, inputs: Tensor, columns: list[int]) -> None:
        """Takes what `scan_packed` is given; nothing is computed yet."""
        directions, num_words, _ = inputs.shape
        self.weight, self.inputs, self.ends = weights.inputs, inputs, list(accumulate(columns))
        self.num_words = min(max([BLOCK_WORDS, *columns]), 2 * num_words)
        self.memory = inputs.new_empty(weights.bias.numel() * self.num_words)
        self.bias = weights.bias.view(directions, num_blocks(self.weight, 2), -1, 1)
        self.start = self.stop = 0

    def put(self, here: slice, out: Tensor) -> None:
        """Writes a step's, `(D, 4H, b_t)`; steps come in their order."""
        if here.stop > self.stop:
            self._compute(here)
        columns = self.products[..., here.start - self.start : here.stop - self.start]
        torch.add(columns, self.bias, out=out.view(*self.bias.shape[:3], -1))

    def _compute(self, here: slice) -> None:
        """Makes `products`, `(D, blocks, 4H / blocks, words)`, of the words of this step and of some after it."""
        directions, blocks, rows, _ = self.bias.shape
        as_rows = lie_as_rows(directions, here.stop - here.start)
        most = max(here.stop, here.start + self.num_words // (2 if as_rows else 1))
        self.start, self.stop = here.start, max(end for end in self.ends if end <= most)
        words = self.inputs[:, self.start : self.stop].transpose(1, 2)
        products = columns_in(self.memory, directions, blocks * rows, words.shape[2])
        multiply(self.weight, words, products)
        self.products = products.view(directions, blocks, rows, -1)
        if as_rows and 2 * products.numel() <= self.memory.numel():
            # Steps of few columns would read little from many places: in each block, a word's numbers come together.
            other_half = self.memory[products.numel() : 2 * products.numel()]
            by_words = other_half.view(directions, blocks, -1, rows).transpose(2, 3)
            self.products = by_words.copy_(self.products)


class _Place(NamedTuple):
    """Where a step computes what; each is `(D, rows, b_t)`.

    Attributes:
        products: W_x x_t + b + W_h h_{t-1}, in the dtype of the weights.
        gates: the same memory, or another in the dtype of cells; the next five are parts of it.
        raw_cell: a_t, before clipping; may be the memory of `cell`.
        tanh_cell: tanh(c_t).
        memory: m_t.
        raw_hidden: p_t, before clipping; may be the memory of `hidden`.
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
    """Memory for the steps of a scan, which use as much of the beginnings as they have texts.

    Steps of a run, which have as many texts, compute in place; cells of even and of odd runs take turns.
    """

    def __init__(self, hidden: Tensor, cell: Tensor) -> None:
        """Takes the states of all texts, as they are computed with."""
        self.directions, self.size, self.width = len(hidden), hidden.shape[1], cell.shape[1]
        self.products = hidden.new_empty(4 * cell.numel())
        self.gates = None if cell.dtype == hidden.dtype else cell.new_empty(4 * cell.numel())
        self.cells, self.tanh_cells = cell.new_empty(2, cell.numel()), cell.new_empty(cell.numel())
        self.memories, self.hidden = hidden.new_empty(cell.numel()), hidden.new_empty(hidden.numel())

    def place(self, run: int, count: int, trace: Trace | None, here: slice) -> _Place:
        """The place of a run's steps; or of one step, parts of which stay in the trace."""
        cell, tanh_cell, memory = (
            columns_in(memory, self.directions, self.width, count)
            for memory in (self.cells[run % 2], self.tanh_cells, self.memories)
        )
        hidden = columns_in(self.hidden, self.directions, self.size, count)
        products = columns_in(self.products, self.directions, 4 * self.width, count)
        if trace is not None:
            gates = _step(trace.gates, here, self.directions, 4 * self.width)
            raw_cell = _step(trace.cells, here, self.directions, self.width)
            raw_hidden = _step(trace.projected, here, self.directions, self.size)
            if gates.dtype == products.dtype:
                products = gates
        else:
            raw_cell, raw_hidden = cell, hidden
            gates = products if self.gates is None else columns_in(self.gates, self.directions, 4 * self.width, count)
        input_gate, forget_gate, candidate, output_gate = gates.split(self.width, dim=1)
        return _Place(
            products=products,
            gates=gates,
            input_and_forget_gate=gates[:, : 2 * self.width],
            input_gate=input_gate,
            forget_gate=forget_gate,
            candidate=candidate,
            output_gate=output_gate,
            raw_cell=raw_cell,
            cell=cell,
            tanh_cell=tanh_cell,
            memory=memory,
            raw_hidden=raw_hidden,
            hidden=hidden,
        )


class _PackedScan(torch.autograd.Function):
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
        keeps: Tensor | None,
        columns: list[int],
        limits: Limits,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (directions, num_words, size), width = inputs.shape, cell.shape[1]
        wide = inputs.new_empty(0, dtype=_wide(cell.dtype))
        trace = Trace(
            wide.new_empty(directions * 4 * width * num_words),
            wide.new_empty(directions * width * num_words),
            wide.new_empty(directions * width * num_words),
            inputs.new_empty(directions * size * num_words),
        )
        weights = Weights(input_weight, bias, recurrent, projection)
        outputs, last_hidden, last_cell = _steps(inputs, columns, keeps, hidden, cell, weights, limits, trace)
        ctx.save_for_backward(inputs, hidden, input_weight, recurrent, projection, keeps, outputs, *trace)
        ctx.columns, ctx.limits = columns, limits
        return outputs, last_hidden, last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, hidden, input_weight, recurrent, projection, keeps, outputs, *saved = ctx.saved_tensors
        trace, columns, limits = Trace(*saved), ctx.columns, ctx.limits
        (directions, num_words, size), width = inputs.shape, d_cell.shape[1]
        # Columns of texts that ended before a step still hold the gradient of their last state.
        state_dtype = d_cell.dtype
        d_hidden, d_cell = d_hidden.clone(), d_cell.to(_wide(state_dtype), copy=True)
        d_gates = inputs.new_empty(directions, 4 * width, num_words)
        d_projected = inputs.new_empty(directions, size, num_words)
        memories = inputs.new_empty(directions, width, num_words)
        stop = num_words
        for count, steps in reversed([(count, len(list(run))) for count, run in groupby(columns)]):
            words = slice(stop - steps * count, stop)
            stop = words.start
            # What does not depend on the gradients, for all steps that have as many texts: (steps, D, rows, b_t).
            gates = _steps_of(trace.gates, words, directions, 4 * width, count)
            input_gate, forget_gate, candidate, output_gate = gates.split(width, dim=2)
            raw_cells = _steps_of(trace.cells, words, directions, width, count)
            tanh_cells = raw_cells.tanh() if limits.cell is None else raw_cells.clamp(-limits.cell, limits.cell).tanh_()
            # What dm_t is multiplied with to reach a_t, and c_t: the clip's gradient is in both.
            to_cell = tanh_cells.square().neg_().add_(1).mul_(output_gate)
            inside_cell = None if limits.cell is None else raw_cells.abs() <= limits.cell
            inside_hidden = None
            if projection is not None and limits.projection is not None:
                inside_hidden = _steps_of(trace.projected, words, directions, size, count).abs() <= limits.projection
            # The factors of dz_t, which become dz_t.
            factors = torch.empty_like(gates)
            of_input, of_forget, of_candidate, of_output = factors.split(width, dim=2)
            torch.addcmul(input_gate, input_gate, input_gate, value=-1, out=of_input).mul_(candidate)
            torch.addcmul(forget_gate, forget_gate, forget_gate, value=-1, out=of_forget).mul_(
                _steps_of(trace.previous_cells, words, directions, width, count)
            )
            torch.addcmul(input_gate, input_gate, candidate.square(), value=-1, out=of_candidate)
            torch.addcmul(output_gate, output_gate, output_gate, value=-1, out=of_output).mul_(tanh_cells)
            of_cell = factors[:, :, : 3 * width].unflatten(2, (3, width))
            for step in range(steps - 1, -1, -1):
                here = slice(words.start + step * count, words.start + (step + 1) * count)
                d_raw = d_hidden[..., :count] + d_outputs[:, here].transpose(1, 2)
                if inside_hidden is not None:
                    d_raw *= inside_hidden[step]
                d_projected[..., here] = d_raw
                d_memory = d_raw if projection is None else multiply_back(projection, d_raw)
                d_here = torch.addcmul(d_cell[..., :count], d_memory, to_cell[step])
                if inside_cell is not None:
                    d_here *= inside_cell[step]
                of_cell[step] *= d_here.unsqueeze(1)
                of_output[step] *= d_memory
                torch.mul(d_here, forget_gate[step], out=d_cell[..., :count])
                d_hidden[..., :count] = multiply_back(recurrent, factors[step].to(recurrent.dtype))
                if keeps is not None:
                    d_hidden[..., :count] *= keeps[:, None, here]
                    d_cell[..., :count] *= keeps[:, None, here]
            for kept, rows in ((d_gates, factors), (memories, tanh_cells.mul_(output_gate))):
                kept[..., words].unflatten(2, (steps, count)).copy_(rows.permute(1, 2, 0, 3))

        previous_hidden = _previous(outputs, hidden, columns)
        if keeps is not None:
            previous_hidden = previous_hidden * keeps.unsqueeze(-1)
        return (
            torch.bmm(d_gates.transpose(1, 2), input_weight) if ctx.needs_input_grad[0] else None,
            d_hidden,
            d_cell.to(state_dtype),
            torch.bmm(d_gates, inputs),
            d_gates.sum(dim=2),
            torch.bmm(d_gates, previous_hidden),
            None if projection is None else torch.bmm(d_projected, memories.transpose(1, 2)),
            None,
            None,
            None,
        )


def _previous(outputs: Tensor, hidden: Tensor, columns: list[int]) -> Tensor:
    """`(D, N, P)`, the state before each word: `hidden` before the first ones, and then the outputs one step back."""
    ends = [0, *accumulate(columns)]
    before = [outputs[:, start : start + count] for start, count in zip(ends, columns[1:], strict=False)]
    return torch.cat([hidden.transpose(1, 2)[:, : max(columns, default=0)], *before], dim=1)


def _step(memory: Tensor, words: slice, directions: int, rows: int) -> Tensor:
    """A step's part, `(D, rows, b_t)`, of what is kept of all words."""
    return columns_in(memory[words.start * directions * rows :], directions, rows, words.stop - words.start)


def _steps_of(memory: Tensor, words: slice, directions: int, rows: int, count: int) -> Tensor:
    """Several steps' parts, `(steps, D, rows, count)`, of what is kept of all words."""
    of_steps = memory[words.start * directions * rows : words.stop * directions * rows]
    if lie_as_rows(directions, count):
        return of_steps.view(-1, directions, count, rows).transpose(2, 3)
    return of_steps.view(-1, directions, rows, count)


def _clipped(raw: Tensor, limit: float | None, out: Tensor) -> Tensor:
    return raw if limit is None else torch.clamp(raw, -limit, limit, out=out)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
