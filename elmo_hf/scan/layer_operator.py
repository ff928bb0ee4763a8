"""A layer as one operator of compiled graphs, and its gradient, by the packed scan, as another.

Lengths of texts and the reading order exist only inside, so the graph serves every batch. What the forward pass leaves
for the gradient is a result too, and a result's shape may depend on shapes alone: so there is room for all B T
positions, of which the words use a part. Without gradient the layer takes the same scan as outside a graph.

Glossary: D directions, B batch, T positions.
"""

from typing import Any

import torch
from torch import Tensor

from .layer import BatchLayout, scan_layer
from .packed import LayerTrace, by_direction, gradients, new_trace, scan_words_only
from .parameters import Limits, Scanned, Weights, needs_gradient
from .registered import register

# `resets` is empty or has D tensors, `weights` are those of D directions without what is None. Results end in the
# trace, which is empty unless `has_trace`.
SCHEMA = """(
    Tensor inputs, Tensor mask, Tensor[] resets, Tensor hidden, Tensor cell, Tensor[] weights, float? cell_limit,
    float? projection_limit, bool has_trace
) -> (Tensor outputs, Tensor hidden, Tensor cell, Tensor gates, Tensor cells, Tensor vectors)"""
# Gradients of inputs (empty unless `needs_inputs`), hidden, cell and weights.
BACKWARD_SCHEMA = """(
    Tensor d_outputs, Tensor d_hidden, Tensor d_cell, Tensor mask, Tensor[] resets, Tensor hidden, Tensor[] weights,
    Tensor[] trace, float? cell_limit, float? projection_limit, bool needs_inputs
) -> Tensor[]"""
Tensors = list[Tensor]


def scan_layer_in_graph(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer as `scan_layer` does, by the operator."""
    layout = layout.on(inputs.device)
    tensors = [tensor for parts in weights for tensor in parts if tensor is not None]
    has_trace = needs_gradient(inputs, hidden, cell, *tensors)
    arguments = (inputs, layout.mask, list(layout.resets or ()), hidden, cell, tensors, *limits, has_trace)
    outputs, hidden, cell, *_ = _scan(*arguments)
    return outputs, hidden, cell


@torch.no_grad()
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
    directions, limits = by_direction(weights), Limits(cell_limit, projection_limit)
    layout = BatchLayout(mask, resets or None, len(directions))
    trace = _new_trace(mask, hidden, cell, weights, has_trace)
    if has_trace:
        directions = [parts.to(hidden.dtype) for parts in directions]
        results = scan_words_only(inputs, layout.order, hidden, cell, directions, limits, trace)
    else:
        results = scan_layer(inputs, layout, hidden, cell, directions, limits)
    return *(result.contiguous() for result in results), *trace


def _fake(
    inputs: Tensor, mask: Tensor, resets: Tensors, hidden: Tensor, cell: Tensor, weights: Tensors, *options: Any
) -> tuple[Tensor, ...]:
    results = [inputs.new_empty(tensor.shape) for tensor in (inputs, hidden, cell)]
    return *results, *_new_trace(mask, hidden, cell, weights, has_trace=options[-1])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, mask, resets, hidden, _, weights, *ctx.limits, _ = inputs
    ctx.num_resets = len(resets)
    ctx.save_for_backward(*output[3:], mask, hidden, *resets, *weights)


def _backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor, *_: Tensor) -> tuple[Any, ...]:
    gates, cells, vectors, mask, hidden, *rest = ctx.saved_tensors
    resets, weights = rest[: ctx.num_resets], rest[ctx.num_resets :]
    needs_inputs = ctx.needs_input_grad[0]
    incoming = [d_result.contiguous() for d_result in (d_outputs, d_hidden, d_cell)]
    d_inputs, d_hidden, d_cell, *d_weights = _scan_back(
        *incoming, mask, resets, hidden, weights, [gates, cells, vectors], *ctx.limits, needs_inputs
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
    directions = [parts.to(hidden.dtype) for parts in by_direction(weights)]
    order = BatchLayout(mask, resets or None, len(directions)).order
    d_results, options = (d_outputs, d_hidden, d_cell), (Limits(cell_limit, projection_limit), needs_inputs)
    d_inputs, *found = gradients(d_results, order, LayerTrace(*trace), hidden, directions, *options, weights[0].dtype)
    d_inputs = d_outputs.new_empty(0) if d_inputs is None else d_inputs
    return [d_inputs, *(gradient for gradient in found if gradient is not None)]


def _fake_back(d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor, *others: Any) -> Tensors:
    *_, weights, _, _, _, needs_inputs = others
    d_inputs = d_outputs.new_empty(d_outputs.shape if needs_inputs else 0)
    return [d_inputs, *(tensor.new_empty(tensor.shape) for tensor in (d_hidden, d_cell, *weights))]


def _new_trace(mask: Tensor, hidden: Tensor, cell: Tensor, weights: Tensors, has_trace: bool) -> LayerTrace:
    return new_trace(hidden, cell, by_direction(weights), mask.numel() if has_trace else 0)


# The version, 3, is part of the names: see `registered.py`.
_scan = register("layer_3", SCHEMA, _run, _fake, _keep, _backward)
_scan_back = register("layer_backward_3", BACKWARD_SCHEMA, _run_back, _fake_back)
