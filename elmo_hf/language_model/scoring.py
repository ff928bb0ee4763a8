"""Log-probabilities, surprisal and perplexity of a text under both language models.

    surprisal in bits of word t    -log2 p(w_t | the words read before it)
    perplexity                     exp(- mean of log p over a direction's predictions)

The predictions of a sentence are its n words and the boundary read last: `</S>` forward, `<S>` backward. Words outside
the vocabulary score as `<UNK>`. The model's perplexity is the geometric mean of its directions'.

Each sentence starts from the *zero* state, as ELMo is used; or the state, zero at first, is *carried* from sentence to
sentence along B rows, as bilm-tf trains and tests (`bin/run_test.py`). Carried scoring leaves out the sentences that
are unfinished when the first row ends.

Glossary: B rows, T words, n words of a sentence, W words of the text, M sentences.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..model.inputs import IGNORED
from .corpus import BEGIN_INDEX, END_INDEX, Corpus
from .pretraining import ElmoForPreTraining
from .sentence_model import DIRECTIONS
from .streams import Stream
from .windows import window_arguments

BATCH_WORDS = 4096  # positions, padding included
WINDOW_STEPS = 64  # when the state is carried; scores do not depend on it
DEFAULT_ROWS = 32

Progress = Callable[[int], object]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switches dropout off within the block; afterwards every module has its own mode again."""
    was_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in was_training:
            module.training = mode


@dataclass(frozen=True)
class Scores:
    """Natural log-probabilities of a corpus, NaN for words that were not scored, or a direction that is missing."""

    forward: np.ndarray  # `(W + M,)` float32: the words and `</S>` of each sentence
    backward: np.ndarray  # `(W + M,)` float32: `<S>` and the words of each sentence
    starts: np.ndarray  # `(M + 1,)`, where each sentence's predictions start, then W + M

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
    model: ElmoForPreTraining, sentences: Iterable[Sequence[str]], tokenizer: Any, num_rows: int | None = None
) -> Scores:
    """Log-probabilities, surprisals and perplexities of sentences, lists of words without boundaries, without dropout.

    Each sentence starts from the zero state; or with `num_rows` from the state of the sentence before, as in bilm-tf's
    test: so many rows are read side by side, and 1 reads the text in its order.

    Raises:
        ValueError: if a sentence is a string, or the tokenizer has no vocabulary of predicted words.
    """
    corpus = Corpus.from_sentences(sentences, tokenizer)
    with evaluating(model):
        return score_from_zero(model, corpus) if num_rows is None else score_carried(model, corpus, num_rows)


@torch.no_grad()
def score_from_zero(model: ElmoForPreTraining, corpus: Corpus, progress: Progress = lambda count: None) -> Scores:
    """Scores each sentence from the zero state in evaluation mode.

    After each batch `progress` gets the number of its forward predictions.
    """
    scores = _empty(corpus)
    for sentences in _batches(corpus):
        lengths = corpus.starts[sentences + 1] - corpus.starts[sentences]
        words = np.full((len(sentences), lengths.max() + 2), END_INDEX, dtype=np.int64)
        words[:, 0] = BEGIN_INDEX
        mask = np.arange(words.shape[1]) < lengths[:, None] + 2
        # Row by row, the mask takes the words in the order of the joined sentences.
        words[:, 1:-1][mask[:, 2:]] = np.concatenate([corpus.sentence(sentence) for sentence in sentences])
        output = model(
            torch.from_numpy(corpus.ids[words]).to(model.device),
            attention_mask=torch.from_numpy(mask).to(model.device),
            labels=torch.from_numpy(np.where(mask, corpus.classes[words], IGNORED)).to(model.device),
            output_log_probs=True,
        )
        is_prediction = mask[:, 1:]
        places = (scores.starts[sentences, None] + np.arange(words.shape[1] - 1))[is_prediction]
        scores.forward[places] = _numpy(output.forward_log_probs)[:, 1:][is_prediction]
        if output.backward_log_probs is not None:
            scores.backward[places] = _numpy(output.backward_log_probs)[:, :-1][is_prediction]
        progress(len(places))
    return scores


@torch.no_grad()
def score_carried(
    model: ElmoForPreTraining, corpus: Corpus, num_rows: int = DEFAULT_ROWS, progress: Progress = lambda count: None
) -> Scores:
    """Scores like `score_from_zero`, but carries the state along `num_rows` rows, at most as many as sentences."""
    num_rows = max(min(num_rows, len(corpus)), 1)
    scores = _empty(corpus)
    streams = [Stream(corpus, num_rows, is_backward=index == 1) for index in range(model.config.num_directions)]
    state = None
    while True:
        windows = [stream.take(WINDOW_STEPS) for stream in streams]
        if windows[0].inputs.shape[1] == 0:
            return scores
        inputs = window_arguments(corpus, *windows, device=model.device)
        output = model(**inputs, state=state, output_log_probs=True)
        state = output.state
        for name, found, window in zip(DIRECTIONS, (scores.forward, scores.backward), windows, strict=False):
            found[window.places] = _numpy(output[f"{name}_log_probs"])
        progress(windows[0].places.size)


def _empty(corpus: Corpus) -> Scores:
    forward, backward = (np.full(corpus.num_predictions, np.nan, dtype=np.float32) for _ in range(2))
    return Scores(forward, backward, corpus.starts + np.arange(len(corpus) + 1))


def _batches(corpus: Corpus) -> Iterator[np.ndarray]:
    """Indices of sentences of similar length, at most `BATCH_WORDS` positions per batch (but at least one sentence)."""
    lengths = np.diff(corpus.starts) + 2
    order = np.argsort(lengths, kind="stable")
    while len(order):
        # Lengths rise, so the last sentence of a batch determines its width.
        rising = lengths[order[:BATCH_WORDS]]
        size = max(int((rising * np.arange(1, len(rising) + 1) <= BATCH_WORDS).sum()), 1)
        yield order[:size]
        order = order[size:]


def _perplexity(*directions: np.ndarray) -> float:
    """Infinite if too large for a float, as after training diverged; NaN if nothing was scored."""
    scored = [log_probs[~np.isnan(log_probs)].astype(np.float64) for log_probs in directions]
    means = [float(log_probs.mean()) for log_probs in scored if len(log_probs)] or [math.nan]
    try:
        return math.exp(-sum(means) / len(means))
    except OverflowError:
        return math.inf


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
