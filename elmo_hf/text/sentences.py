"""Reads sentences from files, one at a time, for every command: text, JSON lines, CoNLL-U, tables and FASTA.

The suffix of a file's name decides how it is read; a further `.gz` means that the file is gzipped:

    *.jsonl, *.json    one value a line: a string, a list of words, or an object; the first of its keys `words`,
                       `tokens`, `text`, `sentence` that exists and is not null is read
    *.conllu           blocks of lines; the words are in the second column, multiword tokens are split
    *.csv, *.tsv       a table; its first line names the columns, which are read like the keys of an object
    *.fasta, *.fa, *.faa
                       proteins: a line `>NAME ...`, then lines of residues, one letter each; a residue is a word
    any other name     text, one sentence a line

A sentence is a string (raw text) or a list of words. Blank lines of text and JSON lines are sentences without words, so
that the n-th sentence is always the n-th line. Only a line feed ends a line, with or without a carriage return before
it. In CoNLL-U each block is a sentence, in FASTA each record.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

Sentence = str | list[str]

KEYS = ("words", "tokens", "text", "sentence")
JSON_SUFFIXES = (".jsonl", ".json")
CONLLU_SUFFIX = ".conllu"
# text8, a corpus on one line, has 100 million characters and 17 million words; JSON and CoNLL-U take more memory.
MAX_CHARACTERS, MAX_BLANKS, MAX_COMMAS = 1 << 27, 20_000_000, 1 << 21
# A word or cell of several lines counts as its characters and so many more, which its memory takes.
WORD_COST = 64
TOO_LONG = f"a row, sentence or protein of more than {MAX_CHARACTERS:,} characters, with {WORD_COST} for each word."
FASTA_SUFFIXES = (".fasta", ".fa", ".faa")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
# The suffixes of files with sentences.
SUFFIXES = (".txt", ".gz", CONLLU_SUFFIX, *JSON_SUFFIXES, *FASTA_SUFFIXES, *SEPARATORS)
CONLLU_NUMBER = re.compile(r"([0-9]+)|[0-9]+[-.][0-9]+")
# Errors that `datasets` raises besides its own if a dataset does not exist, or if one of its files is damaged.
UNREADABLE = (EOFError, OSError, RuntimeError, StopIteration, ValueError, zlib.error)
# How many sentences, and how many characters of each, `looks_split` reads.
LOOKED_AT, LOOKED_AT_CHARACTERS = 100, 10_000
# Words that are between blanks in split text, and attached to their neighbours in raw text.
SPLIT_OFF = frozenset(". , ; : ! ? ... 's n't `` '' -LRB- -RRB- <unk> <UNK> @-@ @,@ @.@".split())
MARKS = (".", ",", ";", ":", "!", "?")
CLOSING = "\"')]}’”»"


class Protein(list[str]):
    """The residues of a protein, each a word.

    Attributes:
        header: its line `>NAME ...` without the `>`; "" if it has none.
        name: the first word of the header.
    """

    header = ""
    name = ""


def read_sentences(path: Path, encoding: str = "utf-8", column: str | None = None) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; errors are those of `read_lines`.

    Args:
        path: the file; its suffix decides how it is read.
        encoding: the file's encoding, by its name in Python.
        column: the column of a table, or the key of objects; None: the first of `KEYS`.
    """
    keys = KEYS if column is None else (column,)
    if suffix_of(path) == CONLLU_SUFFIX:
        return _joined(path, read_lines(path, encoding, _conllu_words), [])
    if suffix_of(path) in FASTA_SUFFIXES:
        return _joined(path, read_lines(path, encoding, _fasta_residues), Protein())
    if suffix_of(path) in SEPARATORS:
        return (sentence_of(row, keys) for row in read_table(path, encoding, keys))
    parse = partial(_json_sentence, keys=keys) if suffix_of(path) in JSON_SUFFIXES else _text_sentence
    return read_lines(path, encoding, parse)


def read_lines(path: Path, encoding: str = "utf-8", parse: Callable[[str], Any] = str) -> Iterator[Any]:
    """Reads a file of text, gzipped or not, line by line, each with its line feed.

    Args:
        path: the file.
        encoding: the file's encoding; a byte order mark of UTF-8 is skipped.
        parse: a function that converts a line.

    Raises:
        ValueError: if bytes are illegal in the encoding, a gzipped file is damaged, `parse` raises one, or Python has
            no such encoding; the message names file and line.
        OSError: if the file cannot be opened.
    """
    number = 0
    with path.open("rb") as file:
        try:
            is_utf8 = codecs.lookup(encoding).name == "utf-8"  # "utf-8-sig" skips the mark that Windows puts first
            content: Any = gzip.open(file) if path.name.lower().endswith(".gz") else file
            # A lone carriage return does not end a line.
            stream = io.TextIOWrapper(content, encoding="utf-8-sig" if is_utf8 else encoding, newline="\n")
            for line in iter(partial(stream.readline, MAX_CHARACTERS), ""):
                number += 1
                if "\0" in line or len(line) == MAX_CHARACTERS or len(line) > MAX_BLANKS < sum(map(str.isspace, line)):
                    raise ValueError(
                        f"holds the character 0, or more than {MAX_CHARACTERS - 1:,} characters or "
                        f"{MAX_BLANKS:,} blanks; give its encoding, such as utf-16-le, or export its text."
                    )
                yield parse(line)
        except (LookupError, RecursionError, ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            reason = str(error)
            if isinstance(error, UnicodeDecodeError):
                # Lines are decoded many at a time, so some before the illegal byte were not read yet.
                number += 1 + error.object[: error.start].count(b"\n")
                reason = (
                    f"not {encoding.upper()} (byte 0x{error.object[error.start]:02x}). Give the file's encoding, such "
                    "as `--encoding latin-1`; unpack a compressed file, or name it .gz if it is gzipped."
                )
            raise ValueError(f"{path}{f', line {number}' if number else ''}: {reason}") from error


def read_table(path: Path, encoding: str = "utf-8", keys: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Reads the rows of a .csv or .tsv as text; `datasets` would read `007` as 7, `NA` as null, and shift long rows.

    Raises:
        ValueError: if a row has more or fewer cells than the first line, or no column is one of `keys`.
    """
    limit = csv.field_size_limit(MAX_CHARACTERS)  # of the whole process
    separator, count = SEPARATORS[suffix_of(path)], 0

    def counted(line: str) -> str:
        nonlocal count
        count += len(line) + WORD_COST * line.count(separator)
        if count > MAX_CHARACTERS:
            raise ValueError(TOO_LONG)
        return line

    try:
        reader = csv.reader(read_lines(path, encoding, counted), delimiter=separator, strict=True)
        names = next(reader, [])
        if names and keys and not {*keys} & {*names}:
            raise ValueError(
                f"{path}: the first line must name a column {' or '.join(map(repr, keys))}, found "
                f"{', '.join(names)[:80]}, separated by {SEPARATORS[suffix_of(path)]!r}; rename one, or give its name "
                "(--column NAME)."
            )
        for cells in filter(None, reader):
            count = 0  # of a row, which may have several lines
            if len(cells) != len(names):
                raise ValueError(f"{path}, line {reader.line_num}: expected {len(names)} columns, found {len(cells)}.")
            yield dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(limit)


def read_dataset(name: str, split: str, column: str | None = None) -> Iterator[Sentence]:
    """Streams the sentences of a dataset; needs the `datasets` library.

    Args:
        name: a folder, or a name on the Hub.
        split: the split to read.
        column: the column; None: the first of `KEYS`.

    Raises:
        ValueError: if the dataset cannot be read; the message names dataset and row.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    number = -1
    try:
        for row in load_dataset(name, split=split, streaming=True):
            number += 1
            yield sentence_of(row, KEYS if column is None else (column,))
    except (DatasetsError, *UNREADABLE) as error:
        reason = str(error) or "a file of it is empty."
        place = f"row {number}: " if number >= 0 else ""
        raise ValueError(f"{name} cannot be read as a dataset: {place}{reason}") from error


def sentence_of(value: Any, keys: Sequence[str] = KEYS) -> Sentence:
    """The sentence in a value: a string or a list of words, or in an object one under a key.

    Args:
        value: from JSON or a dataset.
        keys: the keys of an object; the first that exists and is not null is read. If all are null, the sentence is "".

    Raises:
        ValueError: if there is none.
    """
    if isinstance(value, dict) and any(key in value for key in keys):
        value = next((value[key] for key in keys if value.get(key) is not None), "")
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
        raise ValueError(
            f"must be a string, a list of words, or an object with one of them under {' or '.join(map(repr, keys))}, "
            f"found {str(value)[:80]}."
        )
    return value


def beginning_of(sentences: Iterator[Sentence]) -> tuple[list[str], Iterator[Sentence]]:
    """The result of `raw_texts`, and all sentences."""
    first = list(islice(sentences, LOOKED_AT))
    return raw_texts(first), chain(first, sentences)


def raw_texts(sentences: Iterable[Sentence]) -> list[str]:
    """The beginnings of the strings among the first sentences, for `looks_split`; lists of words are left out."""
    return [each[:LOOKED_AT_CHARACTERS] for each in islice(sentences, LOOKED_AT) if isinstance(each, str)]


def looks_split(texts: Iterable[str]) -> bool:
    """Whether texts look split into words: marks stand alone more than twice as often as they end a word.

    In raw English one mark in a hundred stands alone; in split text one in thirty ends a word, as in `U.S.`
    """
    tokens = [token for text in texts for token in text.split()]
    alone = sum(token in SPLIT_OFF for token in tokens)
    at_ends = sum(token not in SPLIT_OFF and token.rstrip(CLOSING).endswith(MARKS) for token in tokens)
    return alone > 2 * at_ends


def num_ends(text: str) -> int:
    """How many sentences end within a text: a mark, then blanks and a capital."""
    return len(re.findall(r"[.!?][\"')\]”’»]*\s+[\"'(\[“‘«]*[A-Z]", text))


def suffix_of(path: Path) -> str:
    """The suffix of a file's name that decides its format, such as `.conllu`, before any `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def storable(text: str) -> str:
    """The text with `?` for each lone surrogate, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _text_sentence(line: str) -> str:
    return line.rstrip("\r\n")


def _json_sentence(line: str, keys: Sequence[str]) -> Sentence:
    if line.count(",") > MAX_COMMAS:
        raise ValueError(f"holds more than {MAX_COMMAS:,} commas; give a sentence a line.")
    return sentence_of(json.loads(line), keys) if line.strip() else ""


def _conllu_words(line: str) -> list[str] | None:
    """The word of a line; no word for a multiword token, whose words are in the next lines; None for a blank line."""
    line = line.rstrip("\r\n")
    columns = line.split("\t")
    found = CONLLU_NUMBER.fullmatch(columns[0])
    if line and line[0] != "#" and (len(columns) != 10 or found is None or not columns[1]):
        raise ValueError(
            f"CoNLL-U has 10 columns, the number of a word, such as 1, 2-3 or 4.1, and the word first, found "
            f"{len(columns)}: {line[:80]!r}."
        )
    return None if not line else [columns[1]] if found and found[1] else []


def _joined(path: Path, lines: Iterable[Sentence | None], words: list[str]) -> Iterator[Sentence]:
    """Joins the words of lines to sentences; `words` begins the first, and None or a new protein ends a sentence."""
    size = 0
    for of_line in chain(lines, [None]):
        if of_line is None or isinstance(of_line, Protein):
            if words or (isinstance(words, Protein) and words.name):
                yield words
            words, size = [] if of_line is None else of_line, 0
            continue
        size += sum(map(len, of_line)) + WORD_COST * len(of_line)
        if size > MAX_CHARACTERS:
            raise ValueError(f"{path}: {TOO_LONG}")
        words += of_line


def _fasta_residues(line: str) -> Sentence:
    """The residues of a line, in capitals as SeqVec reads them, or a new protein for a line `>NAME ...`."""
    if line.startswith(">"):
        protein = Protein()
        protein.header = line[1:].strip()
        protein.name = next(iter(protein.header.split()), "")
        return protein
    residues = "".join(line.split()).upper()
    if not re.fullmatch("[A-Z*-]*", residues):
        raise ValueError(f"FASTA has a line `>NAME`, then lines of letters, found {line[:80]!r}.")
    return residues
