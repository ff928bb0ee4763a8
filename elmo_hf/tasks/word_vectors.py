"""Word vectors of a task's own, for [x; ELMo]: learned with the task, or from a file of GloVe or word2vec.

The paper concatenates ELMo to a word vector x of the task's model (Peters et al. 2018, §3.3). The vectors are a weight
of the model, described by `word_vectors` in the config; the tokenizer has their words and makes `word_vector_ids`:

    row        0        1    2     3      4 ...
    word       padding  <S>  </S>  <UNK>  the words in order

    the 0.418 0.24968 ...     GloVe's text, one word a line
    400000 100                the first line of word2vec's text; gensim converts its binary files

A name that ends in .gz is a gzipped file. Only the requested vectors are kept, and of a repeated word only the first.
Words that cannot be a line of a vocabulary are left out, such as GloVe's `. . .`, which contains blanks.
"""

import collections
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..model.heads_elmo import ElmoTaskModel
from ..model.layers_elmo import check_shape
from ..model.tokenization_elmo import PADDING, SPECIAL_WORDS, UNKNOWN_WORD, ElmoTokenizer, VocabularyCodec
from ..text.sentences import read_lines

# Names of the vector for unknown words in files; without one, it is the mean of all kept vectors.
UNKNOWN_NAMES = (UNKNOWN_WORD, "<unk>")
HEADER = re.compile(r"(\d+) (\d+)\s*")


@dataclass(frozen=True)
class WordVectors:
    """The words and vectors of a task.

    Attributes:
        words: the words in the order of their rows, from row 1; the first are `<S>`, `</S>` and `<UNK>`.
        size: numbers of a vector.
        trainable: whether vectors learn with the task.
        table: `(1 + number of words, size)`, or None for vectors that start from random numbers.

    Raises:
        ValueError: if there are only special words.
    """

    words: list[str]
    size: int
    trainable: bool
    table: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Checks that there is a word."""
        if len(self.words) <= len(SPECIAL_WORDS):
            raise ValueError(
                "no word has a vector: none of `words` is in the file, or none occurs `min_count` times in the texts. "
                "Give words of the file, or a lower `min_count`."
            )

    @classmethod
    def learned(cls, texts: Iterable[Iterable[str]], size: int, min_count: int = 2) -> "WordVectors":
        """Vectors that learn with the task from random numbers.

        Args:
            texts: the words of each text of the training set, as `tokenizer.tokenize` splits them.
            size: numbers of a vector.
            min_count: how often a word must occur to get a vector; all other words share the vector of `<UNK>`.
        """
        counts = collections.Counter(word for text in texts for word in text)
        words = [word for word, count in counts.items() if count >= min_count and _can_be_kept(word, SPECIAL_WORDS)]
        return cls([*SPECIAL_WORDS, *words], size, trainable=True)

    @classmethod
    def from_file(
        cls, path: str | Path, words: Collection[str] | None = None, trainable: bool = False
    ) -> "WordVectors":
        """Vectors from a file.

        Args:
            path: GloVe's or word2vec's text in UTF-8, gzipped or not.
            words: the words to keep, also in lower case; None keeps all words of the file.
            trainable: whether the vectors are trained with the task.

        Raises:
            ValueError: if a line is not a word with the finite numbers of a vector, or the file has fewer words than
                word2vec's first line says; the message names file and line.
            OSError: if the file cannot be opened.
        """
        wanted = None
        if words is not None:
            wanted = {*words, *(word.lower() for word in words), *UNKNOWN_NAMES}
        vectors, size = _read_vectors(Path(path), wanted)
        unknown = None
        unknown_names = [name for name in UNKNOWN_NAMES if name in vectors]
        if unknown_names:
            unknown = vectors.pop(unknown_names[0])
        words = [*SPECIAL_WORDS, *vectors]
        table = torch.zeros(len(words) + 1, size)
        made = cls(words, size, trainable, table)
        rows = table.numpy()
        known = np.stack([*vectors.values()], out=rows[len(SPECIAL_WORDS) + 1 :])
        rows[len(SPECIAL_WORDS)] = known.mean(axis=0, dtype=np.float64) if unknown is None else unknown
        return made

    @property
    def config(self) -> dict[str, Any]:
        """The value of `word_vectors` in a model's config."""
        return {"num_words": len(self.words), "size": self.size, "trainable": self.trainable}

    def put_into(self, model: ElmoTaskModel, tokenizer: ElmoTokenizer) -> None:
        """Puts the vectors into a model that has this `config` as `word_vectors`, and the words into a tokenizer.

        Raises:
            ValueError: if the model has no word vectors, or vectors of another number or size.
        """
        weight: Any = getattr(model.word_vectors, "weight", None)
        check_shape("model.word_vectors.weight", weight, (len(self.words) + 1, self.size))
        if self.table is not None:
            with torch.no_grad():
                weight.copy_(self.table)
        self.put_words_into(tokenizer)

    def put_words_into(self, tokenizer: ElmoTokenizer) -> None:
        """Puts only the words into a tokenizer, for data that is tokenized before the model is made."""
        rows = {word: row for row, word in enumerate(self.words, start=1)}
        tokenizer.vector_codec = VocabularyCodec({PADDING: 0} | rows)


def _read_vectors(path: Path, wanted: Collection[str] | None) -> tuple[dict[str, np.ndarray], int]:
    """The vectors of a file by their words, of the `wanted` words or all, and the size that every line must have.

    Raises:
        ValueError: as in `WordVectors.from_file`.
        OSError: if the file cannot be opened.
    """
    vectors: dict[str, np.ndarray] = {}
    size = 0
    num_announced = 0
    num_words = 0
    for number, line in enumerate(read_lines(path), start=1):
        header = HEADER.fullmatch(line) if number == 1 else None
        if header is not None:
            num_announced = int(header[1])
            size = int(header[2])
            continue
        num_words += 1
        # Blanks only: GloVe has words with other white space in them.
        columns = line.rstrip(" \r\n").split(" ")
        if size == 0:
            size = len(columns) - 1
        has_numbers = 0 < size < len(columns)
        word = " ".join(columns[:-size]) if has_numbers else ""
        is_wanted = wanted is None or word in wanted
        is_kept = has_numbers and word not in vectors and is_wanted and _can_be_kept(word)
        vector = _vector(columns[-size:]) if is_kept else None
        is_malformed = is_kept and vector is None
        if not has_numbers or is_malformed:
            raise ValueError(
                f"{path}, line {number}: expected a word and {size or 'some'} finite numbers, found {line[:80]!r}."
            )
        if vector is not None:
            vectors[word] = vector
    if num_words < num_announced:
        raise ValueError(
            f"{path} must have the {num_announced:,} words that its line 1 says, found {num_words:,}; it seems to "
            "be cut: get it again."
        )
    return vectors, size


def _can_be_kept(word: str, special: tuple[str, ...] = SPECIAL_WORDS[:2]) -> bool:
    """Whether a word can be a line of a tokenizer's file and is not a special word."""
    can_be_a_line = word.split() == [word] and "\ufffd" not in word
    return can_be_a_line and word not in (*special, PADDING, "!!!MAXTERMID")


def _vector(numbers: list[str]) -> np.ndarray | None:
    """A word's vector in float32, or None if a number is malformed or not finite."""
    try:
        vector = np.array(numbers, dtype=np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None
