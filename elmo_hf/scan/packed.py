"""The packed scan: one biLM layer, both directions in step, words only, with a gradient of its own.

It gives the same numbers as the reference, `LSTMP.forward`, up to the order of float sums. Step t of both directions,
each in its reading order (`reading_order.py`), is computed together for the texts that have a word there:

    z_t = W_x x_t + b + W_h h_{t-1}     W_x x_t for many t at once; b includes the forget bias
    c_t = clip(a_t),  a_t = f_t c_{t-1} + i_t g_t        i, f, o = sigmoid, g = tanh of z's four parts
    h_t = clip(p_t),  p_t = W_p m_t,  m_t = o_t tanh(c_t)

Backward, with e_t the gradient of the output at t and 1[.] that of a clip (1 inside the limits and at them, else 0):

    dp_t = (e_t + dh_t) 1[p_t]        dm_t = W_p^T dp_t         dc_t += dm_t o_t (1 - tanh^2 c_t),  then  dc_t 1[a_t]
    dz_t = (dc_t g_t i_t (1 - i_t), dc_t c_{t-1} f_t (1 - f_t), dc_t i_t (1 - g_t^2), dm_t tanh(c_t) o_t (1 - o_t))
    dh_{t-1} = W_h^T dz_t             dc_{t-1} = dc_t f_t

The gradient of each weight is one product after the steps. Where the state is reset, h_{t-1} and c_{t-1} are 0.

Words are columns: z of a step is (4H, b_t), and W h is a product of large weights with few columns
(`column_products.py`). In half precision the products are half precision, gates and cells float32.

Memory for the gradient: 6H + 3P numbers per word, direction and layer (gates, cells, and vectors of width P), and
about 12H more during the backward pass. Without gradient only the output grows with the length of the text.

Glossary: D = 2 directions, B batch, b_t texts that have a word at step t, N words, P projection, H cell.
"""

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .packed_gradient import run_packed_back
from .packed_steps import Trace, run_packed, wide
from .parameters import Limits, Scanned, Weights, needs_gradient, stack
from .reading_order import ReadingOrder

# Up to this many bytes of W_h both directions take each step together, which saves calls. Above, one direction runs
# after the other, so that its weights stay in the cache from step to step.
JOINT_BYTES = 1 << 22


def scan_packed(
    inputs: Tensor, order: ReadingOrder, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer.

    Maps inputs `(D, N, P)`, each direction in its reading order, and the state before the first step, hidden
    `(D, P, B)` and cell `(D, H, B)`, to h_t after each word and the state after each text's last word, shaped the same.
    In the state texts are in the order of `order.texts`; the cell may have another dtype than the rest.
    """
    if len(weights) > 1 and weights[0].recurrent.nbytes > JOINT_BYTES:
        results = []
        for d in (slice(index, index + 1) for index in range(len(weights))):
            one = order if order.keeps is None else order._replace(keeps=order.keeps[d])
            results.append(scan_packed(inputs[d], one, hidden[d], cell[d], weights[d], limits))
        outputs, hiddens, cells = zip(*results, strict=True)
        return torch.cat(outputs), torch.cat(hiddens), torch.cat(cells)
    joint = stack(weights)
    if needs_gradient(inputs, hidden, cell, *joint):
        return _PackedScan.apply(order, limits, inputs, hidden, cell, *joint)
    return run_packed(inputs, order, hidden, cell, joint, limits, None)


class _PackedScan(torch.autograd.Function):
    """All steps with their gradient; can be differentiated once."""

    @staticmethod
    def forward(ctx: Any, order: ReadingOrder, limits: Limits, *tensors: Any) -> Scanned:
        inputs, hidden, cell, *parameters = tensors
        weights = Weights(*parameters)
        directions, num_words, _ = inputs.shape
        num_cells, dtype = directions * cell.shape[1] * num_words, wide(cell.dtype)
        gates, cells, previous_cells = (inputs.new_empty(n * num_cells, dtype=dtype) for n in (4, 1, 1))
        trace = Trace(gates, cells, previous_cells, projected=inputs.new_empty(inputs.numel()))
        results = run_packed(inputs, order, hidden, cell, weights, limits, trace)
        ctx.save_for_backward(inputs, hidden, weights.inputs, weights.recurrent, weights.projection, results[0], *trace)
        ctx.order, ctx.limits = order, limits
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, hidden, input_weight, recurrent, projection, outputs, *saved = ctx.saved_tensors
        # Columns of texts that ended before a step hold the gradient of their last state.
        d_hidden, d_wide_cell = d_hidden.clone(), d_cell.to(wide(d_cell.dtype), copy=True)
        d_gates, d_projected, memories = run_packed_back(
            Trace(*saved), ctx.order, d_outputs, d_hidden, d_wide_cell, recurrent, projection, ctx.limits
        )
        previous_hidden = _previous(outputs, hidden, ctx.order.columns)
        if ctx.order.keeps is not None:
            previous_hidden = previous_hidden * ctx.order.keeps.unsqueeze(-1)
        return (
            *(None, None),
            torch.bmm(d_gates.transpose(1, 2), input_weight) if ctx.needs_input_grad[2] else None,
            d_hidden,
            d_wide_cell.to(d_cell.dtype),
            torch.bmm(d_gates, inputs),
            d_gates.sum(dim=2),
            torch.bmm(d_gates, previous_hidden),
            None if projection is None else torch.bmm(d_projected, memories.transpose(1, 2)),
        )


def _previous(outputs: Tensor, hidden: Tensor, columns: list[int]) -> Tensor:
    """`(D, N, P)`, the state before each word: `hidden` before the first step, then the outputs of the step before."""
    ends = [0, *accumulate(columns)]
    before = [outputs[:, start : start + count] for start, count in zip(ends, columns[1:], strict=False)]
    return torch.cat([hidden.transpose(1, 2)[:, : max(columns, default=0)], *before], dim=1)
