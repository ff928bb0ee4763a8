"""A linear-chain conditional random field over the labels of a text (Lafferty et al. 2001; Lample et al. 2016).

    score(y) = start[y_1] + sum_t e_t[y_t] + sum_t transitions[y_t-1, y_t] + end[y_W]
    log Z    = log sum_y exp score(y)                            by messages from left to right
    loss     = log Z - log Z over the y that agree with the given labels

    m_1     = start           m_t+1[k]  = log sum_j exp(alpha_t[j] + transitions[j, k]),    alpha_t = m_t + e_t
    beta_W  = end             beta_t[j] = log sum_k exp(transitions[j, k] + e_t+1[k] + beta_t+1[k])
    log p(y_t = k) = alpha_t[k] + beta_t[k] - log Z

With labels named in the IOB2 scheme, `I-X` may follow only `B-X` and `I-X`; other transitions have probability 0.

Glossary: N texts, W words of the longest text, K labels; e emissions `(N, W, K)`, one score for each word and label.
Words stand first in their row, and where the mask is False every message stands still.

Deliberate differences from common implementations: a word whose label is unknown (`ignore_index`) is summed over
instead of being an error or a label, so that the loss of partly labelled texts is exact; an illegal transition keeps
its parameter and is made impossible when it is used, so that weight decay cannot make it possible again.
"""

import torch
from torch import Tensor, nn

from ..scan.operator import State, Stepped, scan_words

# Stands for log(0): its exponential is exactly 0 in float32, and unlike -inf it gives no NaN.
IMPOSSIBLE = -1e4


class LinearChainCRF(nn.Module):
    """Scores label sequences.

    Attributes:
        transitions: `(K, K)`, from the label of the row to that of the column.
        start: `(K,)`.
        end: `(K,)`.
    """

    def __init__(self, labels: list[str]) -> None:
        """`labels` are the names of the K labels, in order."""
        super().__init__()
        self.labels = labels
        self.transitions = nn.Parameter(torch.zeros(len(labels), len(labels)))
        self.start = nn.Parameter(torch.zeros(len(labels)))
        self.end = nn.Parameter(torch.zeros(len(labels)))
        # Plain lists: a tensor that is neither parameter nor persistent buffer does not survive loading.
        self._impossible = [[not may_follow(first, second, labels) for second in labels] for first in labels]
        self._impossible_start = [not may_follow("O", label, labels) for label in labels]

    def loss(self, emissions: Tensor, labels: Tensor, mask: Tensor, ignore_index: int = -100) -> Tensor:
        """Negative log-likelihood, the sum over texts.

        Args:
            emissions: `(N, W, K)`; computed in float32 at least.
            labels: `(N, W)`, `ignore_index` where a word's label is unknown.
            mask: `(N, W)`, True on words, which stand first.
            ignore_index: any number that is no label.

        Raises:
            ValueError: if a label is none of K, or labels follow each other illegally.
        """
        is_known = mask & (labels != ignore_index)
        self._check_labels(labels, is_known)
        agrees = (labels.unsqueeze(-1) == torch.arange(len(self.labels), device=labels.device)) | ~is_known.unsqueeze(
            -1
        )
        emissions = _wide(emissions)
        both = torch.cat([emissions, emissions.masked_fill(~agrees, IMPOSSIBLE)])
        log_partition, log_agreeing = self.log_partition(both, torch.cat([mask, mask])).chunk(2)
        return (log_partition - log_agreeing).sum()

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The log Z of each text `(N,)`, 0 for a text without words, of emissions `(N, W, K)`."""
        alphas, _, _, end = self._messages(emissions, mask)
        return (alphas[:, -1] + end).logsumexp(dim=-1).masked_fill(~mask[:, 0], 0)

    def log_marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The log p(y_t = k) `(N, W, K)` of emissions `(N, W, K)`; meaningless where the mask is False."""
        alphas, emissions, transitions, end = self._messages(emissions, mask)

        def step(state: State, word: State) -> Stepped:
            (beta,), (emission, is_word) = state, word
            before = (transitions + (emission + beta).unsqueeze(1)).logsumexp(dim=2)
            return (torch.where(is_word, before, beta),), beta

        _, betas = scan_words(step, (end.expand_as(alphas[:, 0]),), _by_word(emissions, mask), reverse=True)
        return (alphas + betas.transpose(0, 1)).log_softmax(dim=-1)

    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The labels `(N, W)` of the best sequence of each text (Viterbi); meaningless where the mask is False."""
        # The best sequence has no gradient, and the operator cannot leave that out of one by itself.
        emissions, transitions, start, end = (scores.detach() for scores in self._scores(emissions))
        stay = torch.arange(len(self.labels), device=mask.device)

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

    def _messages(self, emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Alphas `(N, W, K)`; then the emissions, transitions and end that they are of."""
        emissions, transitions, start, end = self._scores(emissions)

        def step(state: State, word: State) -> Stepped:
            (message, alpha), (emission, is_word) = state, word
            alpha = torch.where(is_word, message + emission, alpha)
            return ((alpha.unsqueeze(2) + transitions).logsumexp(dim=1), alpha), alpha

        starts = start.expand_as(emissions[:, 0])
        _, alphas = scan_words(step, (starts, starts), _by_word(emissions, mask))
        return alphas.transpose(0, 1), emissions, transitions, end

    def _scores(self, emissions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Emissions, transitions, start and end in float32 at least, with illegal transitions impossible."""
        device = emissions.device
        impossible = torch.tensor(self._impossible, device=device)
        impossible_start = torch.tensor(self._impossible_start, device=device)
        transitions = _wide(self.transitions).masked_fill(impossible, IMPOSSIBLE)
        return (
            _wide(emissions),
            transitions,
            _wide(self.start).masked_fill(impossible_start, IMPOSSIBLE),
            _wide(self.end),
        )

    def _check_labels(self, labels: Tensor, is_known: Tensor) -> None:
        if torch.compiler.is_compiling():
            return  # a compiled graph cannot look at the data
        known = labels[is_known]
        if ((known < 0) | (known >= len(self.labels))).any():
            raise ValueError(f"labels must be 0 to {len(self.labels) - 1}, found {known.min()} to {known.max()}.")
        safe = labels.masked_fill(~is_known, 0)
        impossible = torch.tensor(self._impossible, device=labels.device)[safe[:, :-1], safe[:, 1:]]
        impossible &= is_known[:, :-1] & is_known[:, 1:]
        impossible_start = torch.tensor(self._impossible_start, device=labels.device)[safe[:, :1]] & is_known[:, :1]
        for text, word in torch.cat([impossible_start, impossible], dim=1).nonzero()[:1].tolist():
            before = "the beginning of a text" if word == 0 else repr(self.labels[int(labels[text, word - 1])])
            raise ValueError(
                f"label {self.labels[int(labels[text, word])]!r} cannot follow {before}, found at word {word} of text "
                f"{text}; with a CRF, labels named B-, I- and O must be in the IOB2 scheme, where an entity begins "
                "with B-."
            )


def may_follow(first: str, second: str, labels: list[str]) -> bool:
    """Whether label `second` may stand after `first` in the IOB2 scheme; at the start of a text `first` is "O".

    Only a label `I-X` for which there is a `B-X` is ever restricted.
    """
    prefix, _, kind = second.partition("-")
    if prefix != "I" or f"B-{kind}" not in labels:
        return True
    return first in (f"B-{kind}", f"I-{kind}")


def _by_word(emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions `(W, N, K)` and mask `(W, N, 1)`."""
    return emissions.transpose(0, 1), mask.t().unsqueeze(-1)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
