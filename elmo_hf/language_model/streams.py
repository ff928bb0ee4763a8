"""Streams of sentences without padding, for truncated back-propagation through time (bilm-tf's `data.py`).

B rows advance together, one word per step. Each row holds whole sentences; the row that ends first gets the next
sentence of the corpus. A sentence w_1 .. w_n takes n+1 steps of its row:

    forward     reads `<S>`  w_1 .. w_n    and predicts w_1 .. w_n `</S>`
    backward    reads `</S>` w_n .. w_1    and predicts w_n .. w_1 `<S>`

A window is T steps of all rows; the next window continues a sentence that this one cuts. The LSTM state carries over
from window to window and so from sentence to sentence, except into sentences drawn for a reset. Columns of a window are
in text order: the forward direction reads from the first column on, the backward direction from the last.

Glossary: B rows, T steps of a window, n words of a sentence.

Deliberate differences from bilm-tf: backward windows are in text order. Each pass shuffles the sentences of the whole
corpus, not of one file at a time. Seed and step count determine everything, so any place can be found again. A single
pass ends with a shorter window of the steps that all rows have (bilm-tf's test reads one step per window, so both read
the same words).
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np

from .corpus import BEGIN_INDEX, END_INDEX, Corpus


class Piece(NamedTuple):
    """One sentence in a row: its index in the corpus, the step at which it begins, and whether the state is reset."""

    sentence: int
    begin: int
    is_reset: bool


class Window(NamedTuple):
    """T steps of some rows, columns in text order.

    Attributes:
        inputs: `(B, T)`, corpus indices of the words read.
        targets: `(B, T)`, corpus indices of the words predicted.
        resets: `(B, T)`, True on inputs before which the state is set to zero.
        places: `(B, T)`, which of the corpus's predictions each step makes: those of sentence m start at
            `starts[m] + m`, in text order for both directions.
    """

    inputs: np.ndarray
    targets: np.ndarray
    resets: np.ndarray
    places: np.ndarray


class Stream:
    """The rows of one direction.

    Attributes:
        step: how many steps have been taken.
    """

    def __init__(
        self,
        corpus: Corpus,
        num_rows: int,
        *,
        is_backward: bool,
        seed: int | None = None,
        reset_probability: float = 0.0,
    ) -> None:
        """Starts at the first step.

        Args:
            corpus: the sentences.
            num_rows: B.
            is_backward: whether sentences are read from their ends.
            seed: reads the corpus again and again, shuffled for each pass. None reads it once, in its order.
            reset_probability: chance that a sentence begins from the zero state.

        Raises:
            ValueError: if the corpus has no sentences.
        """
        if len(corpus) == 0:
            raise ValueError("the corpus has no sentences.")
        self.step = 0
        self._corpus = corpus
        self._is_backward = is_backward
        self._sentences = self._draw(seed, reset_probability)
        self._rows: list[deque[Piece]] = [deque() for _ in range(num_rows)]
        self._ends = [(0, row) for row in range(num_rows)]
        heapify(self._ends)

    def take(self, num_steps: int, rows: range | None = None) -> Window:
        """The next T steps of all rows, or of `rows` only; fewer than T at the end of a single pass."""
        begin, end = self._advance(num_steps)
        chosen = self._rows if rows is None else [self._rows[row] for row in rows]
        windows = [self._read(pieces, begin, end) for pieces in chosen]
        return Window(*(np.stack(arrays) for arrays in zip(*windows, strict=True)))

    def skip(self, num_steps: int) -> None:
        """Takes steps without reading them."""
        self._advance(num_steps)

    def _advance(self, num_steps: int) -> tuple[int, int]:
        """Fills every row up to the step; returns the first step and the end of those that all rows have."""
        begin, end = self.step, self.step + num_steps
        while self._ends[0][0] < end:
            drawn = next(self._sentences, None)
            if drawn is None:
                end = self._ends[0][0]
                break
            sentence, is_reset = drawn
            step, row = self._ends[0]
            self._rows[row].append(Piece(sentence, step, is_reset))
            heapreplace(self._ends, (step + self._num_places(sentence), row))
        for pieces in self._rows:
            while pieces and pieces[0].begin + self._num_places(pieces[0].sentence) <= begin:
                pieces.popleft()
        self.step = end
        return begin, end

    def _num_places(self, sentence: int) -> int:
        return int(self._corpus.starts[sentence + 1] - self._corpus.starts[sentence]) + 1

    def _draw(self, seed: int | None, reset_probability: float) -> Iterator[tuple[int, bool]]:
        """Indices of sentences, and whether each begins from zero."""
        num_sentences = len(self._corpus)
        if seed is None:
            yield from ((sentence, False) for sentence in range(num_sentences))
            return
        for pass_index in range(2**31):
            generator = np.random.default_rng([seed, int(self._is_backward), pass_index])
            order, is_reset = generator.permutation(num_sentences), generator.random(num_sentences) < reset_probability
            yield from zip(order.tolist(), is_reset.tolist(), strict=True)

    def _read(self, pieces: deque[Piece], begin: int, end: int) -> Window:
        """Steps `begin` to `end` of one row: four arrays `(T,)`."""
        turned = slice(None, None, -1 if self._is_backward else 1)  # from text order to reading order, and back
        parts = [Window(*(np.zeros(0, dtype=kind) for kind in (np.int32, np.int32, bool, np.int64)))]
        for sentence, start, is_reset in pieces:
            if start >= end:
                break
            words = np.r_[BEGIN_INDEX, self._corpus.sentence(sentence), END_INDEX][turned]
            resets = np.zeros(len(words) - 1, dtype=bool)
            resets[0] = is_reset
            places = (self._corpus.starts[sentence] + sentence + np.arange(len(resets)))[turned]
            part = slice(max(begin - start, 0), end - start)
            parts.append(Window(words[:-1][part], words[1:][part], resets[part], places[part]))
        return Window(*(np.concatenate(arrays)[turned] for arrays in zip(*parts, strict=True)))
