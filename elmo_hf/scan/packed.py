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
from .parameters import Limits, Weights, needs_gradient, stack

# Up to this many bytes of W_h both directions take each step together, which saves calls. Above, one direction runs
# after the other, so that its weights stay in the cache from step to step.
JOINT_BYTES = 1 << 22


def scan_packed(
    inputs: Tensor,
    columns: list[int],
    keeps: Tensor | None,
    hidden: Tensor,
    cell: Tensor,
    weights: list[Weights],
    limits: Limits,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scans one layer.

    Args:
        inputs: `(D, N, P)`, the words step by step, in each direction's reading order.
        columns: b_t of every step, never rising.
        keeps: `(D, N)`, False on words before which the state is reset; None means no resets.
        hidden: `(D, P, B)`, the state before the first step, texts by falling word count.
        cell: `(D, H, B)`, also before the first step; may have another dtype than the rest.
        weights: of each direction.
        limits: of all directions.

    Returns:
        `(D, N, P)`, the state h_t after each word; then `hidden` and `cell` after each text's last word.
    """
    if len(weights) > 1 and weights[0].recurrent.nbytes > JOINT_BYTES:
        each = (slice(index, index + 1) for index in range(len(weights)))
        results = [
            scan_packed(inputs[d], columns, None if keeps is None else keeps[d], hidden[d], cell[d], weights[d], limits)
            for d in each
        ]
        outputs, hiddens, cells = zip(*results, strict=True)
        return torch.cat(outputs), torch.cat(hiddens), torch.cat(cells)
    joint = stack(weights)
    if needs_gradient(inputs, hidden, cell, *joint):
        return _PackedScan.apply(columns, keeps, limits, inputs, hidden, cell, *joint)
    return run_packed(inputs, columns, keeps, hidden, cell, joint, limits, None)


class _PackedScan(torch.autograd.Function):
    """All steps with their gradient; can be differentiated once."""

    @staticmethod
    def forward(
        ctx: Any, columns: list[int], keeps: Tensor | None, limits: Limits, *tensors: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs, hidden, cell, *parameters = tensors
        weights = Weights(*parameters)
        (directions, num_words, size), width = inputs.shape, cell.shape[1]
        like_cells = inputs.new_empty(0, dtype=wide(cell.dtype))
        trace = Trace(
            like_cells.new_empty(directions * 4 * width * num_words),
            like_cells.new_empty(directions * width * num_words),
            like_cells.new_empty(directions * width * num_words),
            inputs.new_empty(directions * size * num_words),
        )
        outputs, last_hidden, last_cell = run_packed(inputs, columns, keeps, hidden, cell, weights, limits, trace)
        ctx.save_for_backward(
            inputs, hidden, weights.inputs, weights.recurrent, weights.projection, keeps, outputs, *trace
        )
        ctx.columns, ctx.limits = columns, limits
        return outputs, last_hidden, last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, hidden, input_weight, recurrent, projection, keeps, outputs, *saved = ctx.saved_tensors
        # Columns of texts that ended before a step hold the gradient of their last state.
        d_hidden, d_wide_cell = d_hidden.clone(), d_cell.to(wide(d_cell.dtype), copy=True)
        d_gates, d_projected, memories = run_packed_back(
            Trace(*saved), ctx.columns, keeps, d_outputs, d_hidden, d_wide_cell, recurrent, projection, ctx.limits
        )
        previous_hidden = _previous(outputs, hidden, ctx.columns)
        if keeps is not None:
            previous_hidden = previous_hidden * keeps.unsqueeze(-1)
        return (
            *(None, None, None),
            torch.bmm(d_gates.transpose(1, 2), input_weight) if ctx.needs_input_grad[3] else None,
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
