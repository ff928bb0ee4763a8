"""Log-probabilities, surprisal and perplexity of a text under both language models.

    surprisal in bits of word t    -log2 p(w_t | the words read before it)
    perplexity                     exp(- mean of log p over a direction's predictions)

The predictions of a sentence are its n words and the boundary read last: `</S>` forward, `<S>` backward. Words outside
the vocabulary score as `<UNK>`. The model's perplexity is the geometric mean of its directions'.

There are three ways to score. From the *zero* state, each sentence is read by itself, as ELMo is used. *Carried*, the
state passes from sentence to sentence along B rows, as in bilm-tf's training and test (`bin/run_test.py`); sentences
that are unfinished when the first row ends are not scored. Or the state is carried within each document, and all
sentences are scored.

Glossary: B rows, T words, n words of a sentence, W words of the text, M sentences.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from ..model.language_model_elmo import DIRECTIONS, ElmoForPreTraining
from ..model.layers_elmo import IGNORED
from ..text.batches import batches_by_length
from .corpus import BEGIN_INDEX, END_INDEX, Corpus
from .streams import SentenceStream, StreamWindow, window_arguments

SCORING_BATCH_WORDS = 4096  # positions, padding included
WINDOW_STEPS = 64  # when the state is carried; scores do not depend on it
DEFAULT_ROWS = 32

Progress = Callable[[int], object]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switches dropout off within the block; afterwards every module is in its former mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def check_vocabulary(model: ElmoForPreTraining, tokenizer: Any) -> None:
    """Raises ValueError if the words of the tokenizer are not those of the softmax."""
    if tokenizer.num_word_classes != model.config.num_softmax_words:
        raise ValueError(
            f"the softmax has {model.config.num_softmax_words:,} words, but the tokenizer knows "
            f"{tokenizer.num_word_classes or 'none'} of them: load both from one folder."
        )


def refuse_nan(sentence: int) -> NoReturn:
    """Raises a ValueError: the model gives NaN for this sentence."""
    raise ValueError(
        f"the model gives NaN for sentence {sentence}, counted from 0: its weights are damaged, or its training "
        "diverged."
    )


@dataclass(frozen=True)
class Scores:
    """Natural log-probabilities of a corpus; NaN for words that were not scored and for a missing direction."""

    forward: np.ndarray  # `(W + M,)` float32: the words and `</S>` of each sentence
    backward: np.ndarray  # `(W + M,)` float32: `<S>` and the words of each sentence
    starts: np.ndarray  # `(M + 1,)`, where each sentence's predictions start, then W + M

    @classmethod
    def none_of(cls, corpus: Corpus) -> "Scores":
        """Scores of a corpus before any is computed."""
        unscored = np.full(corpus.num_predictions, np.nan, dtype=np.float32)
        return cls(unscored, unscored.copy(), corpus.starts + np.arange(len(corpus) + 1))

    def store(self, direction: str, places: np.ndarray, log_probs: Tensor) -> None:
        """Stores log-probabilities of one direction at their places; raises ValueError for NaN."""
        values = log_probs.float().cpu().numpy()
        is_nan = np.isnan(values)
        if is_nan.any():
            refuse_nan(np.searchsorted(self.starts, places[is_nan].min(), side="right") - 1)
        getattr(self, direction)[places] = values

    @property
    def forward_perplexity(self) -> float:
        """Perplexity of the forward language model."""
        return _perplexity(self.forward)

    @property
    def backward_perplexity(self) -> float:
        """Perplexity of the backward language model."""
        return _perplexity(self.backward)

    @property
    def perplexity(self) -> float:
        """Geometric mean of the directions' perplexities."""
        return _perplexity(self.forward, self.backward)

    @property
    def num_scored(self) -> int:
        """How many forward predictions were scored."""
        return int((~np.isnan(self.forward)).sum())

    def surprisals(self, sentence: int) -> tuple[np.ndarray, np.ndarray]:
        """Bits of a sentence's predictions in text order: forward `(n + 1,)`, then backward `(n + 1,)`."""
        places = slice(self.starts[sentence], self.starts[sentence + 1])
        return -self.forward[places] / np.float32(math.log(2)), -self.backward[places] / np.float32(math.log(2))


def score(
    model: ElmoForPreTraining,
    sentences: Iterable[Sequence[str]],
    tokenizer: Any,
    *,
    carries_state: bool = False,
    num_rows: int = DEFAULT_ROWS,
) -> Scores:
    """Log-probabilities, surprisals and perplexities, without dropout, of sentences (words without boundaries).

    By default each sentence starts from the zero state. With `carries_state`, the state is carried from sentence to
    sentence along `num_rows` rows, as in bilm-tf's test; one row reads the text in its order.

    Raises:
        ValueError: if there is no sentence, or one is a string; if the words of tokenizer and softmax differ; if the
            model returns NaN.
    """
    check_vocabulary(model, tokenizer)
    corpus = Corpus.from_sentences(sentences, tokenizer)
    if len(corpus) == 0:
        raise ValueError("the text has no sentences, so there is nothing to score.")
    with evaluating(model):
        if carries_state:
            return score_carried(model, corpus, num_rows)
        return score_from_zero(model, corpus)


@torch.no_grad()
def score_from_zero(model: ElmoForPreTraining, corpus: Corpus, progress: Progress = lambda count: None) -> Scores:
    """Scores each sentence from the zero state in evaluation mode.

    After each batch, calls `progress` with the batch's number of forward predictions.
    """
    scores = Scores.none_of(corpus)
    lengths = np.diff(corpus.starts)
    for batch in batches_by_length((lengths + 2).tolist(), SCORING_BATCH_WORDS):
        sentences = np.array(batch)
        words, mask = _padded(corpus, sentences, lengths[sentences])
        is_word = torch.from_numpy(mask).to(model.device)
        output = model(
            torch.from_numpy(corpus.ids[words]).to(model.device),
            attention_mask=is_word,
            labels=torch.from_numpy(np.where(mask, corpus.classes[words], IGNORED)).to(model.device),
            output_log_probs=True,
        )
        # Forward, all columns but that of `<S>` are predicted; backward, all but that of `</S>`.
        places = (scores.starts[sentences, None] + np.arange(words.shape[1] - 1))[mask[:, 1:]]
        scores.store("forward", places, output.forward_log_probs[:, 1:][is_word[:, 1:]])
        if output.backward_log_probs is not None:
            scores.store("backward", places, output.backward_log_probs[:, :-1][is_word[:, 1:]])
        progress(len(places))
    return scores


def _padded(corpus: Corpus, sentences: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A batch of sentences between boundaries, padded on the right: word indices, and whether a place is a word.

    Takes the numbers of B sentences and their lengths without boundaries, both `(B,)`; returns two arrays `(B, T)`.
    """
    words = np.full((len(sentences), lengths.max() + 2), END_INDEX, dtype=np.int64)
    words[:, 0] = BEGIN_INDEX
    mask = np.arange(words.shape[1]) < lengths[:, None] + 2
    # Row by row, the mask takes the words in the order of the joined sentences.
    words[:, 1:-1][mask[:, 2:]] = np.concatenate([corpus.sentence(sentence) for sentence in sentences])
    return words, mask


@torch.no_grad()
def score_carried(
    model: ElmoForPreTraining,
    corpus: Corpus,
    num_rows: int = DEFAULT_ROWS,
    progress: Progress = lambda count: None,
    documents: Sequence[int] | None = None,
) -> Scores:
    """Scores like `score_from_zero`, but carries the state along `num_rows` rows (fewer if there are fewer sentences).

    `documents` has the number of each sentence's document. Each document is then read by itself, in one row and from
    the zero state; its sentences must be consecutive.
    """
    scores = Scores.none_of(corpus)
    parts = [range(len(corpus))]
    if documents is not None:
        parts = _documents(documents)
        num_rows = 1
    names = DIRECTIONS[: model.config.num_directions]
    for part in parts:
        rows = min(num_rows, len(part))
        streams = [SentenceStream(corpus, rows, is_backward=name == "backward", sentences=part) for name in names]
        state = None
        for windows in _windows(streams):
            inputs = window_arguments(corpus, *windows, device=model.device)
            output = model(**inputs, state=state, output_log_probs=True)
            state = output.state
            for name, window in zip(names, windows, strict=True):
                scores.store(name, window.places, output[f"{name}_log_probs"])
            progress(windows[0].places.size)
    return scores


def _documents(numbers: Sequence[int]) -> list[range]:
    """The sentences of each document, out of the number of each sentence's document."""
    documents = []
    for _, group in groupby(range(len(numbers)), numbers.__getitem__):
        sentences = list(group)
        documents.append(range(sentences[0], sentences[-1] + 1))
    return documents


def _windows(streams: Sequence[SentenceStream]) -> Iterator[list[StreamWindow]]:
    """Windows of all directions, until the streams end, which they do after the same step."""
    while True:
        windows = [stream.take(WINDOW_STEPS) for stream in streams]
        if windows[0].places.size == 0:
            return
        yield windows


def _perplexity(*directions: np.ndarray) -> float:
    """Infinite if too large for a float, as after training diverged; NaN if nothing was scored."""
    means = []
    for log_probs in directions:
        scored = log_probs[~np.isnan(log_probs)].astype(np.float64)
        if len(scored) > 0:
            means.append(scored.mean())
    if not means:
        return math.nan
    with np.errstate(over="ignore"):
        return float(np.exp(-np.mean(means)))
