"""Reads sentences from files, one at a time, for every command, recipe and script, and from datasets.

A sentence is a string (raw text) or a list of words. `formats.py` finds the format of a file, which says what a
sentence is:

    text              a line
    JSON lines        a line: a string, a list of words, or an object; the first of its keys `words`, `tokens`, `text`,
                      `sentence` that exists and is not null is read; or an item of a single array
    a table           a row; its first line names the columns, which are read like the keys of an object
    Parquet           a row, as in a table
    CoNLL-U, columns  a block of lines, with a word a line
    FASTA             a record `>NAME ...`; a residue is a word

Blank lines of text and JSON lines are sentences without words, so that the n-th sentence is always the n-th line.
docs/files.md says how each format is recognised, and what is refused.
"""

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from .columns import conll_sentences, conllu_sentences, words_place
from .fasta import Protein, fasta_sentences
from .formats import FORMAT_OF, SUFFIXES, Format, format_of, is_parquet, refuse_foreign
from .installed import require_packages
from .json_lines import json_sentences, shown_keys
from .opened_files import OpenedFile, opened, suffix_of
from .parquet_files import parquet_sentences
from .tables import shown_columns, table_sentences
from .text_files import TextFile, read_lines
from .values import KEYS, Sentence, Sentences, sentence_of

__all__ = [
    "Protein",
    "Reading",
    "Sentence",
    "is_hub_name",
    "may_be_dataset",
    "read_dataset",
    "read_lines",
    "read_sentences",
    "reading",
    "require_datasets",
    "sentence_of",
    "storable",
]

DATASET_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Errors that `datasets` raises besides its own if a dataset does not exist, or if one of its files is damaged.
UNREADABLE = (EOFError, OSError, RuntimeError, StopIteration, ValueError, zlib.error)


class Reading(NamedTuple):
    """A file that is open, how it is read, and its sentences."""

    input_format: Format
    encoding: str  # as Python names it; "" for Parquet
    columns: str  # the columns or keys, and which of them is read; "" in other formats
    sentences: Iterator[Sentence]


@contextmanager
def reading(
    path: Path, encoding: str = "utf-8", column: str | None = None, input_format: Format | None = None
) -> Iterator[Reading]:
    """Opens a file for its sentences to be read, once; arguments and errors are those of `read_sentences`."""
    with opened(path) as file:
        refuse_foreign(file)
        if input_format == "parquet" or (input_format is None and _is_parquet(file)):
            columns, sentences = parquet_sentences(file, column)
            yield Reading("parquet", "", columns, sentences)
            return
        text = TextFile(file, encoding)
        keys = KEYS if column is None else (column,)
        chosen = format_of(text, keys) if input_format is None else input_format
        sentences = _sentences(text, chosen, column, keys)
        columns = ""
        if chosen == "table":
            columns = shown_columns(text, keys)
        elif chosen == "jsonl":
            columns = shown_keys(text, keys)
        elif chosen == "conll":
            columns = f"column {words_place(text, column)}, counted from 0"
        yield Reading(chosen, text.codec.removesuffix("-sig"), columns, sentences)


def read_sentences(
    path: Path, encoding: str = "utf-8", column: str | None = None, input_format: Format | None = None
) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; it is opened once, so it may be a pipe.

    Args:
        path: the file.
        encoding: the file's encoding, by its name in Python; the mark of a Unicode encoding decides before it.
        column: the column of a table, the key of objects, or the number of the words' column in CoNLL's columns; None:
            the first of `KEYS`, or the column where this format has its words.
        input_format: the format; None: by the suffix of the name, or by the first lines (`formats.py`).

    Raises:
        ValueError: if the file cannot be read as the format, or if its first lines may be of two formats; the message
            names the file, the line, and what to do.
        OSError: if the file cannot be opened.
    """
    with reading(path, encoding, column, input_format) as file:
        yield from file.sentences


def _sentences(file: TextFile, chosen: Format, column: str | None, keys: Sequence[str]) -> Iterator[Sentence]:
    match chosen:
        case "jsonl":
            return json_sentences(file, keys)
        case "table":
            return table_sentences(file, column)
        case "conllu":
            return conllu_sentences(file)
        case "conll":
            return conll_sentences(file, column)
        case "fasta":
            return fasta_sentences(file)
    return (line.rstrip("\r\n") for line in file.lines())


def is_hub_name(name: str) -> bool:
    """Whether a name can be that of a dataset on the Hub, such as `org/name` or `name`."""
    return DATASET_NAME.fullmatch(name) is not None


def may_be_dataset(name: str) -> bool:
    """Whether a name that is no file's is taken for a dataset: a folder, or a name on the Hub without a file's suffix.

    A name with such a suffix is much more often that of a file that is missing.
    """
    is_name = is_hub_name(name) and not name.endswith(SUFFIXES)
    return is_name or os.path.isdir(name)


def require_datasets(name: str) -> None:
    """Raises ImportError, with the commands that install it, unless the `datasets` library is there to read `name`."""
    try:
        require_packages("train", "datasets")
    except ImportError as error:
        raise ImportError(f"{name} is no file, so it is read as a dataset: {error}") from error


def read_dataset(name: str, split: str, column: str | None = None) -> Iterator[Sentence]:
    """Streams the sentences of a dataset; needs the `datasets` library.

    Args:
        name: a folder, or a name on the Hub.
        split: the split to read.
        column: the column; None: the first of `KEYS`.

    Raises:
        ImportError: if the library is not installed; the message has the commands that install it.
        ValueError: if the dataset cannot be read; the message names dataset and row.
    """
    require_datasets(name)
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    number = -1
    sentences = Sentences(name, KEYS if column is None else (column,))
    try:
        for row in load_dataset(name, split=split, streaming=True):
            number += 1
            yield sentences(row)
    except (DatasetsError, *UNREADABLE) as error:
        reason = str(error) or "a file of it is empty."
        place = f"row {number}: " if number >= 0 else ""
        raise ValueError(f"{name} cannot be read as a dataset: {place}{reason}") from error


def storable(text: str) -> str:
    """The text with `?` for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _is_parquet(file: OpenedFile) -> bool:
    return FORMAT_OF.get(suffix_of(file.path)) == "parquet" or is_parquet(file)
