"""The steps of a biLM layer on a GPU, forward and backward: products and kernels in their order.

`triton_kernels.py` has the equations of each kernel, and the glossary.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .parameters import Limits
from .triton_kernels import cell_gradient_step, cell_step, hidden_gradient_step, hidden_step

BLOCK = 512  # elements per program of a kernel


class Steps(NamedTuple):
    """Memory of T steps."""

    gates: Tensor  # (D, T, B, 4H), W_x x_t + b; after the step i, f, g, o, if kept
    is_word: Tensor  # (D, T, B), bytes, 0 where the state does not change
    keeps: Tensor  # (D, T, B), bytes, 0 where the state is reset before the step
    cells: Tensor  # (D, T + 1, B, H), c, float32
    projected: Tensor  # (D, T, B, P), p_t, before clipping
    hidden: Tensor  # (D, T + 1, B, P), h


def run_steps(
    steps: Steps,
    products: Tensor,
    memory: Tensor,
    recurrent: Tensor,
    projection: Tensor | None,
    limits: Limits,
    keeps_gates: bool,
) -> None:
    """Runs all steps and allocates nothing; products `(D, B, 4H)` and memory `(D, B, H)` are scratch.

    A gradient needs `keeps_gates`.
    """
    directions, length, batch, width = *steps.is_word.shape, steps.cells.shape[-1]
    size, flags = steps.hidden.shape[-1], (steps.is_word, steps.keeps)
    recurrent, projection = recurrent.transpose(1, 2), None if projection is None else projection.transpose(1, 2)
    cell_limit, hidden_limit = (math.inf if limit is None else limit for limit in limits)
    cell_count, hidden_count = directions * batch * width, directions * batch * size
    target = steps.projected if projection is None else memory
    options = {"WIDTH": width, "KEEPS_GATES": keeps_gates, "IS_PROJECTED": projection is not None, "BLOCK": BLOCK}
    for step in range(length):
        place = (step, length, batch)
        torch.bmm(steps.hidden[:, step], recurrent, out=products)
        cell_step[_grid(cell_count)](
            steps.gates, products, *flags, steps.cells, target, *place, cell_count, cell_limit, **options
        )
        if projection is not None:
            torch.bmm(memory, projection, out=steps.projected[:, step])
        hidden_step[_grid(hidden_count)](
            steps.projected, *flags, steps.hidden, *place, hidden_count, hidden_limit, SIZE=size, BLOCK=BLOCK
        )


def run_steps_back(
    steps: Steps, d_outputs: Tensor, d_last_cell: Tensor, recurrent: Tensor, projection: Tensor | None, limits: Limits
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Runs backward all steps that ran forward with `keeps_gates`; d_outputs (e) `(D, T, B, P)` is contiguous.

    Returns dz `(D, T, B, 4H)` and dp `(D, T, B, P)`; dh `(D, B, P)` and dc `(D, B, H)` before the first step. Like
    d_last_cell `(D, B, H)`, dh and dc are float32.
    """
    directions, length, batch, width = *steps.is_word.shape, steps.cells.shape[-1]
    size, flags = steps.hidden.shape[-1], (steps.is_word, steps.keeps)
    cell_limit, hidden_limit = (math.inf if limit is None else limit for limit in limits)
    cell_count, hidden_count = directions * batch * width, directions * batch * size
    d_gates, d_projected = torch.empty_like(steps.gates), torch.empty_like(steps.projected)
    d_memory = d_projected if projection is None else d_gates.new_empty(directions, batch, width)
    # Nothing follows the last step; the gradient of its hidden state is in the gradient of the outputs.
    products = d_projected.new_zeros(directions, batch, size)
    d_hidden = products.float().clone()
    d_cell = d_last_cell.clone(memory_format=torch.contiguous_format)
    options = {"WIDTH": width, "IS_PROJECTED": projection is not None, "BLOCK": BLOCK}
    for step in range(length - 1, -1, -1):
        place = (step, length, batch)
        tensors = (products, d_hidden, d_outputs, *flags, steps.projected, d_projected)
        hidden_gradient_step[_grid(hidden_count)](*tensors, hidden_limit, *place, hidden_count, SIZE=size, BLOCK=BLOCK)
        if projection is not None:
            torch.bmm(d_projected[:, step], projection, out=d_memory)
        tensors = (d_memory, steps.gates, steps.cells, *flags, d_cell, d_gates)
        cell_gradient_step[_grid(cell_count)](*tensors, cell_limit, *place, cell_count, **options)
        torch.bmm(d_gates[:, step], recurrent, out=products)
    d_hidden = torch.where(steps.is_word[:, 0].bool().unsqueeze(-1), products.float(), d_hidden)
    return d_gates, d_projected, d_hidden * steps.keeps[:, 0].unsqueeze(-1), d_cell


def _grid(count: int) -> tuple[int]:
    return (-(-count // BLOCK),)
