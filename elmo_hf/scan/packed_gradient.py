"""The steps of the packed scan backward; `packed.py` has the equations and the glossary."""

import torch
from torch import Tensor

from .kernels import Kernels
from .packed_steps import Trace
from .parameters import Limits, Weights
from .reading_order import ReadingOrder


def run_packed_back(
    trace: Trace,
    order: ReadingOrder,
    previous_cells: Tensor,
    d_outputs: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    weights: Weights,
    limits: Limits,
    chosen: Kernels,
) -> tuple[Tensor, Tensor]:
    """Runs all steps, the last one first; returns dz `(D, N, 4H)` and m `(D, N, H)` of all words.

    The weights have D as the first axis. previous_cells `(D, N, H)` has c_{t-1}, zero where the state is reset.
    d_outputs `(D, N, P)` becomes dp; d_hidden `(D, B, P)` and d_cell `(D, B, H)`, the gradients of the last states,
    become those of the first states.
    """
    stop, width = trace.cells.shape[1:]
    forget_gates = trace.gates[..., width : 2 * width]
    d_gates, to_cell, memories = _factors(trace, previous_cells, limits)
    for count in reversed(order.columns):
        here, stop = slice(stop - count, stop), stop - count
        d_projected = d_outputs[:, here].add_(d_hidden[:, :count])
        if limits.projection is not None:
            d_projected *= trace.projected[:, here].abs() <= limits.projection
        d_memory = d_projected if weights.projection is None else chosen.multiply(d_projected, weights.projection)
        d_memory = d_memory.to(d_cell.dtype)
        d_here = torch.addcmul(d_cell[:, :count], d_memory, to_cell[:, here])
        if limits.cell is not None:
            d_here *= trace.cells[:, here].abs() <= limits.cell
        d_gates[:, here, : 3 * width].unflatten(2, (3, width)).mul_(d_here.unsqueeze(2))
        d_gates[:, here, 3 * width :] *= d_memory
        torch.mul(d_here, forget_gates[:, here], out=d_cell[:, :count])
        d_hidden[:, :count] = chosen.multiply(d_gates[:, here].to(d_hidden.dtype), weights.recurrent)
        if order.keeps is not None:
            d_hidden[:, :count] *= order.keeps[:, here, None]
            d_cell[:, :count] *= order.keeps[:, here, None]
    return d_gates, memories


def _factors(trace: Trace, previous_cells: Tensor, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of dz `(D, N, 4H)`, which each step multiplies in place; o (1 - tanh^2 c) and m `(D, N, H)`."""
    input_gate, forget_gate, candidate, output_gate = trace.gates.chunk(4, dim=2)
    tanh_cells = trace.cells.tanh() if limits.cell is None else trace.cells.clamp(-limits.cell, limits.cell).tanh_()
    to_cell = tanh_cells.square().neg_().add_(1).mul_(output_gate)
    factors = torch.empty_like(trace.gates)
    of_input, of_forget, of_candidate, of_output = factors.chunk(4, dim=2)
    torch.addcmul(input_gate, input_gate, input_gate, value=-1, out=of_input).mul_(candidate)
    torch.addcmul(forget_gate, forget_gate, forget_gate, value=-1, out=of_forget).mul_(previous_cells)
    torch.addcmul(input_gate, input_gate, candidate.square(), value=-1, out=of_candidate)
    torch.addcmul(output_gate, output_gate, output_gate, value=-1, out=of_output).mul_(tanh_cells)
    return factors, to_cell, tanh_cells.mul_(output_gate)
