"""The scan on a GPU, with the results of `packed.py`: two matrix products and two kernels a step, forward and backward.

In `packed.py` a step has about fifteen small operations, and a GPU waits for the launch of each. Here everything
between two products is one kernel; `triton_kernels.py` has their order. The products with the inputs, and the products
for the weights' gradients, are computed once for all steps, or for a block of steps.

The cell is float32 between steps. Products follow torch's own switches (TF32, reduced precision). Padding is computed
like words and thrown away; to skip padding, Python would have to wait for the GPU.

Memory for the gradient: 4H + 2P numbers per word, direction and layer (gates, p, h) and H in float32 (c); about
4H + P and H in float32 more during the backward pass.

Without gradient the steps run in blocks, which saves the 4H numbers for each word of a text.

Glossary: D directions, B batch, T steps, P projection, H cell. Tensors of all steps are (D, T, B, .), each direction in
its reading order: only the backward one differs from text order.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers.utils import logging

from .kernels import Kernels, using
from .packed import scan_layer
from .parameters import Limits, Scanned, Weights, needs_gradient, stack
from .reading_order import BatchLayout
from .triton_kernels import IS_INTERPRETED, triton
from .triton_steps import Steps, run_steps, run_steps_back

logger = logging.get_logger(__name__)

# By dtype, how far from the packed scan's the norms of Triton's results may be: products may be in TF32 or bfloat16.
TOLERANCES = {torch.float32: 0.01, torch.float16: 0.01, torch.bfloat16: 0.05}


def is_available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products in `dtype` can run on `device`: a GPU on which Triton is right, or a CPU that interprets it."""
    if triton is None or dtype not in TOLERANCES:
        return False
    return IS_INTERPRETED if device.type == "cpu" else device.type == "cuda" and is_right(device, dtype)


@functools.cache
def is_right(device: torch.device, dtype: torch.dtype, scan: Callable[..., Scanned] | None = None) -> bool:
    """Whether a small scan there, and its gradient, equal the packed scan's; computed at the first use.

    Args:
        device: a GPU, or a CPU that interprets Triton.
        dtype: of the products.
        scan: the scan to compare; None: Triton's.

    Raises:
        RuntimeError: if the GPU failed, because then nothing else runs in this process.
    """
    try:
        expected = _small_scan(device, dtype, scan_layer)
        found = _small_scan(device, dtype, scan or functools.partial(scan_with_padding, block_rows=1))
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
        problem = "" if max(errors) <= TOLERANCES[dtype] else f"its numbers are wrong by {max(errors):.1%}"
    except Exception as error:  # of compilers, drivers or Triton: they share no class
        problem = str(error)
        try:
            torch.ones(1, device=device).item()
        except RuntimeError:
            raise RuntimeError(
                f"{device} failed in Triton's kernels. Start again, and call the model within "
                f'`elmo_hf.scan.path.scan_path("packed")`, which does not use Triton: {error}'
            ) from error
    if problem:
        logger.warning(f"Triton does not run in {dtype} on {device}, so the slower packed scan is used: {problem}")
    return not problem


def _small_scan(device: torch.device, dtype: torch.dtype, scan: Callable[..., Scanned]) -> list[Tensor]:
    """Outputs, last state and gradients of a scan of two directions, B = 3, T = 5, P = 4, H = 6, with padding."""
    numbers = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers).to(device, dtype).requires_grad_()

    with torch.inference_mode(False), torch.enable_grad(), using(Kernels()):
        leaves = [leaf(3, 5, 8), leaf(3, 8), leaf(3, 12)]
        weights = [Weights(leaf(24, 4), leaf(24), leaf(24, 4), leaf(4, 6)) for _ in range(2)]
        mask = torch.arange(5, device=device) < torch.tensor([[5], [2], [3]], device=device)
        results = scan(leaves[0], BatchLayout(mask), *leaves[1:], weights, Limits(1.5, 1.5))
        leaves += [tensor for parts in weights for tensor in parts if tensor is not None]
        torch.cat([each.float().flatten().square() for each in results]).sum().backward()
    return [tensor.detach().float() for tensor in (*results, *(leaf.grad for leaf in leaves)) if tensor is not None]


def scan_with_padding(
    inputs: Tensor,
    layout: BatchLayout,
    hidden: Tensor,
    cell: Tensor,
    weights: list[Weights],
    limits: Limits,
    block_rows: int,
) -> Scanned:
    """Scans one layer and never waits for the GPU; arguments and results are those of `scan_layer`.

    Without gradient the steps run in blocks of about `block_rows` texts times words.
    """
    mask, resets, dtype, count = layout.mask, layout.resets, hidden.dtype, len(weights)
    words, is_word = _by_step(inputs.to(dtype).chunk(count, dim=-1)), _by_step([mask] * count)
    keeps = torch.ones_like(is_word) if resets is None else ~_by_step(resets)
    is_word, keeps = is_word.to(torch.uint8), keeps.to(torch.uint8)
    hidden, cell = (torch.stack(state.chunk(count, dim=-1)) for state in (hidden, cell.float()))
    joint = stack([parts.to(dtype) for parts in weights])
    with torch.cuda.device_of(inputs):
        if needs_gradient(words, hidden, cell, *joint):
            outputs, cell = _TritonScan.apply(is_word, keeps, limits, words, hidden, cell, *joint)
            hidden = outputs[:, -1]
        else:
            outputs, length = torch.empty_like(words), max(1, block_rows // len(mask))
            for start in range(0, words.shape[1], length):
                part = slice(start, start + length)
                block, *flags = (each[:, part].contiguous() for each in (words, is_word, keeps))
                steps = _run(block, flags[0], flags[1], hidden, cell, joint, limits, keeps_gates=False)
                outputs[:, part] = steps.hidden[:, 1:]
                hidden, cell = steps.hidden[:, -1].clone(), steps.cells[:, -1].clone()
    in_text_order = torch.cat(_turned(outputs), dim=-1).transpose(0, 1)  # (B, T, DP)
    hidden, cell = (torch.cat(state.unbind(), dim=-1).to(inputs.dtype) for state in (hidden, cell))
    return in_text_order.masked_fill(~mask.unsqueeze(-1), 0).to(inputs.dtype), hidden, cell


def _run(
    inputs: Tensor,
    is_word: Tensor,
    keeps: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: Weights,
    limits: Limits,
    keeps_gates: bool,
) -> Steps:
    """Runs steps in memory of their own."""
    (directions, length, batch, size), width = inputs.shape, cell.shape[-1]
    gates = torch.baddbmm(weights.bias.unsqueeze(1), inputs.flatten(1, 2), weights.inputs.transpose(1, 2))
    cells = inputs.new_empty(directions, length + 1, batch, width, dtype=torch.float32)
    projected, all_hidden = inputs.new_empty(inputs.shape), inputs.new_empty(directions, length + 1, batch, size)
    steps = Steps(gates.unflatten(1, (length, batch)), is_word, keeps, cells, projected, all_hidden)
    steps.hidden[:, 0], steps.cells[:, 0] = hidden, cell
    products, memory = (inputs.new_empty(directions, batch, n * width) for n in (4, 1))
    run_steps(steps, products, memory, weights.recurrent, weights.projection, limits, keeps_gates)
    return steps


class _TritonScan(torch.autograd.Function):
    """All steps with their gradient, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, is_word: Tensor, keeps: Tensor, limits: Limits, *tensors: Any) -> tuple[Tensor, Tensor]:
        inputs, hidden, cell, *parameters = tensors
        weights = Weights(*parameters)
        steps = _run(inputs, is_word, keeps, hidden, cell, weights, limits, keeps_gates=True)
        ctx.save_for_backward(inputs, weights.inputs, weights.recurrent, weights.projection, *steps)
        ctx.limits = limits
        return steps.hidden[:, 1:], steps.cells[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_last_cell: Tensor) -> tuple[Tensor | None, ...]:
        inputs, input_weight, recurrent, projection, *saved = ctx.saved_tensors
        steps = Steps(*saved)
        with torch.cuda.device_of(inputs):
            d_gates, d_projected, d_hidden, d_cell = run_steps_back(
                steps, d_outputs.contiguous(), d_last_cell, recurrent, projection, ctx.limits
            )
        d_z, d_projection = d_gates.flatten(1, 2), None
        if projection is not None:
            memory = steps.gates[..., 3 * steps.cells.shape[-1] :] * steps.cells[:, 1:].tanh()
            d_projection = torch.bmm(d_projected.flatten(1, 2).transpose(1, 2), memory.to(inputs.dtype).flatten(1, 2))
        used_hidden = steps.hidden[:, :-1] * steps.keeps.unsqueeze(-1)
        return (
            *(None, None, None),
            torch.bmm(d_z, input_weight).view(inputs.shape) if ctx.needs_input_grad[3] else None,
            d_hidden.to(inputs.dtype),
            d_cell,
            torch.bmm(d_z.transpose(1, 2), inputs.flatten(1, 2)),
            d_z.sum(dim=1),
            torch.bmm(d_z.transpose(1, 2), used_hidden.flatten(1, 2)),
            d_projection,
        )


def _by_step(directions: Sequence[Tensor]) -> Tensor:
    """D tensors `(B, T, ...)` in text order to `(D, T, B, ...)`, each direction in its reading order."""
    return torch.stack(_turned([direction.transpose(0, 1) for direction in directions]))


def _turned(directions: Sequence[Tensor] | Tensor) -> list[Tensor]:
    """D tensors `(T, ...)` from text order to reading order, or back: only the backward direction changes."""
    return [direction.flip(0) if index == 1 else direction for index, direction in enumerate(directions)]
