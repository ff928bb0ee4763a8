"""A linear-chain conditional random field over the labels of a text (Lafferty et al. 2001; Lample et al. 2016).

    score(y) = start[y_1] + sum_t e_t[y_t] + sum_t transitions[y_t-1, y_t] + end[y_W]
    log Z    = log sum_y exp score(y)                            by messages from left to right
    loss     = log Z - log Z over the y that agree with the known labels

    m_1     = start           m_t+1[k]  = log sum_j exp(alpha_t[j] + transitions[j, k]),    alpha_t = m_t + e_t
    beta_W  = end             beta_t[j] = log sum_k exp(transitions[j, k] + e_t+1[k] + beta_t+1[k])
    log p(y_t = k) = alpha_t[k] + beta_t[k] - log Z

With labels named in the IOB2 scheme, `I-X` may follow only `B-X` and `I-X`; other transitions have probability 0.

Glossary: N texts, W words of the longest text, K labels; e emissions `(N, W, K)`, one score for each word and label.
Words come first in their row, and padding leaves messages unchanged.

Deliberate differences from common implementations: the loss sums over unknown labels (-100), so it is exact for partly
labelled texts; illegal transitions are masked on use, so weight decay cannot make them possible again.
"""

from collections.abc import Collection
from functools import cached_property

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..model.inputs import IGNORED
from ..scan.operator import State, Stepped, scan_words

# Used as log(0): its exponential is exactly 0 in float32, and unlike -inf it gives no NaN.
IMPOSSIBLE = -1e4


class LinearChainCRF(nn.Module):
    """Scores label sequences by `transitions` `(K, K)`, from row to column, `start` `(K,)` and `end` `(K,)`.

    Compiled graphs break at its methods, because their loops over words would need a graph for each length.
    """

    def __init__(self, labels: list[str]) -> None:
        """Takes the names of the K labels."""
        super().__init__()
        self.labels = labels
        self.transitions = nn.Parameter(torch.zeros(len(labels), len(labels)))
        self.start = nn.Parameter(torch.zeros(len(labels)))
        self.end = nn.Parameter(torch.zeros(len(labels)))

    @cached_property
    def _impossible(self) -> list[list[bool]]:
        """Like `transitions`, with a last row for the beginning of a text.

        Made on first use, because a model on the meta device, whose shapes are checked, must take no memory. A list,
        because loading loses a tensor that is neither a parameter nor a persistent buffer.
        """
        names = frozenset(self.labels)
        return [[not may_follow(first, second, names) for second in self.labels] for first in [*self.labels, "O"]]

    def init_parameters(self) -> None:
        """Starts from zeros."""
        for parameter in self.parameters():
            init.zeros_(parameter)

    @torch.compiler.disable
    def loss(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Negative log-likelihood, summed over texts, in float32 at least.

        `labels` are `(N, W)`, -100 where unknown; `mask` `(N, W)` is True on words, which come first in each row.

        Raises:
            ValueError: if a label may not follow the one before it.
        """
        is_known = mask & (labels != IGNORED)
        labels = labels.masked_fill(~is_known, 0).long()
        agrees = nn.functional.one_hot(labels, len(self.labels)).bool()
        self._refuse_illegal(labels, is_known)
        emissions = _wide(emissions)
        both = torch.cat([emissions, emissions.masked_fill(~agrees & is_known.unsqueeze(-1), IMPOSSIBLE)])
        log_partition, log_agreeing = self.log_partition(both, torch.cat([mask, mask])).chunk(2)
        return (log_partition - log_agreeing).sum()

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Maps emissions `(N, W, K)` to log Z `(N,)`, 0 for a text without words."""
        emissions, transitions, start, end = self._scores(emissions)
        alphas = _alphas(emissions, mask, transitions, start)
        return (alphas[:, -1] + end).logsumexp(dim=-1).masked_fill(~mask[:, 0], 0)

    @torch.compiler.disable
    def log_marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Maps emissions `(N, W, K)` to log p(y_t = k) `(N, W, K)`, arbitrary on padding."""
        emissions, transitions, start, end = self._scores(emissions)

        def step(state: State, word: State) -> Stepped:
            (beta,), (emission, is_word) = state, word
            before = (transitions + (emission + beta).unsqueeze(1)).logsumexp(dim=2)
            return (torch.where(is_word, before, beta),), beta

        ends = end.expand_as(emissions[:, 0])
        betas = scan_words(step, (ends,), _by_word(emissions, mask), reverse=True)[1].transpose(0, 1)
        return (_alphas(emissions, mask, transitions, start) + betas).log_softmax(dim=-1)

    @torch.no_grad()
    @torch.compiler.disable
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Maps emissions `(N, W, K)` to each text's best labels `(N, W)` (Viterbi), arbitrary on padding."""
        emissions, transitions, start, end = self._scores(emissions)
        stay = torch.arange(len(start), device=mask.device)

        def step(state: State, word: State) -> Stepped:
            (message, best), (emission, is_word, has_next) = state, word
            best = torch.where(is_word, message + emission, best)
            message, origin = (best.unsqueeze(2) + transitions).max(dim=1)
            return (message, best), torch.where(has_next, origin, stay)

        def step_back(state: State, word: State) -> Stepped:
            label = word[0].gather(1, state[0])
            return (label,), label.squeeze(1)

        has_next = mask.cumsum(dim=1) < mask.sum(dim=1, keepdim=True)
        words = (*_by_word(emissions, mask), has_next.t().unsqueeze(-1))
        starts = start.expand_as(emissions[:, 0])
        (_, best), origins = scan_words(step, (starts, starts), words)
        last = (best + end).argmax(dim=-1, keepdim=True)
        return scan_words(step_back, (last,), (origins,), reverse=True)[1].t()

    def _scores(self, emissions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Emissions, transitions, start and end in float32 at least, with illegal transitions impossible."""
        impossible = torch.tensor(self._impossible, device=emissions.device)
        transitions = _wide(self.transitions).masked_fill(impossible[:-1], IMPOSSIBLE)
        return _wide(emissions), transitions, _wide(self.start).masked_fill(impossible[-1], IMPOSSIBLE), _wide(self.end)

    def _refuse_illegal(self, labels: Tensor, is_known: Tensor) -> None:
        # The label before each word: K for the beginning of the text; after an unknown label, any may follow.
        before = nn.functional.pad(labels[:, :-1], (1, 0), value=len(self.labels))
        is_known = is_known & nn.functional.pad(is_known[:, :-1], (1, 0), value=True)
        impossible = torch.tensor(self._impossible, device=labels.device)[before, labels] & is_known
        for text, word in impossible.nonzero()[:1].tolist():
            label, previous = ([*self.labels, "the beginning of a text"][each[text, word]] for each in (labels, before))
            raise ValueError(
                f"label {label!r} cannot follow {previous!r}, found at word {word} of text {text}; with a CRF an "
                "entity begins with B-: `elmo_hf.tasks.label_schemes.to_iob2` converts the labels of other schemes."
            )


def _alphas(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor) -> Tensor:
    """Alphas `(N, W, K)`."""

    def step(state: State, word: State) -> Stepped:
        (message, alpha), (emission, is_word) = state, word
        alpha = torch.where(is_word, message + emission, alpha)
        return ((alpha.unsqueeze(2) + transitions).logsumexp(dim=1), alpha), alpha

    starts = start.expand_as(emissions[:, 0])
    return scan_words(step, (starts, starts), _by_word(emissions, mask))[1].transpose(0, 1)


def may_follow(first: str, second: str, labels: Collection[str]) -> bool:
    """Whether IOB2 allows label `second` after `first` ("O" before a text); if no label is `B-X`, `I-X` is free."""
    prefix, _, kind = second.partition("-")
    return prefix != "I" or f"B-{kind}" not in labels or first in (f"B-{kind}", f"I-{kind}")


def _by_word(emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions `(W, N, K)` and mask `(W, N, 1)`."""
    return emissions.transpose(0, 1), mask.t().unsqueeze(-1)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
