"""Log-probabilities, surprisal and perplexity of a text under both language models.

    surprisal in bits of word t    -log2 p(w_t | the words read before it)
    perplexity                     exp(- mean of log p over a direction's predictions)

The predictions of a sentence are its n words and the boundary read last: `</S>` forward, `<S>` backward. Words outside
the vocabulary score as `<UNK>`. The model's perplexity is the geometric mean of both directions'.

Each sentence starts from the *zero* state, as ELMo is used; or the state is *carried* from sentence to sentence along B
rows, as bilm-tf trains and tests (`bin/run_test.py`). Carried scoring leaves out the sentences that are unfinished when
the first row ends.

Glossary: B rows, T words, n words of a sentence, W words of the text, M sentences.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from .corpus import BEGIN_INDEX, END_INDEX, Corpus
from .streams import Stream, Window

# Positions of one batch, padding included.
BATCH_WORDS = 4096
# Steps of one window when the state is carried; scores do not depend on it.
WINDOW_STEPS = 64
DEFAULT_ROWS = 32

Progress = Callable[[int], object]


@dataclass(frozen=True)
class Scores:
    """Natural log-probabilities of a corpus, NaN for words that were not scored.

    Attributes:
        forward: `(W + M,)` float32: the words and `</S>` of each sentence.
        backward: `(W + M,)` float32: `<S>` and the words of each sentence.
        starts: `(M + 1,)`, where each sentence's predictions start, then W + M.
    """

    forward: np.ndarray
    backward: np.ndarray
    starts: np.ndarray

    @property
    def forward_perplexity(self) -> float:
        """Perplexity of the forward language model."""
        return _exp(-self._mean(self.forward))

    @property
    def backward_perplexity(self) -> float:
        """Perplexity of the backward language model."""
        return _exp(-self._mean(self.backward))

    @property
    def perplexity(self) -> float:
        """Geometric mean of both directions' perplexities."""
        return _exp(-(self._mean(self.forward) + self._mean(self.backward)) / 2)

    @property
    def num_scored(self) -> int:
        """How many forward predictions were scored."""
        return int((~np.isnan(self.forward)).sum())

    def surprisals(self, sentence: int) -> tuple[np.ndarray, np.ndarray]:
        """Bits of a sentence's predictions in text order: forward `(n + 1,)`, then backward `(n + 1,)`."""
        places = slice(self.starts[sentence], self.starts[sentence + 1])
        return -self.forward[places] / np.float32(math.log(2)), -self.backward[places] / np.float32(math.log(2))

    @staticmethod
    def _mean(log_probs: np.ndarray) -> float:
        scored = log_probs[~np.isnan(log_probs)].astype(np.float64)
        return float(scored.mean()) if len(scored) else math.nan


@torch.no_grad()
def score_from_zero(model: PreTrainedModel, corpus: Corpus, progress: Progress = lambda count: None) -> Scores:
    """Scores each sentence from the zero state.

    Args:
        model: an `ElmoForPreTraining` in evaluation mode.
        corpus: the text.
        progress: called after each batch with the number of its forward predictions.
    """
    scores = _empty(corpus)
    for sentences in _batches(corpus):
        lengths = corpus.starts[sentences + 1] - corpus.starts[sentences]
        words = np.full((len(sentences), lengths.max() + 2), END_INDEX, dtype=np.int64)
        mask = np.arange(words.shape[1]) < lengths[:, None] + 2
        words[:, 0] = BEGIN_INDEX
        # Row by row, the mask takes the words in the order of the joined sentences.
        is_word = np.arange(lengths.max()) < lengths[:, None]
        words[:, 1:-1][is_word] = np.concatenate([corpus.sentence(sentence) for sentence in sentences])
        output = model(
            _ids(corpus, words, model.device),
            attention_mask=torch.from_numpy(mask).to(model.device),
            labels=torch.from_numpy(np.where(mask, corpus.classes[words], -100)).to(model.device),
            output_log_probs=True,
        )
        places = (corpus.starts[sentences] + sentences)[:, None] + np.arange(words.shape[1] - 1)
        is_prediction = mask[:, 1:]
        scores.forward[places[is_prediction]] = _numpy(output.forward_log_probs)[:, 1:][is_prediction]
        scores.backward[places[is_prediction]] = _numpy(output.backward_log_probs)[:, :-1][is_prediction]
        progress(int(is_prediction.sum()))
    return scores


@torch.no_grad()
def score_carried(
    model: PreTrainedModel, corpus: Corpus, num_rows: int = DEFAULT_ROWS, progress: Progress = lambda count: None
) -> Scores:
    """Scores the corpus with the state carried along `num_rows` rows, from zero at the start.

    There are at most as many rows as sentences. The other arguments are those of `score_from_zero`.
    """
    num_rows = max(min(num_rows, len(corpus)), 1)
    scores = _empty(corpus)
    streams = [Stream(corpus, num_rows, is_backward=is_backward) for is_backward in (False, True)]
    state = None
    while True:
        forward, backward = (stream.take(WINDOW_STEPS) for stream in streams)
        if forward.inputs.shape[1] == 0:
            return scores
        output = model(**stream_inputs(corpus, forward, backward, model.device), state=state, output_log_probs=True)
        state = output.state
        scores.forward[forward.places] = _numpy(output.forward_log_probs)
        scores.backward[backward.places] = _numpy(output.backward_log_probs)
        progress(forward.places.size)


def stream_inputs(
    corpus: Corpus, forward: Window, backward: Window, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Turns a window of both directions into arguments of `ElmoForPreTraining`."""
    inputs = {
        "input_ids": _ids(corpus, forward.inputs, device),
        "backward_input_ids": _ids(corpus, backward.inputs, device),
        "forward_targets": torch.from_numpy(corpus.classes[forward.targets]).to(device),
        "backward_targets": torch.from_numpy(corpus.classes[backward.targets]).to(device),
    }
    for name, window in (("forward_resets", forward), ("backward_resets", backward)):
        if window.resets.any():
            inputs[name] = torch.from_numpy(window.resets).to(device)
    return inputs


def _ids(corpus: Corpus, words: np.ndarray, device: torch.device | str) -> Tensor:
    return torch.from_numpy(corpus.ids[words]).to(device)


def _empty(corpus: Corpus) -> Scores:
    forward, backward = (np.full(corpus.num_predictions, np.nan, dtype=np.float32) for _ in range(2))
    return Scores(forward, backward, corpus.starts + np.arange(len(corpus) + 1))


def _batches(corpus: Corpus) -> Iterator[np.ndarray]:
    """Indices of sentences of similar length, at most `BATCH_WORDS` positions per batch (but at least one sentence)."""
    lengths = np.diff(corpus.starts) + 2
    order = np.argsort(lengths, kind="stable")
    begin = 0
    while begin < len(order):
        # Lengths rise, so the last sentence of a batch determines its width.
        next_lengths = lengths[order[begin : begin + BATCH_WORDS]]
        widths = next_lengths * np.arange(1, len(next_lengths) + 1)
        size = max(int(np.searchsorted(widths, BATCH_WORDS, side="right")), 1)
        yield order[begin : begin + size]
        begin += size


def _exp(value: float) -> float:
    """exp(value), infinite if too large for a float, as after training diverged."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
