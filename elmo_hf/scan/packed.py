"""The packed scan of one biLM layer: it skips padding, steps all directions together, and computes its own gradient.

This scan gives the same numbers as the reference, `LSTMP.forward`, up to the order of float sums. Step t of all
directions, each in its reading order (`reading_order.py`), is computed together for the texts that have a word there:

    z_t = W_x x_t + b + W_h h_{t-1}     W_x x_t for many t at once; b includes the forget bias
    c_t = clip(a_t),  a_t = f_t c_{t-1} + i_t g_t        i, f, o = sigmoid, g = tanh of z's four parts
    h_t = clip(p_t),  p_t = W_p m_t,  m_t = o_t tanh(c_t)

Backward, with e_t the gradient of the output at t and 1[.] a clip's gradient (1 inside and at the limits, else 0):

    dp_t = (e_t + dh_t) 1[p_t]        dm_t = W_p^T dp_t         dc_t += dm_t o_t (1 - tanh^2 c_t),  then  dc_t 1[a_t]
    dz_t = (dc_t g_t i_t (1 - i_t), dc_t c_{t-1} f_t (1 - f_t), dc_t i_t (1 - g_t^2), dm_t tanh(c_t) o_t (1 - o_t))
    dh_{t-1} = W_h^T dz_t             dc_{t-1} = dc_t f_t

The gradient of each weight is one product after the steps. Where the state is reset, h_{t-1} and c_{t-1} are 0.

Words are rows: z of a step is (b_t, 4H), and W h is a product of a large weight with few vectors (`products.py`). In
half precision, products are in half precision, and gates and cells in float32.

Memory for the gradient: 5H + 3P numbers per word, direction and layer (gates, cells, and vectors of width P), and about
7H + P more during the backward pass. Without gradient only the output grows with the length of the text.

Glossary: D directions, B batch, T positions, b_t texts that have a word at step t, N words, P projection, H cell.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .kernels import Kernels, kernels
from .packed_gradient import run_packed_back
from .packed_steps import Trace, run_packed, wide
from .parameters import Limits, Scanned, Weights, needs_gradient, stack
from .reading_order import BatchLayout, ReadingOrder


def scan_layer(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer by the fastest scan that can run; the products have the dtype of `hidden`.

    Takes inputs `(B, T, DP)`, not empty, and hidden `(B, DP)` and cell `(B, DH)` before the first word. Returns outputs
    in text order, zero where the mask is False, and the last hidden and cell. `weights` has one item for each
    direction.
    """
    layout, tensors, chosen = layout.on(inputs.device), [tensor for parts in weights for tensor in parts], kernels()
    with torch.autocast(inputs.device.type, enabled=False):
        if needs_gradient(inputs, hidden, cell, *tensors):
            return _PackedScan.apply(layout.order, limits, chosen, inputs, hidden, cell, *tensors)
        return _scan_words(inputs, layout.order, hidden, cell, weights, limits, chosen, None)[0]


def _scan_words(
    inputs: Tensor,
    order: ReadingOrder,
    hidden: Tensor,
    cell: Tensor,
    weights: list[Weights],
    limits: Limits,
    chosen: Kernels,
    trace: Trace | None,
) -> tuple[Scanned, Tensor]:
    """Scans as `scan_layer` does, outside autograd, and fills `trace`; also returns x_t and h_t, `(2, D, N, P)`."""
    dtype, input_dtype, last = hidden.dtype, inputs.dtype, []
    weights = [parts.to(dtype) for parts in weights]
    shape = 2, len(weights), order.places.shape[1], inputs.shape[-1] // len(weights)
    words, outputs = vectors = inputs.new_empty(shape, dtype=dtype)
    _pack(inputs, order, words)
    hidden, cell = _pack_state(hidden, order), _pack_state(cell, order)
    for part, part_order in _parts(weights, order, chosen):
        tensors = (words[part], outputs[part], part_order, hidden[part], cell[part])
        part_trace = None if trace is None else trace.part(part)
        ran = chosen.run_steps(*tensors, weights[part], limits, part_trace)
        joint = weights[part], len(order.columns)
        last.append(ran or run_packed(*tensors, chosen.join(*joint), limits, chosen.block_words, part_trace))
    states = [_keep_at_end(torch.cat(parts), order) for parts in zip(*last, strict=True)]
    hidden, cell = (_unpack_state(state, order).to(input_dtype) for state in states)
    return (_unpack(outputs, order, inputs), hidden, cell), vectors


class _PackedScan(torch.autograd.Function):
    """A layer with its gradient, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, order: ReadingOrder, limits: Limits, chosen: Kernels, *tensors: Any) -> Scanned:
        inputs, hidden, cell, *parameters = tensors
        weights = [parts.to(hidden.dtype) for parts in _by_direction(parameters)]
        (height, size), shape = weights[0].recurrent.shape, order.places.shape
        gates, cells = (cell.new_empty(*shape, each, dtype=wide(cell.dtype)) for each in (height, height // 4))
        trace = Trace(gates, cells, hidden.new_empty(*shape, size))
        scanned, vectors = _scan_words(inputs, order, hidden, cell, weights, limits, chosen, trace)
        ctx.save_for_backward(*trace, vectors, hidden, cell, *(tensor for parts in weights for tensor in parts))
        ctx.order, ctx.limits, ctx.chosen, ctx.dtype = order, limits, chosen, parameters[0].dtype
        return scanned

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, projected, (words, outputs), hidden, cell, *parameters = ctx.saved_tensors
        order, limits, chosen, needs_inputs = ctx.order, ctx.limits, ctx.chosen, ctx.needs_input_grad[3]
        trace, weights = Trace(gates, cells, projected), _by_direction(parameters)
        d_words = _pack(d_outputs, order, torch.empty_like(words))
        # Rows of texts that ended before a step hold the gradient of their last state.
        d_states = [_keep_at_end(_pack_state(state, order), order) for state in (d_hidden, d_cell)]
        d_packed_hidden, d_packed_cell = d_states[0].to(words.dtype), d_states[1].to(wide(d_cell.dtype))
        clipped_cells = cells if limits.cell is None else cells.clamp(-limits.cell, limits.cell)
        previous = _previous(outputs, _pack_state(hidden, order), order)
        previous_cells = _previous(clipped_cells, _pack_state(cell, order).to(cells.dtype), order)
        d_inputs: list[Tensor] = []
        d_weights: list[Tensor | None] = []
        for part, part_order in _parts(weights, order, chosen):
            own, d_projected, of_part = stack(weights[part]), d_words[part], (trace.part(part), part_order)
            of_states = previous_cells[part], d_projected, d_packed_hidden[part], d_packed_cell[part]
            ran = chosen.run_steps_back(*of_part, *of_states, own, limits)
            d_gates, memories = ran or run_packed_back(*of_part, *of_states, own, limits, chosen)
            d_products = d_gates.to(words.dtype)
            joint = Weights(
                chosen.multiply(d_products.mT, words[part]),
                d_gates.sum(dim=1),
                chosen.multiply(d_products.mT, previous[part]),
                None if own.projection is None else chosen.multiply(d_projected.mT, memories.to(words.dtype)),
            )
            for direction in range(len(d_gates)):
                d_weights += [None if each is None else each[direction].to(ctx.dtype) for each in joint]
            if needs_inputs:
                d_inputs += chosen.multiply(d_products, own.inputs)
        return (
            *(None, None, None),
            _unpack(d_inputs, order, d_outputs) if needs_inputs else None,
            _unpack_state(d_packed_hidden, order).to(d_hidden.dtype),
            _unpack_state(d_packed_cell, order).to(d_cell.dtype),
            *d_weights,
        )


def _by_direction(tensors: Sequence[Any]) -> list[Weights]:
    """The weights of each direction, one after the other."""
    return [Weights(*tensors[start : start + 4]) for start in range(0, len(tensors), 4)]


def _parts(weights: list[Weights], order: ReadingOrder, chosen: Kernels) -> Iterator[tuple[slice, ReadingOrder]]:
    """The directions that take each step together, and their reading order."""
    at_once = chosen.at_once(weights)
    for start in range(0, len(weights), at_once):
        part = slice(start, start + at_once)
        yield part, order if order.keeps is None else order._replace(keeps=order.keeps[part])


def _pack(vectors: Tensor, order: ReadingOrder, words: Tensor) -> Tensor:
    """Fills `words` `(D, N, P)`, each direction in its reading order, from `vectors` `(B, T, DP)`."""
    for part, places, target in zip(_split(vectors, order), order.places, words, strict=True):
        target.copy_(part.index_select(0, places))
    return words


def _unpack(words: Iterable[Tensor], order: ReadingOrder, like: Tensor) -> Tensor:
    """The inverse: each direction's words `(N, P)` to a tensor like `like` `(B, T, DP)`, zero on padding."""
    vectors = torch.zeros_like(like, memory_format=torch.contiguous_format)
    for part, places, source in zip(_split(vectors, order), order.places, words, strict=True):
        part.index_copy_(0, places, source.to(like.dtype))
    return vectors


def _split(vectors: Tensor, order: ReadingOrder) -> Sequence[Tensor]:
    """Each direction's part `(B T, P)` of `(B, T, DP)`, as views."""
    return vectors.flatten(0, 1).chunk(len(order.places), dim=-1)


def _pack_state(state: Tensor, order: ReadingOrder) -> Tensor:
    """Maps `(B, DP)` to `(D, B, P)`, in the order of `order.texts`."""
    return state[order.texts].unflatten(1, (len(order.places), -1)).transpose(0, 1).contiguous()


def _keep_at_end(state: Tensor, order: ReadingOrder) -> Tensor:
    """Sets the state `(D, B, .)` to zero for texts that are reset after their last word."""
    return state if order.keeps_at_end is None else state * order.keeps_at_end.unsqueeze(2)


def _unpack_state(state: Tensor, order: ReadingOrder) -> Tensor:
    """The inverse of `_pack_state`."""
    return state.transpose(0, 1).flatten(1)[order.ranks]


def _previous(states: Tensor, first: Tensor, order: ReadingOrder) -> Tensor:
    """`(D, N, .)`, the state used at each word: `first` at the first step, then `states` after the step before."""
    ends = [0, *accumulate(order.columns)]
    before = [states[:, start : start + count] for start, count in zip(ends, order.columns[1:], strict=False)]
    previous = torch.cat([first[:, : max(order.columns, default=0)], *before], dim=1)
    return previous if order.keeps is None else previous * order.keeps.unsqueeze(2)
