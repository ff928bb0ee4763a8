"""The packed scan of a layer as one operator of compiled graphs, and its gradient as another.

Lengths of texts and the reading order exist only inside, so the graph serves every batch. What the forward pass leaves
for the gradient is a result too, and a result's shape may depend on shapes alone: so there is room for all B T
positions, of which the words use a part.

Glossary: D = 2 directions, B batch, T positions, P projection, H cell.
"""

from typing import Any

import torch
from torch import Tensor

from .packed import LayerTrace, by_direction, gradients, new_trace, scan_words_only
from .parameters import Limits, Scanned, Weights, needs_gradient
from .reading_order import reading_order
from .registered import register

SCHEMA = """(
    Tensor inputs, Tensor mask, Tensor[] resets, Tensor hidden, Tensor cell, Tensor[] weights, float? cell_limit,
    float? projection_limit, bool has_trace
) -> (Tensor outputs, Tensor hidden, Tensor cell, Tensor gates, Tensor cells, Tensor vectors)"""
BACKWARD_SCHEMA = """(
    Tensor d_outputs, Tensor d_hidden, Tensor d_cell, Tensor mask, Tensor[] resets, Tensor hidden, Tensor[] weights,
    Tensor[] trace, float? cell_limit, float? projection_limit, bool needs_inputs
) -> Tensor[]"""
Tensors = list[Tensor]


def scan_as_operator(
    inputs: Tensor,
    mask: Tensor,
    resets: tuple[Tensor, Tensor] | None,
    hidden: Tensor,
    cell: Tensor,
    weights: list[Weights],
    limits: Limits,
) -> Scanned:
    """Scans one layer; arguments and results are those of `scan_layer`."""
    tensors = [tensor for parts in weights for tensor in parts if tensor is not None]
    has_trace = needs_gradient(inputs, hidden, cell, *tensors)
    outputs, hidden, cell, *_ = _scan(inputs, mask, list(resets or ()), hidden, cell, tensors, *limits, has_trace)
    return outputs, hidden, cell


def _run(
    inputs: Tensor,
    mask: Tensor,
    resets: Tensors,
    hidden: Tensor,
    cell: Tensor,
    weights: Tensors,
    cell_limit: float | None,
    projection_limit: float | None,
    has_trace: bool,
) -> tuple[Tensor, ...]:
    directions, order = by_direction(weights), reading_order(mask, tuple(resets) or None)
    trace = _new_trace(mask, cell, weights, has_trace)
    limits = Limits(cell_limit, projection_limit)
    results = scan_words_only(inputs, order, hidden, cell, directions, limits, trace if has_trace else None)
    return *results, *trace


def _fake(inputs: Tensor, mask: Tensor, resets: Tensors, hidden: Tensor, cell: Tensor, weights: Tensors, *rest: Any):
    results = [inputs.new_empty(tensor.shape) for tensor in (inputs, hidden, cell)]
    return *results, *_new_trace(mask, cell, weights, has_trace=rest[-1])


def _new_trace(mask: Tensor, cell: Tensor, weights: Tensors, has_trace: bool) -> LayerTrace:
    return new_trace(cell, by_direction(weights), mask.numel() if has_trace else 0)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, mask, resets, hidden, _, weights, *ctx.limits, _ = inputs
    ctx.num_resets = len(resets)
    ctx.save_for_backward(*output[3:], mask, hidden, *resets, *weights)


def _backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor, *_: Tensor) -> tuple[Any, ...]:
    trace, (mask, hidden), rest = ctx.saved_tensors[:3], ctx.saved_tensors[3:5], ctx.saved_tensors[5:]
    resets, weights = list(rest[: ctx.num_resets]), list(rest[ctx.num_resets :])
    needs_inputs = ctx.needs_input_grad[0]
    incoming = [d_result.contiguous() for d_result in (d_outputs, d_hidden, d_cell)]
    d_inputs, d_hidden, d_cell, *d_weights = _scan_back(
        *incoming, mask, resets, hidden, weights, list(trace), *ctx.limits, needs_inputs
    )
    d_resets = [None] * len(resets)
    return d_inputs if needs_inputs else None, None, d_resets, d_hidden, d_cell, d_weights, None, None, None


def _run_back(
    d_outputs: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    mask: Tensor,
    resets: Tensors,
    hidden: Tensor,
    weights: Tensors,
    trace: Tensors,
    cell_limit: float | None,
    projection_limit: float | None,
    needs_inputs: bool,
) -> Tensors:
    order, limits = reading_order(mask, tuple(resets) or None), Limits(cell_limit, projection_limit)
    d_results, directions = (d_outputs, d_hidden, d_cell), by_direction(weights)
    d_inputs, *found = gradients(d_results, order, LayerTrace(*trace), hidden, directions, limits, needs_inputs)
    found = [gradient for gradient in found if gradient is not None]
    return [d_outputs.new_empty(0) if d_inputs is None else d_inputs, *found]


def _fake_back(d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor, *rest: Any) -> Tensors:
    *_, weights, _, _, _, needs_inputs = rest
    shapes = [(d_outputs, d_outputs.shape if needs_inputs else (0,)), (d_hidden, d_hidden.shape), (d_cell, d_cell.shape)]
    shapes += [(weight, weight.shape) for weight in weights]
    return [like.new_empty(shape) for like, shape in shapes]


# The version, 1, is part of the names: see `registered.py`.
_scan = register("layer_1", SCHEMA, _run, _fake, _keep, _backward)
_scan_back = register("layer_backward_1", BACKWARD_SCHEMA, _run_back, _fake_back)
