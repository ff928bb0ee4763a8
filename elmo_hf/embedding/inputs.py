"""What is embedded: sentences of files, stores, standard input and datasets, and windows of them; a light module."""

import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..extras import require
from ..sentences import Sentence, check_encoding, read_dataset, read_sentences, sentence_of
from .stores import StoredFile, find_files, is_url

Place = TypeVar("Place")


class Line(NamedTuple):
    """Where a sentence stands: in which document, and which one of it, from 0."""

    document: str
    number: int


class Documents(NamedTuple):
    """Documents in their order, and how to read them.

    Attributes:
        names: of files, also in stores, or of datasets.
        split_into_words: whether sentences are words separated by blanks already.
        encoding: of the files' characters.
        column: of datasets; None: the names are of files.
        split: of datasets.
        stream: standard input, which is the only document then.
    """

    names: list[str]
    split_into_words: bool = False
    encoding: str = "utf-8"
    column: str | None = None
    split: str = "train"
    stream: BinaryIO | None = None

    @classmethod
    def find(cls, sources: list[str], *how: Any) -> "Documents":
        """The documents that names, patterns and folders stand for; the further arguments are the class's.

        Raises:
            FileNotFoundError: if there is no such file.
            ImportError: if a dataset is to be read, and `datasets` is not installed.
            ValueError: if there is nothing to read, or a store cannot be reached.
        """
        found = cls(sources, *how)
        check_encoding(found.encoding)
        if found.column is not None:
            require("train", "datasets")
        if found.column is not None or found.stream is not None:
            return found
        if "-" in sources:
            raise ValueError("standard input (-) must be the only input.")
        names = [name for source in sources for name in find_files(source)]
        places = [name if is_url(name) else os.path.realpath(name) for name in names]
        counts = Counter(places)
        twice = [name for name, place in zip(names, places, strict=True) if counts[place] > 1]
        if twice:
            raise ValueError(f"{twice[0]} is given twice.")
        return found._replace(names=names)

    def read(self) -> Iterator[tuple[Line, Sentence]]:
        """Gives the sentences of all documents.

        Raises:
            ValueError: if a document is not of its format, or cannot be read.
            OSError: if a file cannot be opened.
        """
        for name in self.names:
            if self.column is not None:
                sentences = read_dataset(name, self.split, self._sentence_in)
            else:
                file: Any = StoredFile(name) if is_url(name) else Path(name)
                sentences = self._read_file(_Stream(self.stream) if self.stream is not None else file)
            for index, sentence in enumerate(sentences):
                yield Line(name, index), sentence

    def _read_file(self, file: Any) -> Iterator[Sentence]:
        return read_sentences(file, self.split_into_words, self.encoding)

    def _sentence_in(self, row: dict[str, Any]) -> Sentence:
        """The sentence in the column of a dataset's row."""
        assert self.column is not None
        if self.column not in row:
            raise ValueError(f"there is no column {self.column!r}; found {', '.join(sorted(row))}")
        try:
            sentence = sentence_of({"text": row[self.column]})
        except ValueError as error:
            raise ValueError(f"column {self.column!r}: {error}") from error
        return sentence.split() if self.split_into_words and isinstance(sentence, str) else sentence


class _Stream:
    """Standard input for `read_sentences`, which needs the name and the bytes of a path."""

    name = "-"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def __str__(self) -> str:
        return "standard input"

    def open(self, mode: str) -> BinaryIO:
        return self._stream if isinstance(self._stream, io.BufferedReader) else io.BufferedReader(self._stream)  # type: ignore[type-var]


def windows_of(
    sentences: Iterable[tuple[Place, Sentence]], num_characters: int
) -> Iterator[list[tuple[Place, Sentence]]]:
    """Consecutive sentences, with their places, until they have so many characters.

    It counts characters, one more for each sentence. To count words, a process would have to tokenize all windows.
    """
    window: list[tuple[Place, Sentence]] = []
    found = 0
    for place, sentence in sentences:
        window.append((place, sentence))
        found += 1 + len(sentence if isinstance(sentence, str) else " ".join(sentence))
        if found >= num_characters:
            yield window
            window, found = [], 0
    if window:
        yield window
