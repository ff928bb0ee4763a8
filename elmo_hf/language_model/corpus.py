"""A corpus for language models: sentences as arrays of word indices, each distinct word encoded once.

A table holds the input ids and the softmax class of each distinct word; its first two words are the boundaries. The
text is one array of indices into that table, 4 bytes per word, cut into sentences.

Glossary: U distinct words, C characters per word, W words of the text, M sentences.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BEGIN_INDEX = 0
END_INDEX = 1


def word_list(words: Sequence[str]) -> Sequence[str]:
    """A list of words; raises ValueError for a string, whose letters would be taken for words."""
    if isinstance(words, str):
        raise ValueError(f"give a list of words, `tokenizer.tokenize(text)`, not the string {words[:80]!r}.")
    return words


@dataclass(frozen=True)
class Corpus:
    """Sentences as arrays."""

    words: np.ndarray  # `(W,)` int32, the index of each word of the text in the table
    starts: np.ndarray  # `(M + 1,)` int64, where each sentence starts in `words`, then W
    ids: np.ndarray  # `(U, C)` int16 or int32 character ids, or `(U,)` int64 word ids, of each distinct word
    classes: np.ndarray  # `(U,)` int64, the softmax class of each distinct word

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], tokenizer: Any) -> "Corpus":
        """Reads lists of words without boundaries, possibly empty; the `ElmoTokenizer` must have the softmax's words.

        Raises:
            ValueError: if a sentence is a string.
        """
        begin, end = tokenizer.boundaries
        index_of = {begin: BEGIN_INDEX, end: END_INDEX}
        words, starts = array("i"), array("q", [0])
        for sentence in sentences:
            words.extend([index_of.setdefault(word, len(index_of)) for word in word_list(sentence)])
            starts.append(len(words))
        distinct = list(index_of)
        return cls(
            np.asarray(words),
            np.frombuffer(starts, dtype=np.int64),
            _narrowed(np.asarray(tokenizer.convert_tokens_to_ids(distinct))),
            tokenizer.word_classes(distinct),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def num_words(self) -> int:
        """W; boundaries do not count."""
        return len(self.words)

    @property
    def num_predictions(self) -> int:
        """Predictions of one direction: the words and one boundary of each sentence."""
        return self.num_words + len(self)

    def sentence(self, index: int) -> np.ndarray:
        """Word indices `(n,)` of one sentence."""
        return self.words[self.starts[index] : self.starts[index + 1]]

    def share_of_class(self, word_class: int) -> float:
        """Share of the text's words that have this class, such as that of `<UNK>`."""
        if self.num_words == 0:
            return 0.0
        return float((self.classes[self.words] == word_class).mean())


def _narrowed(ids: np.ndarray) -> np.ndarray:
    """Character ids in the smallest type that holds them; word ids as they are."""
    if ids.ndim == 1:
        return ids
    fits_int16 = ids.max() <= np.iinfo(np.int16).max
    return ids.astype(np.int16 if fits_int16 else np.int32)
