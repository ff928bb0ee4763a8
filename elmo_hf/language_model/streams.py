"""Streams of sentences without padding, for truncated back-propagation through time (bilm-tf's `data.py`).

B rows advance together, one word per step. Each row holds whole sentences; the row that ends first gets the next
sentence of the corpus. A sentence w_1 .. w_n takes n+1 steps of its row:

    forward     reads `<S>`  w_1 .. w_n    and predicts w_1 .. w_n `</S>`
    backward    reads `</S>` w_n .. w_1    and predicts w_n .. w_1 `<S>`

A window is T steps of all rows, in text order: the backward direction reads its last column first. A sentence may be
cut by the end of a window and continue in the next one. The LSTM state passes from window to window, and so from
sentence to sentence, except to sentences that are drawn for a reset.

In training each direction reads its own rows of text. A model takes their windows by these names:

    input_ids, backward_input_ids       `(B, T, C)` or `(B, T)`; a model of one direction has no backward ones
    forward_targets                     `(B, T)`, the class of the word after each of `input_ids`; -100 for none
    backward_targets                    `(B, T)`, the class of the word before each of `backward_input_ids`
    forward_resets, backward_resets     `(B, T)`, True on words before which the direction's state is set to zero

Glossary: B rows, T steps of a window, n words of a sentence, C characters per word.

Deliberate differences from bilm-tf: backward windows are in text order. Each pass shuffles the sentences of the whole
corpus, not of one file at a time. Seed and step count determine the windows, so any place can be found again. The last
window of a single pass is shorter: it has the steps that all rows have (bilm-tf's test reads one step per window, so
both read the same words).
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapreplace
from itertools import count, repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..model.language_model_elmo import DIRECTIONS
from .corpus import BEGIN_INDEX, END_INDEX, Corpus

# The argument of a window that has the ids of each direction's stream.
IDS_OF = {"forward": "input_ids", "backward": "backward_input_ids"}


class Piece(NamedTuple):
    """One sentence in a row: its index in the corpus, its steps `begin` to `end`, and whether the state is reset."""

    sentence: int
    begin: int
    end: int
    is_reset: bool


class StreamWindow(NamedTuple):
    """T steps of some rows, columns in text order.

    `places` has the index of each step's prediction in the corpus: the predictions of sentence m start at `starts[m] +
    m`, in text order for both directions.
    """

    inputs: np.ndarray  # `(B, T)`, corpus indices of the words read
    targets: np.ndarray  # `(B, T)`, corpus indices of the words predicted
    resets: np.ndarray  # `(B, T)`, True on inputs before which the state is set to zero
    places: np.ndarray  # `(B, T)`


def window_arguments(corpus: Corpus, *windows: StreamWindow, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Turns the windows of all directions, forward first, into arguments of `ElmoForPreTraining`."""
    arrays = {}
    for name, window in zip(DIRECTIONS, windows, strict=False):
        arrays[IDS_OF[name]] = corpus.ids[window.inputs]
        arrays[f"{name}_targets"] = corpus.classes[window.targets]
        if window.resets.any():
            arrays[f"{name}_resets"] = window.resets
    return {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}


class SentenceStream:
    """The B rows of one direction; `step` counts the steps taken."""

    def __init__(
        self,
        corpus: Corpus,
        num_rows: int,
        *,
        is_backward: bool,
        seed: int | None = None,
        reset_probability: float = 0,
        sentences: range | None = None,
    ) -> None:
        """Starts at the first step.

        With a `seed`, the corpus is read without end, shuffled for each pass, and a sentence begins from the zero state
        with `reset_probability`. Without one, the corpus or its `sentences` are read once, in order, without resets.
        """
        assert len(corpus) > 0
        self.step = 0
        self._corpus = corpus
        self._is_backward = is_backward
        if sentences is None:
            sentences = range(len(corpus))
        self._sentences: Iterator[tuple[int, bool]] = zip(sentences, repeat(False))
        if seed is not None:
            self._sentences = self._draw(seed, reset_probability)
        self._rows: list[deque[Piece]] = [deque() for _ in range(num_rows)]
        self._ends = [(0, row) for row in range(num_rows)]  # a heap

    def take(self, num_steps: int, rows: range | None = None) -> StreamWindow:
        """The next T steps of all rows, or of `rows` only; fewer than T at the end of a single pass."""
        begin, end = self._advance(num_steps)
        if rows is None:
            rows = range(len(self._rows))
        windows = [self._read(self._rows[row], begin, end) for row in rows]
        return StreamWindow(*(np.stack(arrays) for arrays in zip(*windows, strict=True)))

    def skip(self, num_steps: int) -> None:
        """Takes steps without reading them."""
        self._advance(num_steps)

    def _advance(self, num_steps: int) -> tuple[int, int]:
        """Fills all rows; returns the first step and the end of the steps that all rows have."""
        begin = self.step
        end = begin + num_steps
        while self._ends[0][0] < end:
            step, row = self._ends[0]
            drawn = next(self._sentences, None)
            if drawn is None:
                end = step
                break
            sentence, is_reset = drawn
            self._rows[row].append(Piece(sentence, step, step + len(self._corpus.sentence(sentence)) + 1, is_reset))
            heapreplace(self._ends, (self._rows[row][-1].end, row))
        for pieces in self._rows:
            while pieces and pieces[0].end <= begin:
                pieces.popleft()
        self.step = end
        return begin, end

    def _draw(self, seed: int, reset_probability: float) -> Iterator[tuple[int, bool]]:
        """Yields, without end, the index of a sentence and whether it begins from zero."""
        num_sentences = len(self._corpus)
        for pass_index in count():
            generator = np.random.default_rng([seed, int(self._is_backward), pass_index])
            order = generator.permutation(num_sentences)
            is_reset = generator.random(num_sentences) < reset_probability
            yield from zip(order.tolist(), is_reset.tolist(), strict=True)

    def _read(self, pieces: deque[Piece], begin: int, end: int) -> StreamWindow:
        """Steps `begin` to `end` of one row: four arrays `(T,)`."""
        step = -1 if self._is_backward else 1
        turned = slice(None, None, step)  # from text order to reading order, and back
        none = np.zeros(0, dtype=np.int32)
        parts = [StreamWindow(none, none, none.astype(bool), none.astype(np.int64))]
        for sentence, start, _, is_reset in pieces:
            if start >= end:
                break
            words = np.r_[BEGIN_INDEX, self._corpus.sentence(sentence), END_INDEX][turned]
            resets = np.zeros(len(words) - 1, dtype=bool)
            resets[0] = is_reset
            places = (self._corpus.starts[sentence] + sentence + np.arange(len(resets)))[turned]
            part = slice(max(begin - start, 0), end - start)
            parts.append(StreamWindow(words[:-1][part], words[1:][part], resets[part], places[part]))
        return StreamWindow(*(np.concatenate(arrays)[turned] for arrays in zip(*parts, strict=True)))
