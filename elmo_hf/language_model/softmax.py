"""The softmax over words that both language models share (Peters et al. 2018, §3.1).

For a biLM output h `(P,)`, the matrix W `(V, P)` and the bias b `(V,)`, word k has probability

    p(k | h) = exp(u_k) / sum_j exp(u_j),    u_k = W_k . h + b_k

Training may sample words in its place, with the package: `sampled_softmax.py`.

Glossary: N predictions, P projection, V words of the vocabulary. Class k is line k, from 0, of the vocabulary. Losses
are in nats.

Deliberate difference from bilm-tf: predictions are taken in blocks and gradients are computed on the way, so that N x V
numbers are never in memory at once.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import initialization as init

from ..model.configuration_elmo import ElmoConfig

BLOCK_LOGITS = 2**21  # a block's logits fit a processor's cache (8 MiB in float32) unless the vocabulary is very large
LEAST_BLOCK_SIZE = 128  # predictions


class WordSoftmax(nn.Module):
    """The full softmax over V words (`_build_loss` of bilm-tf's `LanguageModel`).

    With `share_embedding_softmax` it has no matrix of its own: every method needs the word embedding's `shared_weight`.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the bias, and the matrix unless it is shared."""
        super().__init__()
        assert config.num_softmax_words is not None
        self.bias = nn.Parameter(torch.empty(config.num_softmax_words))
        if config.share_embedding_softmax:
            self.register_parameter("weight", None)
        else:
            self.weight = nn.Parameter(torch.empty(config.num_softmax_words, config.projection_size))

    def init_parameters(self) -> None:
        """Draws bilm-tf's random weights."""
        if self.weight is not None:
            init.normal_(self.weight, std=1 / math.sqrt(self.weight.shape[1]))
        init.zeros_(self.bias)

    def forward(self, hidden: Tensor, targets: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Sum of the exact cross-entropies of `hidden` `(N, P)` and `targets` `(N,)`, in float32 at least."""
        # The function below computes gradients even under `no_grad`.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return -self.log_probs(hidden, targets, shared_weight).sum()
        weight = self.weight if shared_weight is None else shared_weight
        return _FullCrossEntropy.apply(hidden, weight, self.bias, targets)

    def logits(self, hidden: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Maps `(..., P)` to logits `(..., V)`."""
        return nn.functional.linear(hidden, self.weight if shared_weight is None else shared_weight, self.bias)

    def log_probs(self, hidden: Tensor, targets: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Maps `(N, P)` and targets `(N,)` to log p(target) `(N,)` in float32, block by block."""
        size = _block_size(len(self.bias))
        losses = [
            nn.functional.cross_entropy(self.logits(block, shared_weight).float(), classes, reduction="none")
            for block, classes in zip(hidden.split(size), targets.split(size), strict=True)
        ]
        return -torch.cat(losses) if losses else hidden.new_zeros(0, dtype=torch.float32)


class _FullCrossEntropy(torch.autograd.Function):
    """Summed `cross_entropy` of all logits; the forward pass makes the gradient by blocks, the backward scales it."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        vectors, matrix, offsets = hidden.to(dtype), weight.to(dtype), bias.to(dtype)
        hidden_gradient, weight_gradient, bias_gradient = map(torch.zeros_like, (hidden, weight, bias))
        wide = torch.promote_types(dtype, torch.float32)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        size = min(_block_size(len(bias)), len(targets))
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
        return *(tensor * gradient.to(tensor.dtype) for tensor in ctx.saved_tensors), None


def _block_size(num_words: int) -> int:
    return max(LEAST_BLOCK_SIZE, BLOCK_LOGITS // num_words)
