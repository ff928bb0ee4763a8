"""Word vectors of a task's own, for [x; ELMo]: learned with the task, or from a file of GloVe or word2vec.

The paper puts ELMo beside a word vector x of the task's model (Peters et al. 2018, §3.3). The table of x is
`word_vectors` of the config and a weight of the model; its words belong to the tokenizer, which makes
`word_vector_ids`:

    row        0        1    2     3      4 ...
    word       padding  <S>  </S>  <UNK>  the words in order

    the 0.418 0.24968 ...     GloVe's text, one word a line
    400000 100                the first line of word2vec's text; gensim converts its binary files

A name that ends in .gz is a gzipped file. A file is read once, and only the vectors that are wanted are kept.
"""

import collections
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..text.sentences import read_lines
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from ..tokenizer.word_codec import PADDING, SPECIAL_WORDS, UNKNOWN_WORD, VocabularyCodec
from .task_model import ElmoTaskModel

# What a file may call the vector of unknown words; without one it is the mean of all that are kept.
UNKNOWN_NAMES = (UNKNOWN_WORD, "<unk>")
MOST_BYTES = 2**29
HEADER = re.compile(r"(\d+) (\d+)\s*")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class WordVectors:
    """The words and vectors of a task.

    Attributes:
        words: in the order of their rows, from row 1; the first are `<S>`, `</S>` and `<UNK>`.
        size: numbers of a vector.
        trainable: whether vectors learn with the task.
        table: `(1 + number of words, size)`, or None for vectors that start from random numbers.
    """

    words: list[str]
    size: int
    trainable: bool
    table: torch.Tensor | None = None

    @classmethod
    def learned(cls, texts: Iterable[Iterable[str]], size: int, min_count: int = 2) -> "WordVectors":
        """Vectors that learn with the task from random numbers.

        Args:
            texts: the words of each text of the training set, as `tokenizer.tokenize` splits them.
            size: numbers of a vector.
            min_count: how often a word must occur to get a vector; the others are `<UNK>`, which so learns too.

        Raises:
            ValueError: if no word occurs so often.
        """
        counts = collections.Counter(word for text in texts for word in text)
        words = [word for word, count in counts.items() if count >= min_count and _can_be_kept(word, SPECIAL_WORDS)]
        if not words:
            raise ValueError(f"no word occurs {min_count} times in the {counts.total()} words of `texts`.")
        return cls([*SPECIAL_WORDS, *words], size, trainable=True)

    @classmethod
    def from_file(
        cls, path: str | Path, words: Collection[str] | None = None, trainable: bool = False
    ) -> "WordVectors":
        """Vectors from a file.

        Args:
            path: GloVe's or word2vec's text in UTF-8, gzipped or not.
            words: the only words to keep, and their forms in lower case; None keeps all of the file.
            trainable: whether they go on learning with the task.

        Raises:
            ValueError: naming the file and the line, if the file is no such file, a line has a wrong number of columns,
                a wanted word is there twice, or more than half a gigabyte of vectors is wanted.
            OSError: if it cannot be opened.
        """
        path = Path(path)
        forms = (form for word in words or () for form in (word, word.lower()))
        wanted = None if words is None else {*forms, *UNKNOWN_NAMES}
        kept: dict[str, np.ndarray] = {}
        for place, word, numbers in _rows(path):
            if (wanted is not None and word not in wanted) or not _can_be_kept(word):
                continue
            if word in kept:
                raise ValueError(f"{place}: {word!r:.200} is in the file a second time; remove one of the two.")
            kept[word] = _vector(place, numbers)
            if (len(kept) + 4) * kept[word].nbytes > MOST_BYTES:
                raise ValueError(f"{place}: more than {MOST_BYTES:,} bytes of vectors; give the `words` to keep.")
        unknown = next((kept.pop(name) for name in UNKNOWN_NAMES if name in kept), None)
        if not kept:
            raise ValueError(f"{path} holds none of the {len(words or ())} words that are wanted.")
        first = len(SPECIAL_WORDS) + 1
        table = np.zeros((first + len(kept), len(next(iter(kept.values())))), dtype=np.float32)
        for row, vector in enumerate(kept.values(), first):
            table[row] = vector
        table[first - 1] = table[first:].mean(axis=0, dtype=np.float64) if unknown is None else unknown
        return cls([*SPECIAL_WORDS, *kept], table.shape[1], trainable, torch.from_numpy(table))

    @property
    def config(self) -> dict[str, Any]:
        """What a model's config has as `word_vectors`."""
        return {"num_words": len(self.words), "size": self.size, "trainable": self.trainable}

    def put_into(self, model: ElmoTaskModel, tokenizer: ElmoTokenizer) -> None:
        """Gives the vectors to a model that was made with `word_vectors=` this `config`, and the words to a tokenizer.

        Raises:
            ValueError: if the model has no word vectors, or vectors of another number or size.
        """
        expected = (len(self.words) + 1, self.size)
        found = None if model.word_vectors is None else tuple(model.word_vectors.weight.shape)
        if model.word_vectors is None or found != expected:
            raise ValueError(
                f"{type(model).__name__} must have a table of word vectors of shape {expected}, found {found}; make it "
                "with `word_vectors=vectors.config`."
            )
        if self.table is not None:
            with torch.no_grad():
                model.word_vectors.weight.copy_(self.table)
        self.put_words_into(tokenizer)

    def put_words_into(self, tokenizer: ElmoTokenizer) -> None:
        """Gives the words alone to a tokenizer, for data that is tokenized before there is a model."""
        tokenizer.vector_codec = VocabularyCodec({PADDING: 0} | {word: row for row, word in enumerate(self.words, 1)})


def _can_be_kept(word: str, special: tuple[str, ...] = SPECIAL_WORDS[:2]) -> bool:
    """Whether a tokenizer's file of one word a line can hold a word, besides the special ones."""
    return word.split() == [word] and "\ufffd" not in word and word not in (*special, PADDING, "!!!MAXTERMID")


def _rows(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """The place, the word and the numbers of each line."""
    announced = size = None
    count = 0
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}, line {number}"
        header = HEADER.fullmatch(line)
        if number == 1 and header:
            announced, size = int(header[1]), int(header[2])
            continue
        # Blanks only: GloVe has words with other white space in them.
        columns = line.rstrip(" \r\n").split(" ")
        size = len(columns) - 1 if size is None else size
        # GloVe's largest file has words such as `. . .`, which hold blanks.
        word = " ".join(columns[: max(len(columns) - size, 1)])
        is_word = len(columns) == size + 1 or (len(columns) > size + 1 and not NUMBER.fullmatch(columns[1]))
        if size < 1 or not is_word:
            raise ValueError(f"{place}: expected a word and {size or 'some'} numbers, found {len(columns)} columns.")
        count += 1
        yield place, word, columns[-size:]
    if count == 0:
        raise ValueError(f"{path} holds no word vectors.")
    if announced not in (None, count):
        raise ValueError(f"{path} announces {announced} words and holds {count}; was it downloaded in full?")


def _vector(place: str, numbers: list[str]) -> np.ndarray:
    """A word's vector in float32."""
    try:
        vector = np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{place}: {error}; after its word a line has numbers only.") from error
    if not np.isfinite(vector).all():
        raise ValueError(f"{place}: holds a number that is not finite.")
    return vector
