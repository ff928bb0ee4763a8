"""The sampled softmax of training (Jean et al. 2015; TensorFlow's `sampled_softmax_loss`).

A training step replaces the sum over V words by a sum over the target and S words drawn at random. Each logit u_k (see
`model/language_model_elmo.py`) is corrected by the logarithm of its word's expected count among the draws:

    P(k) = log((k + 2) / (k + 1)) / log(V + 1)           log-uniform: classes are sorted by falling frequency
    E(k) = 1 - (1 - P(k))^n                              n draws were made until S of them were distinct
    loss = logsumexp_{j in {target} u S}(u_j - log E(j)) - (u_target - log E(target))
         = log(1 + exp(logsumexp_{j in S}(u_j - log E(j)) - (u_target - log E(target))))

If a drawn word is the target of a prediction, that prediction's sum leaves it out.

Glossary: N predictions, P projection, V words of the vocabulary, S sampled words. Losses are in nats.

Deliberate difference from bilm-tf: all draws are made at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Candidates(NamedTuple):
    """The words drawn for one batch of one direction: `(S,)` distinct classes, and n, the draws made, `()`."""

    words: Tensor
    num_draws: Tensor

    def log_expected_counts(self, classes: Tensor, num_words: int) -> Tensor:
        """Log E(k) of each class, in float32."""
        probabilities = torch.log1p(1 / (classes.double() + 1)) / _log_of_all(num_words)
        return torch.log(-torch.expm1(self.num_draws * torch.log1p(-probabilities))).float()


def draw_candidates(num_words: int, num_samples: int, device: torch.device | str = "cpu") -> Candidates:
    """Draws from the log-uniform distribution until `num_samples` classes of `num_words` are distinct.

    Uses the device's random generator. Source: TensorFlow's `log_uniform_candidate_sampler(unique=True)`.
    """
    assert num_samples <= num_words  # which the config checks
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


def sampled_losses(
    weight: Tensor, bias: Tensor, hidden: Sequence[Tensor], targets: Sequence[Tensor], candidates: Sequence[Candidates]
) -> list[Tensor]:
    """Each direction's sum of sampled losses. Do not report them: they are lower than cross-entropies.

    Takes W and b, and for each direction biLM outputs `(N, P)`, targets `(N,)` and the words drawn.
    """
    # One look-up for all directions, so that the matrix gets one gradient.
    classes = [torch.cat([target, drawn.words]) for target, drawn in zip(targets, candidates, strict=True)]
    rows = nn.functional.embedding(torch.cat(classes), weight).split([len(words) for words in classes])
    losses = []
    for index, (states, target, drawn) in enumerate(zip(hidden, targets, candidates, strict=True)):
        sizes = [len(target), len(drawn.words)]
        offsets = bias[classes[index]] - drawn.log_expected_counts(classes[index], len(bias))
        target_offsets, drawn_offsets = offsets.split(sizes)
        target_vectors, drawn_vectors = rows[index].split(sizes)
        target_logits = (states * target_vectors).sum(dim=-1).float() + target_offsets
        logits = nn.functional.linear(states, drawn_vectors).float() + drawn_offsets  # (N, S)
        logits.masked_fill_(target.unsqueeze(1) == drawn.words, torch.finfo(torch.float32).min)
        losses.append(nn.functional.softplus(logits.logsumexp(dim=1) - target_logits).sum())
    return losses


def _log_of_all(num_words: int) -> Tensor:
    """log(V + 1), in float64."""
    return torch.log(torch.tensor(num_words + 1.0, dtype=torch.float64))
