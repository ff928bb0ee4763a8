"""The softmax over words that both language models share (Peters et al. 2018, §3.1; Jean et al. 2015 for sampling).

For a biLM output h `(P,)` and the matrix W `(V, P)` and bias b `(V,)`, word k has probability

    p(k | h) = exp(u_k) / sum_j exp(u_j),    u_k = W_k . h + b_k

A training step may replace the sum over V words by one over the target and S words drawn at random, each logit
corrected by the logarithm of how often its word is expected among the draws (TensorFlow's `sampled_softmax_loss`):

    P(k) = log((k + 2) / (k + 1)) / log(V + 1)           log-uniform: words are numbered by falling frequency
    E(k) = 1 - (1 - P(k))^n                              n draws were made until S of them were distinct
    loss = logsumexp_{j in {target} u S}(u_j - log E(j)) - (u_target - log E(target))

A drawn word that is the row's own target is left out of the row's sum. Or the words fall into clusters by frequency
(Grave et al. 2017, torch's `AdaptiveLogSoftmaxWithLoss`).

Glossary: N predictions, P projection, V words of the vocabulary, S sampled words. Class k is the k-th line, from 0, of
the vocabulary; losses are in nats.

Deliberate differences from bilm-tf: the draws are made without a loop over them; the full softmax goes through the
predictions in blocks and makes its gradient on the way, so that N x V numbers are never in memory at once.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..model.configuration_elmo import ElmoConfig

# Logits of one block: few enough to stay in a processor's cache for vocabularies of usual size (8 MiB in float32).
BLOCK_LOGITS = 2**21
LEAST_BLOCK_ROWS = 128


class Candidates(NamedTuple):
    """The words drawn for one batch of one direction.

    Attributes:
        words: `(S,)` distinct classes.
        num_draws: how many draws it took to have S distinct ones, as a tensor `()`.
    """

    words: Tensor
    num_draws: Tensor

    def log_expected_counts(self, classes: Tensor, num_words: int) -> Tensor:
        """Log E(k) for each of `classes`, in float32."""
        return torch.log(-torch.expm1(self.num_draws * torch.log1p(-_log_uniform(classes, num_words)))).float()


def draw_candidates(num_words: int, num_samples: int, device: torch.device | str = "cpu") -> Candidates:
    """Draws from the log-uniform distribution until `num_samples` classes of `num_words` are distinct.

    Uses torch's random generator of the device. Source: TensorFlow's `log_uniform_candidate_sampler(unique=True)`.

    Raises:
        ValueError: if there are fewer words than samples.
    """
    if num_samples > num_words:
        raise ValueError(f"cannot draw {num_samples} distinct words from a vocabulary of {num_words}.")
    draws = torch.empty(0, dtype=torch.long, device=device)
    while True:
        # P(k) is the length of [log(k + 1), log(k + 2)] within [0, log(V + 1)].
        uniform = torch.rand(2 * num_samples + 64, dtype=torch.float64, device=device)
        drawn = torch.exp(uniform * torch.log(torch.tensor(num_words + 1.0, dtype=torch.float64))).long() - 1
        draws = torch.cat([draws, drawn.clamp(max=num_words - 1)])
        is_new = _first_occurrences(draws)
        num_distinct = is_new.cumsum(0)
        if num_distinct[-1] >= num_samples:
            break
    num_draws = torch.searchsorted(num_distinct, num_samples) + 1
    return Candidates(draws[:num_draws][is_new[:num_draws]], num_draws.double())


class WordSoftmax(nn.Module):
    """Full or sampled softmax over V words.

    Where `share_embedding_softmax` is set there is no matrix here: every method is given the word embedding's.

    Source: `_build_loss` of bilm-tf's `LanguageModel`.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `num_softmax_words`, `projection_size`, `softmax` and `num_softmax_samples` of `config`."""
        super().__init__()
        assert config.num_softmax_words is not None
        self.num_samples = config.num_softmax_samples
        self.bias = nn.Parameter(torch.empty(config.num_softmax_words))
        if config.share_embedding_softmax:
            self.register_parameter("weight", None)
        else:
            self.weight = nn.Parameter(torch.empty(config.num_softmax_words, config.projection_size))

    def forward(self, hidden: Tensor, targets: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Sum of the exact cross-entropies of `hidden` `(N, P)` and `targets` `(N,)`: a number, in float32 at least."""
        # Without gradients the function below would make them all the same.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return -self.log_probs(hidden, targets, shared_weight).sum()
        weight = self.weight if shared_weight is None else shared_weight
        return _FullCrossEntropy.apply(hidden, weight, self.bias, targets)

    def sampled(
        self,
        hidden: Tensor,
        targets: Tensor,
        shared_weight: Tensor | None = None,
        candidates: Candidates | None = None,
    ) -> Tensor:
        """Sum of the sampled losses, for training only; lower than the cross-entropies, and not to be told as them.

        `candidates` None: draws new ones.
        """
        weight = self.weight if shared_weight is None else shared_weight
        if candidates is None:
            candidates = draw_candidates(len(self.bias), self.num_samples, hidden.device)
        # One look-up for both kinds of rows, so that the table gets one gradient.
        rows = torch.cat([targets, candidates.words])
        vectors = nn.functional.embedding(rows, weight)
        offsets = self.bias[rows] - candidates.log_expected_counts(rows, len(self.bias))
        num_targets = len(targets)
        target_logits = (hidden * vectors[:num_targets]).sum(dim=-1).float() + offsets[:num_targets]
        sampled_logits = nn.functional.linear(hidden, vectors[num_targets:]).float() + offsets[num_targets:]
        is_target = targets.unsqueeze(1) == candidates.words
        sampled_logits = sampled_logits.masked_fill(is_target, torch.finfo(torch.float32).min)
        logits = torch.cat([target_logits.unsqueeze(1), sampled_logits], dim=1)  # (N, 1 + S)
        return (logits.logsumexp(dim=1) - target_logits).sum()

    def logits(self, hidden: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Maps `(..., P)` to logits `(..., V)`."""
        return nn.functional.linear(hidden, self.weight if shared_weight is None else shared_weight, self.bias)

    def log_probs(self, hidden: Tensor, targets: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Maps `(N, P)` and targets `(N,)` to log p(target) `(N,)` in float32, a block of predictions at a time."""
        rows = _block_rows(len(self.bias))
        blocks = zip(hidden.split(rows), targets.split(rows), strict=True)
        losses = [_cross_entropies(self.logits(block, shared_weight), targets) for block, targets in blocks]
        return -torch.cat(losses) if losses else hidden.new_zeros(0, dtype=torch.float32)


class AdaptiveSoftmax(nn.Module):
    """A softmax whose rare words are reached through clusters, with smaller vectors: torch's, behind one interface."""

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `num_softmax_words`, `projection_size` and `softmax_cutoffs` of `config`."""
        super().__init__()
        assert config.num_softmax_words is not None
        assert config.softmax_cutoffs is not None
        self.clusters = nn.AdaptiveLogSoftmaxWithLoss(
            config.projection_size, config.num_softmax_words, list(config.softmax_cutoffs), head_bias=True
        )

    def forward(self, hidden: Tensor, targets: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Sum of the exact cross-entropies, a number."""
        return -self.log_probs(hidden, targets).sum()

    def logits(self, hidden: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Maps `(..., P)` to log-probabilities `(..., V)`, which are logits that sum to 1 already."""
        return self.clusters.log_prob(hidden.flatten(0, -2)).unflatten(0, hidden.shape[:-1])

    def log_probs(self, hidden: Tensor, targets: Tensor, shared_weight: Tensor | None = None) -> Tensor:
        """Maps `(N, P)` and targets `(N,)` to log p(target) `(N,)` in float32."""
        if len(targets) == 0:
            return hidden.new_zeros(0, dtype=torch.float32)
        # torch's module puts clusters together in the type of its input, which under autocast is not theirs.
        with torch.autocast(hidden.device.type, enabled=False):
            return self.clusters(hidden.to(self.clusters.head.weight.dtype), targets).output.float()


class _FullCrossEntropy(torch.autograd.Function):
    """Sum of cross-entropies; the gradient is made block by block in the forward pass and scaled in the backward one.

    Reference: `torch.nn.functional.cross_entropy` of all logits at once, in the tests.
    """

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
        num_rows = min(_block_rows(len(bias)), len(targets))
        block = vectors.new_empty(num_rows, len(bias))
        for start in range(0, len(targets), max(num_rows, 1)):
            rows = slice(start, start + num_rows)
            target = targets[rows].unsqueeze(1)
            logits = torch.addmm(offsets, vectors[rows], matrix.t(), out=block[: len(target)]).to(wide)
            largest = logits.amax(dim=1, keepdim=True)
            total += (largest - logits.gather(1, target)).sum()
            normaliser = logits.sub_(largest).exp_().sum(dim=1, keepdim=True)
            total += normaliser.log().sum()
            if needs_gradient:
                # The gradient of the logits, in their place: p - 1 at the target, else p.
                logits.div_(normaliser).scatter_add_(1, target, logits.new_full(target.shape, -1))
                bias_gradient += logits.sum(dim=0)
                logits = logits.to(dtype)
                hidden_gradient[rows] = (logits @ matrix).to(hidden.dtype)
                if dtype == weight.dtype:
                    weight_gradient.addmm_(logits.t(), vectors[rows])
                else:
                    weight_gradient += logits.t() @ vectors[rows]
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (tensor * gradient.to(tensor.dtype) for tensor in ctx.saved_tensors)
        return *(tensor if need else None for tensor, need in zip(gradients, ctx.needs_input_grad, strict=False)), None


def _cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float(), targets, reduction="none")


def _block_rows(num_words: int) -> int:
    return max(LEAST_BLOCK_ROWS, BLOCK_LOGITS // num_words)


def _log_uniform(classes: Tensor, num_words: int) -> Tensor:
    """P(k), in float64."""
    k = classes.double()
    return torch.log1p(1 / (k + 1)) / torch.log(torch.tensor(num_words + 1.0, dtype=torch.float64))


def _first_occurrences(values: Tensor) -> Tensor:
    """`(n,)`, True where a value stands for the first time."""
    ordered, order = torch.sort(values, stable=True)
    is_first = torch.ones_like(values, dtype=torch.bool)
    is_first[order[1:]] = ordered[1:] != ordered[:-1]
    return is_first
