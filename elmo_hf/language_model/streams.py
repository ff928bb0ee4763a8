"""Streams of sentences without padding, for truncated back-propagation through time (bilm-tf's `data.py`).

B rows advance together, one word a step. A row is a string of whole sentences; the row that runs dry first takes the
corpus's next sentence. A sentence w_1 .. w_n fills n+1 places of a row:

    forward     reads `<S>`  w_1 .. w_n    and predicts w_1 .. w_n `</S>`
    backward    reads `</S>` w_n .. w_1    and predicts w_n .. w_1 `<S>`

A window is T steps of all rows; a sentence goes on in the next window where this one ends. The LSTM state goes along
from window to window, and so into the next sentence, unless the sentence is one of those drawn for a reset.

Glossary: B rows, T steps of a window, n words of a sentence.

Deliberate differences from bilm-tf: the sentences of the whole corpus are shuffled anew for each pass, not those of one
file at a time; everything follows from the seed and the number of steps taken, so any place can be found again; at the
end of a single pass the last steps that all rows have are a shorter window (bilm-tf's test reads one step a window, so
both read the same words).
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np

from .corpus import BEGIN_ROW, END_ROW, Corpus


class Piece(NamedTuple):
    """One sentence in a row: its number in the corpus, the step at which it begins, and whether the state is reset."""

    sentence: int
    begin: int
    is_reset: bool


class Window(NamedTuple):
    """T steps of some rows, in the order of reading.

    Attributes:
        inputs: `(B, T)`, rows of the corpus's table.
        targets: `(B, T)`, likewise.
        resets: `(B, T)`, True where the state is set to zero before reading.
        places: `(B, T)`, which of the corpus's predictions each step is: sentence m's are those from
            `starts[m] + m`, in the order of the text for both directions.
    """

    inputs: np.ndarray
    targets: np.ndarray
    resets: np.ndarray
    places: np.ndarray


class Stream:
    """One direction's rows, from the first step on.

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
        """Starts a stream.

        Args:
            corpus: the sentences.
            num_rows: B.
            is_backward: whether sentences are read from their ends.
            seed: to read the corpus again and again, shuffled for each pass; None: once, in its order.
            reset_probability: chance of each sentence to begin from the zero state.

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
        columns = [self._read(pieces, begin, end) for pieces in chosen]
        return Window(*(np.stack(column) for column in zip(*columns, strict=True)))

    def skip(self, num_steps: int) -> None:
        """Takes steps without reading them."""
        self._advance(num_steps)

    def _advance(self, num_steps: int) -> tuple[int, int]:
        """Fills every row up to the step; returns the first and the last step that all rows have."""
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
        """Numbers of sentences, and whether each begins from zero."""
        number = len(self._corpus)
        if seed is None:
            yield from ((sentence, False) for sentence in range(number))
            return
        for pass_number in range(2**31):
            generator = np.random.default_rng([seed, int(self._is_backward), pass_number])
            order, is_reset = generator.permutation(number), generator.random(number) < reset_probability
            yield from zip(order.tolist(), is_reset.tolist(), strict=True)

    def _read(self, pieces: deque[Piece], begin: int, end: int) -> Window:
        """Steps `begin` to `end` of one row: four arrays `(T,)`."""
        columns: list[Window] = []
        for sentence, start, is_reset in pieces:
            if start >= end:
                break
            words = self._corpus.sentence(sentence)
            places = self._corpus.starts[sentence] + sentence + np.arange(len(words) + 1)
            first, last = BEGIN_ROW, END_ROW
            if self._is_backward:
                words, places, first, last = words[::-1], places[::-1], END_ROW, BEGIN_ROW
            resets = np.zeros(len(words) + 1, dtype=bool)
            resets[0] = is_reset
            whole = Window(np.r_[first, words], np.r_[words, last], resets, places)
            part = slice(max(begin - start, 0), end - start)
            columns.append(Window(*(column[part] for column in whole)))
        if not columns:
            return Window(*(np.zeros(0, dtype=kind) for kind in (np.int64, np.int64, bool, np.int64)))
        return Window(*(np.concatenate(column) for column in zip(*columns, strict=True)))
