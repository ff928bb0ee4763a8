"""The words that fit a gap: cloze tests and substitutes.

Neither language model reads the word that it predicts. So at the place t of a sentence w_1 .. w_n both distributions
over the V words of the softmax come from one pass, whatever word stands there:

    forward(w)  = p(w | w_0 .. w_{t-1})              from the forward state after w_{t-1}
    backward(w) = p(w | w_{t+1} .. w_{n+1})          from the backward state after w_{t+1}
    both(w)     = forward(w) backward(w) / sum_v forward(v) backward(v)

The product ranks words well, but its probabilities are too sharp: each factor has the frequency of the word in it, so
frequency counts twice. (Bayes' rule, if both sides were independent given w, would divide the product by p(w), which no
model folder holds.)

A gap is a word of three or more underscores. Each of several gaps is predicted by itself; the others are read as they
are written. `<S>`, `</S>` and `<UNK>` have their share of each distribution, but are offered only as candidates.

Glossary: N gaps, T words with boundaries, V words of the softmax, D directions: 2, or 1 for a forward model alone.
"""

import re
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..tokenizer.tokenization_elmo import ElmoTokenizer
from ..tokenizer.word_codec import SPECIAL_WORDS, UNKNOWN_WORD
from .corpus import word_list
from .pretraining import ElmoForPreTraining
from .scoring import evaluating
from .sentence_model import DIRECTIONS

GAP = re.compile("_{3,}")
BOTH = "both"


class PredictedWord(NamedTuple):
    """A word for a gap.

    Attributes:
        word: the word.
        probability: in the direction asked for, among all V words.
        word_class: its class, the line of the vocabulary, from 0.
        forward: its probability given the words before the gap.
        backward: its probability given the words behind the gap; None if the model reads forward alone.
    """

    word: str
    probability: float
    word_class: int
    forward: float
    backward: float | None


def gaps(words: Sequence[str]) -> list[int]:
    """The places of the gaps, such as `___`, from 0; raises ValueError if there is none."""
    found = [place for place, word in enumerate(word_list(words)) if GAP.fullmatch(word)]
    if not found:
        raise ValueError(f"there is no gap: write ___ in place of the word to predict, found {' '.join(words)[:80]!r}.")
    return found


@torch.no_grad()
def gap_log_probs(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, words: Sequence[str], places: Sequence[int]
) -> Tensor:
    """Log-probabilities `(D, N, V)` of every word at N places of a sentence, without dropout, from the zero state.

    Raises:
        ValueError: if the words are a string, or the tokenizer does not know the words of the softmax.
    """
    if tokenizer.num_word_classes != model.config.num_softmax_words:
        raise ValueError(
            f"the softmax has {model.config.num_softmax_words:,} words, but the tokenizer knows "
            f"{tokenizer.num_word_classes or 'none'} of them: load both from one folder."
        )
    begin, end = tokenizer.boundaries
    text = [begin, *word_list(words), end]
    inputs = tokenizer([text], is_split_into_words=True, add_special_tokens=False, return_tensors="pt")
    with evaluating(model):
        output = model(**inputs.to(model.device), output_hidden_states=True)
    halves = output.hidden_states[-1][0].split(model.config.projection_size, dim=-1)
    # With `<S>` in front, the word t is in column t + 1; its neighbours predict it.
    columns = torch.arange(1, len(words) + 1, device=model.device)[places]
    hidden = torch.stack([half[columns + step] for half, step in zip(halves, (-1, 1), strict=False)])
    return nn.functional.linear(hidden, *model.output_table).float().log_softmax(dim=-1)


def rank_words(
    log_probs: Tensor,
    tokenizer: ElmoTokenizer,
    top_k: int = 5,
    candidates: Sequence[str] | None = None,
    direction: str = BOTH,
) -> list[list[PredictedWord]]:
    """The best words of each gap, by falling probability.

    Args:
        log_probs: `(D, N, V)`, from `gap_log_probs`.
        tokenizer: the tokenizer of the model.
        top_k: how many words.
        candidates: the words to choose from; without any, all but `<S>`, `</S>` and `<UNK>`.
        direction: `"both"` (their product), `"forward"` or `"backward"`; of a forward model both are the forward one.

    Raises:
        ValueError: if there is no such direction, or the softmax does not know a candidate.
    """
    directions = {BOTH: log_probs.sum(dim=0)} | dict(zip(DIRECTIONS, log_probs, strict=False))
    if direction not in directions:
        raise ValueError(f"the direction must be one of {', '.join(directions)}, found {direction!r}.")
    special = tokenizer.word_classes(SPECIAL_WORDS)
    candidates = list(dict.fromkeys(word_list(candidates or ())))
    classes = tokenizer.word_classes(candidates)
    unknown = [word for word in compress(candidates, classes == special[-1]) if word != UNKNOWN_WORD]
    if unknown:
        raise ValueError(
            f"the softmax cannot predict {', '.join(map(repr, unknown[:5]))}: {len(unknown)} of {len(candidates)} "
            f"candidates are not among its {tokenizer.num_word_classes:,} words."
        )
    wanted = directions[direction].log_softmax(dim=-1)
    if not candidates:
        classes = np.setdiff1d(np.arange(wanted.shape[-1]), special)
    among = torch.from_numpy(classes).to(wanted.device)
    chosen = among[wanted[:, among].topk(min(top_k, len(among))).indices]  # (N, top_k)
    probs = torch.stack([each.gather(1, chosen) for each in (wanted, *log_probs)]).exp().cpu().tolist()
    return [
        [
            PredictedWord(word, probability, index, *(*alone, None)[:2])
            for word, index, probability, *alone in zip(tokenizer.class_words(row), row, *numbers, strict=True)
        ]
        for row, *numbers in zip(chosen.tolist(), *probs, strict=True)
    ]


def predict_words(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    words: Sequence[str],
    position: int | None = None,
    *,
    top_k: int = 5,
    candidates: Sequence[str] | None = None,
    direction: str = BOTH,
) -> list[PredictedWord]:
    """The words that fit one place of a sentence, by falling probability.

    Args:
        model: language models with their softmax.
        tokenizer: their tokenizer, which knows the words of the softmax.
        words: the sentence without boundaries.
        position: the place, from 0; the word there is not read. None means the first gap, `___`.
        top_k: how many words.
        candidates: the words to choose from; None means the whole vocabulary.
        direction: `"both"` (the product of both distributions, normalised), `"forward"` or `"backward"`.

    Raises:
        ValueError: if `position` is None and there is no gap; if `gap_log_probs` or `rank_words` raises.
    """
    log_probs = gap_log_probs(model, tokenizer, words, [gaps(words)[0] if position is None else position])
    return rank_words(log_probs, tokenizer, top_k, candidates, direction)[0]
