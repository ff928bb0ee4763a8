"""Reads the sentences to embed, from files, stores, standard input and datasets, in windows. Imports no torch."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from ..text.first_look import raw_texts
from ..text.formats import Format
from ..text.sentences import Sentence, is_hub_name, may_be_dataset, read_dataset, read_sentences, require_datasets
from .protein_names import ProteinNames
from .stores import InputFile, find_files, is_file, place_of

# The place of a sentence: its document, and its number in that document, from 0.
Line = tuple[str, int]


class SentenceWindow(NamedTuple):
    """Consecutive sentences, which are embedded together."""

    number: int  # the window's number, from 0
    first: int  # the number of sentences before the window
    lines: list[Line]  # the places of its n sentences
    sentences: list[Sentence]  # its n sentences
    digest: str = ""  # the digest of the job and these sentences; "" before it is computed


# The user and password in an address, which the index of an output does not name.
PASSWORD = re.compile(r"(?<=://)[^/@]*@")


class Documents(NamedTuple):
    """Documents in their order, and how to read them."""

    names: list[str]  # the names of files (on a disk or in a store) or of datasets
    split_into_words: bool = False  # whether sentences are words separated by blanks already
    encoding: str = "utf-8"  # the encoding of the files
    column: str | None = None  # the column to read of datasets, tables or JSON objects; None: `names` are files
    split: str = "train"  # the split to read of datasets
    input_format: Format | None = None  # the format of the files; None: as their names or first lines show
    stream: BinaryIO | None = None  # standard input, which is the only document then
    protein_names: ProteinNames | None = None  # gives proteins their names; None: the first words of headers
    datasets: frozenset[str] = frozenset()  # those of the names that are datasets, which `find` finds out

    @classmethod
    def find(cls, sources: list[str], output: str, **reading: Any) -> "Documents":
        """Finds the documents that names, patterns and folders stand for, each document once.

        Args:
            sources: files, patterns, folders, or datasets.
            output: where the vectors are written; this is not read. "": nowhere.
            **reading: the other attributes but `datasets`.

        Raises:
            FileNotFoundError: if there is no such file.
            ImportError: if a source is a dataset, and the `datasets` library is not installed.
        """
        documents = cls(sources, **reading)
        if documents.stream is not None:
            return documents
        if documents.column is not None:
            return documents._replace(datasets=documents._find_datasets())
        names_by_place: dict[str, str] = {}
        for source in sources:
            for name in find_files(source):
                names_by_place.setdefault(place_of(name), name)
        if output != "":
            written = place_of(output)
            written_folders = (f"{written}/", f"{written}.partial/")
            names_by_place = {
                place: name
                for place, name in names_by_place.items()
                if place != written and not place.startswith(written_folders)
            }
        return documents._replace(names=list(names_by_place.values()))

    def _find_datasets(self) -> frozenset[str]:
        """Those of the names that are datasets; refuses, before anything is read, what is neither file nor dataset."""
        datasets = [name for name in self.names if not is_file(name)]
        for name in datasets:
            if not may_be_dataset(name):
                raise FileNotFoundError(_missing(name))
            require_datasets(name)
        return frozenset(datasets)

    def windows(self, num_characters: int) -> Iterator[SentenceWindow]:
        """Reads the documents once, in windows of consecutive sentences with about `num_characters`.

        A sentence counts as its characters plus one. Counting words instead would need the tokenizer for all windows.

        Raises:
            ValueError: if a document does not have its format, cannot be read, or changes while it is read.
            OSError: if a file cannot be opened.
        """
        window = SentenceWindow(0, 0, [], [])
        size = 0
        for line, sentence in self.read():
            window.lines.append(line)
            window.sentences.append(sentence)
            text = sentence if isinstance(sentence, str) else " ".join(sentence)
            size += len(text) + 1
            if size >= num_characters:
                yield window
                window = SentenceWindow(window.number + 1, window.first + len(window.lines), [], [])
                size = 0
        if window.lines:
            yield window

    def read(self) -> Iterator[tuple[Line, Sentence]]:
        """The sentences of all documents, with their places; no two proteins have the same name.

        Raises:
            ValueError: as `ProteinNames`, besides the errors of `windows`.
        """
        protein_names = self.names_of_proteins()
        for name in self.names:
            for index, sentence in enumerate(protein_names.give(name, self.sentences(name))):
                if self.split_into_words and isinstance(sentence, str):
                    sentence = sentence.split()
                yield (PASSWORD.sub("", name), index), sentence

    def texts_of(self, sentences: Iterable[Sentence]) -> list[str]:
        """The beginnings of the raw texts among the first sentences; texts that were split at blanks are joined again.

        Lists of words that the documents have are left out, except with `split_into_words`, where they look the same.
        """
        if self.split_into_words:
            sentences = (text if isinstance(text, str) else " ".join(text) for text in sentences)
        return raw_texts(sentences)

    def names_of_proteins(self) -> ProteinNames:
        """What gives proteins their names, for a reading from the beginning."""
        if self.protein_names is None:
            return ProteinNames()
        self.protein_names.begin()
        return self.protein_names

    def sentences(self, name: str) -> Iterator[Sentence]:
        """The sentences of one document."""
        if name in self.datasets:
            yield from read_dataset(name, self.split, self.column)
            return
        file: Any = InputFile(name, self.stream)
        version = file.version()
        yield from read_sentences(file, self.encoding, self.column, self.input_format)
        if file.version() != version:
            raise ValueError(
                f"{name} changed while it was being read. Restore it, or delete the files already written; then "
                "give the same command again."
            )


def _missing(name: str) -> str:
    """What is wrong with a name that is neither a file nor a dataset, and what to give."""
    message = (
        f"there is no file {name}; with a column, give files, folders on this machine with a dataset, or names of the "
        "Hub."
    )
    if "/" in name and is_hub_name(name):
        message += (
            " A name that ends as a file's does is not looked for on the Hub: download a dataset of such a name, and "
            "give its folder."
        )
    return message
