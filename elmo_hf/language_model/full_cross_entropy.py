"""The loss of the full softmax with its gradient, in blocks of predictions.

    loss = sum_n (log sum_k exp(u_nk) - u_n,target)        d loss / d u_nk = p(k | h_n) - 1[k = target]

The forward pass computes the gradient of a block while its logits are in memory, so that N x V numbers are never in
memory at once. `model/language_model_elmo.py` has the glossary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..model.language_model_elmo import block_size


def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The summed loss `()` of h `(N, P)`, W `(V, P)`, b `(V,)` and targets `(N,)`, in float32 or float64."""
    return _CrossEntropy.apply(hidden, weight, bias, targets)


class _CrossEntropy(torch.autograd.Function):
    """The forward pass also computes the gradient; the backward pass scales it."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        vectors = hidden.to(dtype)
        matrix = weight.to(dtype)
        offsets = bias.to(dtype)
        hidden_gradient = torch.zeros_like(hidden)
        weight_gradient = torch.zeros_like(weight)
        bias_gradient = torch.zeros_like(bias)
        wide = torch.promote_types(dtype, torch.float32)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        size = min(block_size(len(bias)), len(targets))
        buffer = vectors.new_empty(size, len(bias))
        for start in range(0, len(targets), max(size, 1)):
            block = slice(start, start + size)
            target = targets[block].unsqueeze(1)
            logits = torch.addmm(offsets, vectors[block], matrix.t(), out=buffer[: len(target)]).to(wide)
            largest = logits.amax(dim=1, keepdim=True)
            total += (largest - logits.gather(1, target)).sum()
            normaliser = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            total += normaliser.log().sum()
            # The gradient of the logits overwrites them: p - 1 at the target, else p.
            logits.div_(normaliser).scatter_add_(1, target, logits.new_full(target.shape, -1))
            bias_gradient += logits.sum(dim=0)
            logits = logits.to(dtype)
            hidden_gradient[block] = (logits @ matrix).to(hidden.dtype)
            if dtype == weight.dtype:
                weight_gradient.addmm_(logits.t(), vectors[block])
            else:
                weight_gradient += logits.t() @ vectors[block]
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [tensor * gradient.to(tensor.dtype) for tensor in ctx.saved_tensors]
        return (*gradients, None)
