"""A corpus for language models: sentences as numbers, each distinct word encoded once.

The table has one row for each distinct word, with its input ids and its class of the softmax; rows 0 and 1 are the
boundaries. The text is one long array of row numbers, 4 bytes a word, cut into sentences. Corpus length is counted
while it is read.

Glossary: U distinct words, C characters per word, W words of the text, M sentences.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

BEGIN_ROW = 0
END_ROW = 1


class WordTokenizer(Protocol):
    """What of `ElmoTokenizer` a corpus needs."""

    @property
    def boundaries(self) -> tuple[str, str]:
        """The words that stand around a sentence."""

    def convert_tokens_to_ids(self, tokens: list[str]) -> list:
        """Words to their input ids."""

    def word_classes(self, words: Sequence[str]) -> np.ndarray:
        """Words to their classes of the softmax."""


@dataclass(frozen=True)
class Corpus:
    """Sentences as numbers.

    Attributes:
        rows: `(W,)` int32, the row of each word of the text.
        starts: `(M + 1,)` int64, where each sentence starts in `rows`, and where the last one ends.
        ids: `(U, C)` int16 or int32 character ids, or `(U,)` int64 word ids, of each distinct word.
        classes: `(U,)` int64, the class of each distinct word.
    """

    rows: np.ndarray
    starts: np.ndarray
    ids: np.ndarray
    classes: np.ndarray

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], tokenizer: WordTokenizer) -> "Corpus":
        """Reads sentences, each a list of words without boundaries; one without words counts as a sentence."""
        begin, end = tokenizer.boundaries
        row_of = {begin: BEGIN_ROW, end: END_ROW}
        rows, starts = array("i"), array("q", [0])
        for words in sentences:
            rows.extend([row_of.setdefault(word, len(row_of)) for word in words])
            starts.append(len(rows))
        distinct = list(row_of)
        ids = np.asarray(tokenizer.convert_tokens_to_ids(distinct))
        return cls(
            np.frombuffer(rows, dtype=np.int32) if rows else np.zeros(0, dtype=np.int32),
            np.frombuffer(starts, dtype=np.int64),
            ids.astype(np.int16 if ids.max() <= np.iinfo(np.int16).max else np.int32) if ids.ndim == 2 else ids,
            tokenizer.word_classes(distinct),
        )

    def __len__(self) -> int:
        """M, the number of sentences."""
        return len(self.starts) - 1

    @property
    def num_words(self) -> int:
        """W, boundaries not counted."""
        return len(self.rows)

    @property
    def num_predictions(self) -> int:
        """Predictions of one direction: each sentence's words, and its boundary."""
        return self.num_words + len(self)

    def sentence(self, number: int) -> np.ndarray:
        """`(n,)`, rows of one sentence's words."""
        return self.rows[self.starts[number] : self.starts[number + 1]]

    def share_of_class(self, word_class: int) -> float:
        """Share of the text's words that have a class, such as that of `<UNK>`."""
        return float((self.classes[self.rows] == word_class).mean()) if self.num_words else 0.0
