"""The softmax over words that both language models share (Peters et al. 2018, §3.1; Jean et al. 2015 for sampling).

For a biLM output h `(P,)`, the matrix W `(V, P)` and the bias b `(V,)`, word k has probability

    p(k | h) = exp(u_k) / sum_j exp(u_j),    u_k = W_k . h + b_k

A training step may replace the sum over V words by one over the target and S words drawn at random. Each logit is then
corrected by the logarithm of its word's expected count among the draws (TensorFlow's `sampled_softmax_loss`):

    P(k) = log((k + 2) / (k + 1)) / log(V + 1)           log-uniform: classes are sorted by falling frequency
    E(k) = 1 - (1 - P(k))^n                              n draws were made until S of them were distinct
    loss = logsumexp_{j in {target} u S}(u_j - log E(j)) - (u_target - log E(target))
         = log(1 + exp(logsumexp_{j in S}(u_j - log E(j)) - (u_target - log E(target))))

A drawn word that is a prediction's own target is left out of that prediction's sum.

Glossary: N predictions, P projection, V words of the vocabulary, S sampled words. Class k is line k, from 0, of the
vocabulary. Losses are in nats.

Deliberate differences from bilm-tf: all draws are made at once. The full softmax goes through the predictions in blocks
and computes its gradient on the way, so that N x V numbers are never in memory at once.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import initialization as init

from ..model.configuration_elmo import ElmoConfig

BLOCK_LOGITS = 2**21  # a block's logits fit a processor's cache (8 MiB in float32) unless the vocabulary is very large
LEAST_BLOCK_SIZE = 128  # predictions


class Candidates(NamedTuple):
    """The words drawn for one batch of one direction: `(S,)` distinct classes, and n, the draws made, `()`."""

    words: Tensor
    num_draws: Tensor

    def log_expected_counts(self, classes: Tensor, num_words: int) -> Tensor:
        """Log E(k) of each class, in float32."""
        probabilities = torch.log1p(1 / (classes.double() + 1)) / _log_of_all(num_words)
        return torch.log(-torch.expm1(self.num_draws * torch.log1p(-probabilities))).float()


Tensors = Sequence[Tensor]  # one item for each direction
Drawn = Sequence[Candidates]


def draw_candidates(num_words: int, num_samples: int, device: torch.device | str = "cpu") -> Candidates:
    """Draws from the log-uniform distribution until `num_samples` classes of `num_words` are distinct.

    Uses the device's random generator. Source: TensorFlow's `log_uniform_candidate_sampler(unique=True)`.

    Raises:
        ValueError: if there are fewer words than samples.
    """
    if num_samples > num_words:
        raise ValueError(f"cannot draw {num_samples} distinct words from a vocabulary of {num_words}.")
    draws = torch.empty(0, dtype=torch.long, device=device)
    while True:
        # P(k) is the length of [log(k + 1), log(k + 2)] within [0, log(V + 1)].
        uniform = torch.rand(2 * num_samples + 64, dtype=torch.float64, device=device)
        drawn = torch.exp(uniform * _log_of_all(num_words)).long() - 1
        draws = torch.cat([draws, drawn.clamp(max=num_words - 1)])
        ordered, order = draws.sort(stable=True)
        is_new = torch.ones_like(draws, dtype=torch.bool)
        is_new[order[1:]] = ordered[1:] != ordered[:-1]
        num_distinct = is_new.cumsum(0)
        if num_distinct[-1] >= num_samples:
            num_draws = torch.searchsorted(num_distinct, num_samples) + 1
            return Candidates(draws[:num_draws][is_new[:num_draws]], num_draws.double())


class WordSoftmax(nn.Module):
    """Full or sampled softmax over V words (`_build_loss` of bilm-tf's `LanguageModel`).

    With `share_embedding_softmax` it has no matrix of its own: every method needs the word embedding's `shared_weight`.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the bias, and the matrix unless it is shared."""
        super().__init__()
        assert config.num_softmax_words is not None
        self.num_samples = config.num_softmax_samples
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

    def sampled(
        self, hidden: Tensors, targets: Tensors, shared_weight: Tensor | None = None, candidates: Drawn | None = None
    ) -> list[Tensor]:
        """Each direction's sum of sampled losses; lower than cross-entropies, so never report one."""
        weight, num_words = self.weight if shared_weight is None else shared_weight, len(self.bias)
        candidates = candidates or [draw_candidates(num_words, self.num_samples, weight.device) for _ in hidden]
        # One look-up for all directions, so that the matrix gets one gradient.
        parts = [part for each, drawn in zip(targets, candidates, strict=True) for part in (each, drawn.words)]
        vectors = iter(nn.functional.embedding(torch.cat(parts), weight).split([len(part) for part in parts]))
        losses = []
        for states, target, drawn in zip(hidden, targets, candidates, strict=True):
            classes = torch.cat([target, drawn.words])
            offsets = self.bias[classes] - drawn.log_expected_counts(classes, num_words)
            own, others = offsets.split([len(target), len(drawn.words)])
            target_logits = (states * next(vectors)).sum(dim=-1).float() + own
            logits = nn.functional.linear(states, next(vectors)).float() + others  # (N, S)
            logits.masked_fill_(target.unsqueeze(1) == drawn.words, torch.finfo(torch.float32).min)
            losses.append(nn.functional.softplus(logits.logsumexp(dim=1) - target_logits).sum())
        return losses

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
        needs_gradient = any(ctx.needs_input_grad)
        parameters = (hidden, weight, bias) if needs_gradient else (hidden[:0], weight[:0], bias[:0])
        hidden_gradient, weight_gradient, bias_gradient = (torch.zeros_like(tensor) for tensor in parameters)
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
            if needs_gradient:
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
        gradients = (tensor * gradient.to(tensor.dtype) for tensor in ctx.saved_tensors)
        return *(tensor if need else None for tensor, need in zip(gradients, ctx.needs_input_grad, strict=False)), None


def _block_size(num_words: int) -> int:
    return max(LEAST_BLOCK_SIZE, BLOCK_LOGITS // num_words)


def _log_of_all(num_words: int) -> Tensor:
    """log(V + 1), in float64."""
    return torch.log(torch.tensor(num_words + 1.0, dtype=torch.float64))
