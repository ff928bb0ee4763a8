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

Words are columns: a step's z is (4H, b_t), and W h is a product of the weights as they lie in `nn.Linear` with a few
columns. Such a product is as fast as memory allows only if the rows of W come in blocks of the size of a core's cache,
which also spreads them over the cores; so it is one batched product of blocks, and nothing is copied or laid out anew.

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

# Words whose input gates are computed in one product: enough to be fast; at H = 4096, 8 MiB a direction.
BLOCK_WORDS = 128
# Up to this many bytes of W_h both directions take each step together, which saves calls. Beyond, one direction goes
# after the other, so that its weights stay in the cache from step to step.
JOINT_BYTES = 1 << 22
# Bytes of weights in one block of a product. Half of the smallest second-level cache of today's servers.
BLOCK_BYTES = 1 << 19
# Below this many columns, a product in blocks is faster if vectors are rows.
FEW_COLUMNS = 8


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


def scan(
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
                scan(inputs[d], columns, None if keeps is None else keeps[d], hidden[d], cell[d], weights[d], limits)
                for d in (slice(number, number + 1) for number in range(len(weights)))
            ),
            strict=True,
        )
        return torch.cat(outputs), torch.cat(hiddens), torch.cat(cells)
    joint = stack(weights)
    if torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (inputs, hidden, cell, *joint)
    ):
        return _Scan.apply(inputs, hidden, cell, *joint, keeps, columns, limits)
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
    """All steps, of directions together; `trace` is filled if there is one. The rest is as in `scan`."""
    (directions, size, batch), width = hidden.shape, cell.shape[1]
    last_hidden, last_cell = hidden.clone(), cell.to(_wide(cell.dtype), copy=True)
    state_dtype, cell = cell.dtype, last_cell
    outputs = torch.empty_like(inputs)
    ends = [0, *accumulate(columns)]
    # Steps write into the beginnings of these; cells of even and of odd steps take turns.
    all_gates, all_memories, all_hidden = (
        inputs.new_empty(directions * rows * batch) for rows in (4 * width, width, size)
    )
    all_cells = last_cell.new_empty(2, directions * width * batch)
    all_tanh_cells = torch.empty_like(all_cells[0])
    block_words = min(max(BLOCK_WORDS, batch), inputs.shape[1])
    of_block, block = inputs.new_empty(directions * 4 * width * block_words), slice(0, 0)
    for t, count in enumerate(columns):
        here = slice(ends[t], ends[t + 1])
        if here.stop > block.stop:
            block = slice(here.start, max(end for end in ends if end <= here.start + block_words))
            gate_inputs = of_block[: directions * 4 * width * (block.stop - block.start)].view(
                directions, 4 * width, -1
            )
            _multiply(weights.inputs, inputs[:, block].transpose(1, 2), gate_inputs)
        used_hidden, used_cell = hidden[..., :count], cell[..., :count]
        if keeps is not None:
            used_hidden, used_cell = (used * keeps[:, None, here] for used in (used_hidden, used_cell))
        gates = _first(all_gates, directions, 4 * width, count)
        raw_cell = clipped_cell = _first(all_cells[t % 2], directions, width, count)
        raw_hidden = clipped_hidden = _first(all_hidden, directions, size, count)
        if trace is not None:
            raw_cell, raw_hidden = (
                _step(trace.cells, here, directions, width),
                _step(trace.projected, here, directions, size),
            )
            _step(trace.previous_cells, here, directions, width).copy_(used_cell)
            if trace.gates.dtype == gates.dtype:
                gates = _step(trace.gates, here, directions, 4 * width)
        here_in_block = slice(here.start - block.start, here.stop - block.start)
        torch.add(gate_inputs[..., here_in_block], weights.bias.unsqueeze(-1), out=gates)
        _multiply(weights.recurrent, used_hidden, gates, adds=True)
        if gates.dtype != cell.dtype:
            wide_gates = None if trace is None else _step(trace.gates, here, directions, 4 * width)
            gates = gates.to(cell.dtype) if wide_gates is None else wide_gates.copy_(gates)
        gates[:, : 2 * width].sigmoid_()
        gates[:, 2 * width : 3 * width].tanh_()
        gates[:, 3 * width :].sigmoid_()
        input_gate, forget_gate, candidate, output_gate = gates.split(width, dim=1)
        torch.mul(forget_gate, used_cell, out=raw_cell).addcmul_(input_gate, candidate)
        cell = _clip(raw_cell, limits.cell, clipped_cell)
        tanh_cell = torch.tanh(cell, out=_first(all_tanh_cells, directions, width, count))
        if weights.projection is None:
            torch.mul(tanh_cell, output_gate, out=raw_hidden)
        else:
            memory = torch.mul(tanh_cell, output_gate, out=_first(all_memories, directions, width, count))
            _multiply(weights.projection, memory, raw_hidden)
        hidden = _clip(raw_hidden, limits.projection, clipped_hidden)
        outputs[:, here] = hidden.transpose(1, 2)
        remaining = columns[t + 1] if t + 1 < len(columns) else 0
        if remaining < count:
            last_hidden[..., remaining:count] = hidden[..., remaining:]
            last_cell[..., remaining:count] = cell[..., remaining:]
    return outputs, last_hidden, last_cell.to(state_dtype)


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
                d_memory = d_raw if projection is None else _multiply_back(projection, d_raw)
                d_here = torch.addcmul(d_cell[..., :count], d_memory, to_cell[step])
                if inside_cell is not None:
                    d_here *= inside_cell[step]
                of_cell[step] *= d_here.unsqueeze(1)
                of_output[step] *= d_memory
                torch.mul(d_here, forget_gate[step], out=d_cell[..., :count])
                d_hidden[..., :count] = _multiply_back(recurrent, factors[step].to(recurrent.dtype))
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


def _multiply(weight: Tensor, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
    """`out` `(D, m, b)` becomes `weight` `(D, m, n)` times `vectors` `(D, n, b)`, or with `adds` has it added.

    Large weights are of one direction, and multiplied in blocks of rows.
    """
    blocks = _num_blocks(weight, vectors)
    if len(weight) == vectors.shape[2] == 1:
        torch.addmm(out[0], weight[0], vectors[0], beta=int(adds), out=out[0])
        return
    if blocks > 1 and vectors.shape[2] < FEW_COLUMNS:
        few = vectors[0].t().contiguous().expand(blocks, -1, -1)  # (blocks, b, n)
        product = torch.bmm(few, weight[0].unflatten(0, (blocks, -1)).transpose(1, 2)).transpose(0, 1)
        rows = out[0].t().unflatten(1, (blocks, -1))  # (b, blocks, m / blocks)
        if adds:
            rows += product
        else:
            rows.copy_(product)
        return
    if blocks > 1:
        weight, out = weight[0].unflatten(0, (blocks, -1)), out[0].unflatten(0, (blocks, -1))
        vectors = vectors[0].contiguous().expand(blocks, -1, -1)
    torch.baddbmm(out, weight, vectors, beta=int(adds), out=out)


def _multiply_back(weight: Tensor, vectors: Tensor) -> Tensor:
    """The transpose of `weight` `(D, m, n)` times `vectors` `(D, m, b)`: `(D, n, b)`."""
    blocks = _num_blocks(weight, vectors)
    if blocks == 1:
        return torch.bmm(vectors.transpose(1, 2), weight).transpose(1, 2)
    of_blocks = torch.bmm(vectors[0].unflatten(0, (blocks, -1)).transpose(1, 2), weight[0].unflatten(0, (blocks, -1)))
    return of_blocks.sum(dim=0).t().unsqueeze(0)


def _num_blocks(weight: Tensor, vectors: Tensor) -> int:
    """Into how many blocks the rows are cut: of no more bytes than a cache holds, of no fewer rows than columns.

    One column needs every weight once, and no cache.
    """
    blocks, columns = 1, vectors.shape[2]
    if len(weight) == 1 and vectors.device.type == "cpu" and columns > 1:
        rows = weight.shape[1]
        while rows % (2 * blocks) == 0 and rows >= 2 * blocks * columns and weight.nbytes >= 2 * blocks * BLOCK_BYTES:
            blocks *= 2
    return blocks


def _first(memory: Tensor, directions: int, rows: int, count: int) -> Tensor:
    """`(D, rows, count)` in the beginning of a piece of memory; few columns of one direction lie there as rows."""
    of_step = memory[: directions * rows * count]
    if directions == 1 and count < FEW_COLUMNS:
        return of_step.view(directions, count, rows).transpose(1, 2)
    return of_step.view(directions, rows, count)


def _step(memory: Tensor, words: slice, directions: int, rows: int) -> Tensor:
    """A step's part, `(D, rows, b_t)`, of what is kept of all words."""
    return _first(memory[words.start * directions * rows :], directions, rows, words.stop - words.start)


def _steps_of(memory: Tensor, words: slice, directions: int, rows: int, count: int) -> Tensor:
    """Several steps' parts, `(steps, D, rows, count)`, of what is kept of all words."""
    of_steps = memory[words.start * directions * rows : words.stop * directions * rows]
    if directions == 1 and count < FEW_COLUMNS:
        return of_steps.view(-1, directions, count, rows).transpose(2, 3)
    return of_steps.view(-1, directions, rows, count)


def _clip(raw: Tensor, limit: float | None, out: Tensor) -> Tensor:
    return raw if limit is None else torch.clamp(raw, -limit, limit, out=out)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
