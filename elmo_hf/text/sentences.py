"""Reads sentences from files, one at a time: text, JSON lines and CoNLL-U, plain or gzipped. Every command reads so.

The name of a file says what it holds, with or without `.gz` after it:

    *.jsonl, *.json    one value a line: a string, a list of words, or an object. Of an object's keys `words`, `tokens`,
                       `text`, `sentence`, the first that is there and not null is read
    *.conllu           blocks of lines; the words are in the second column, multiword tokens are split
    any other name     text, one sentence a line

A sentence is a string (raw text) or a list of words. Blank lines of text and JSON lines are sentences without words, so
that the n-th sentence is always the n-th line. Only a line feed ends a line, with or without a carriage return before
it. In CoNLL-U each block is a sentence.
"""

import codecs
import contextlib
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

Sentence = str | list[str]

KEYS = ("words", "tokens", "text", "sentence")
JSON_SUFFIXES = (".jsonl", ".json")
CONLLU_SUFFIX = ".conllu"
# text8, a corpus on one line, has 100 million characters.
MAX_LINE_CHARACTERS = 1 << 27
# First bytes of what people take for text, and what to do.
LOOKS: dict[bytes, str] = {
    b"\xff\xfe\0\0": "UTF-32: give the encoding utf-32",
    b"\0\0\xfe\xff": "UTF-32: give the encoding utf-32",
    b"\xff\xfe": "UTF-16: give the encoding utf-16",
    b"\xfe\xff": "UTF-16: give the encoding utf-16",
    b"\x1f\x8b": "a gzipped file: its name must end in .gz",
    b"BZh": "a bzip2 archive: unpack it",
    b"\xfd7zXZ": "an xz archive: unpack it",
    b"\x28\xb5\x2f\xfd": "a zstandard archive: unpack it",
    b"PK\x03\x04": "a zip archive, or a document of an office program: unpack or export it",
    b"%PDF": "a PDF: export its text",
}
CONLLU_NUMBER = re.compile(r"([0-9]+)|[0-9]+[-.][0-9]+")
# From how many sentences, and how many characters of each, a text's look is judged.
LOOKED_AT, LOOKED_AT_CHARACTERS = 100, 10_000
# What stands between blanks in text that was split into words, and is a part of its neighbour in raw text.
SPLIT_OFF = frozenset(". , ; : ! ? ... 's n't `` '' -LRB- -RRB- <unk> <UNK> @-@ @,@ @.@".split())
MARKS = (".", ",", ";", ":", "!", "?")
CLOSING = "\"')]}’”»"


def read_sentences(path: Path, split_into_words: bool = False, encoding: str = "utf-8") -> Iterator[Sentence]:
    """Reads a file sentence by sentence.

    Args:
        path: the file; its suffix says what it holds.
        split_into_words: whether strings are words separated by blanks already.
        encoding: of the file's characters, a name that Python knows; a byte order mark of UTF-8 is skipped.

    Raises:
        ValueError: if a line has a wrong format or encoding, with the file and the line; or if there is no such
            encoding.
        OSError: if the file cannot be opened.
    """
    parse = PARSERS.get(suffix_of(path), _parse_text)
    for sentence in parse(read_lines(path, encoding), path):
        yield sentence.split() if split_into_words and isinstance(sentence, str) else sentence


def read_dataset(name: str, split: str, sentence_in: Callable[[dict[str, Any]], Sentence]) -> Iterator[Sentence]:
    """Streams the sentences of a dataset; needs the `datasets` library.

    Args:
        name: a folder, or a name on the Hub.
        split: the split to read.
        sentence_in: gives the sentence in a row, a dictionary of columns, or raises ValueError.

    Raises:
        ValueError: naming the dataset and the row, if it cannot be read.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        for number, row in enumerate(load_dataset(name, split=split, streaming=True)):
            try:
                sentence = sentence_in(row)
            except ValueError as error:
                raise ValueError(f"row {number}: {error}") from error
            yield sentence
    except (DatasetsError, EOFError, OSError, RuntimeError, StopIteration, ValueError, zlib.error) as error:
        reason = str(error).rstrip(".") or "a file of it is empty"
        raise ValueError(f"{name} cannot be read as a dataset: {reason}.") from error


def beginning_of(sentences: Iterator[Sentence]) -> tuple[list[str], Iterator[Sentence]]:
    """The raw texts among the first sentences, for `looks_split`, and all sentences."""
    first = list(islice(sentences, LOOKED_AT))
    return raw_texts(first), chain(first, sentences)


def raw_texts(sentences: Iterable[Sentence]) -> list[str]:
    """The strings among the first sentences; the others are words already."""
    return [sentence for sentence in islice(sentences, LOOKED_AT) if isinstance(sentence, str)]


def looks_split(texts: Iterable[str]) -> bool:
    """Whether texts look split into words: marks stand alone more than twice as often as they end a word.

    In raw English one mark in a hundred stands alone; in split text, one in thirty ends a word, such as `U.S.`
    """
    tokens = [token for text in texts for token in text[:LOOKED_AT_CHARACTERS].split()]
    alone = sum(token in SPLIT_OFF for token in tokens)
    at_ends = sum(token not in SPLIT_OFF and token.rstrip(CLOSING).endswith(MARKS) for token in tokens)
    return alone > 2 * at_ends


def suffix_of(path: Path) -> str:
    """What the name of a file says that it holds, such as `.conllu`, before any `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Reads a file of text, gzipped or not, line by line, each with its line feed; errors are those above."""
    check_encoding(encoding)
    with open_bytes(path) as file:
        yield from _lines(file, path, encoding)


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Opens a file, gzipped or not; raises ValueError if a gzipped one is damaged."""
    try:
        with path.open("rb") as content:
            with gzip.open(content) if path.name.lower().endswith(".gz") else content as file:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be a gzipped file, because its name ends in .gz: {error}.") from error


def storable(text: str) -> str:
    """The text with `?` for each lone surrogate, which no file of UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def sentence_of(example: dict[str, Any]) -> Sentence:
    """The sentence in an object, from the first of `KEYS` that is there and not null; "" if all are null.

    Raises:
        ValueError: if the object has none of these keys, or its value is neither a string nor a list of strings.
    """
    if not any(key in example for key in KEYS):
        found = ", ".join(sorted(map(repr, example)))[:80] or "nothing"
        raise ValueError(f"must have {', '.join(map(repr, KEYS[:-1]))} or {KEYS[-1]!r}, found {found}.")
    return _checked(next((example[key] for key in KEYS if example.get(key) is not None), ""))


def check_encoding(encoding: str) -> None:
    """Checks the name of an encoding.

    Raises:
        ValueError: if Python has no such encoding of text.
    """
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    except (LookupError, ValueError) as error:
        raise ValueError(
            f"there is no encoding of text {encoding!r}; well-known ones are utf-8, utf-16, latin-1, cp1252."
        ) from error


def _lines(file: Any, path: Path, encoding: str) -> Iterator[str]:
    """Decodes the lines of a binary file.

    Raises:
        ValueError: with the line, if bytes are not of the encoding, or what they give is no text.
    """
    head: bytes = file.peek(8)[:8]
    # "utf-8-sig" skips the byte order mark that Windows puts first; a lone carriage return ends no line.
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    stream: IO[str] = io.TextIOWrapper(file, encoding="utf-8-sig" if is_utf8 else encoding, newline="\n")
    number = 0
    try:
        for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_CHARACTERS), ""), start=1):
            if "\0" in line:
                looks = _looks(head) or "UTF-16 without a byte order mark (give the encoding utf-16-le), or no text"
                raise ValueError(f"{path}, line {number}: holds the character 0; the file looks like {looks}.")
            if len(line) == MAX_LINE_CHARACTERS:
                raise ValueError(f"{path}, line {number}: longer than {MAX_LINE_CHARACTERS:,} characters.")
            yield line
    except UnicodeDecodeError as error:
        # Lines are decoded many at a time; what is before the byte has lines that were not read yet.
        number += 1 + error.object[: error.start].decode(_known(error.encoding)).count("\n")
        found = f"{path}, line {number}: not {encoding.upper()} (byte 0x{error.object[error.start]:02x})"
        raise ValueError(f"{found}. {_advice(head, encoding)}") from error
    except UnicodeError as error:
        raise ValueError(f"{path}: not {encoding.upper()} ({error}). {_advice(head, encoding)}") from error


def _known(encoding: str) -> str:
    """The encoding that an error names; latin-1, with the line breaks of most others, if there is none."""
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        return "latin-1"


def _looks(head: bytes) -> str:
    return next((looks for magic, looks in LOOKS.items() if head.startswith(magic)), "")


def _advice(head: bytes, encoding: str) -> str:
    looks = _looks(head)
    if looks and not looks.endswith(encoding.lower()):
        return f"It looks like {looks}."
    return "Give the file's encoding, such as `--encoding latin-1`, or convert the file to UTF-8."


def _parse_text(lines: Iterable[str], path: Path) -> Iterator[Sentence]:
    for line in lines:
        yield line.rstrip("\r\n")


def _parse_json_lines(lines: Iterable[str], path: Path) -> Iterator[Sentence]:
    for number, line in enumerate(lines, start=1):
        try:
            value: Any = json.loads(line) if line.strip() else ""
            sentence = sentence_of(value) if isinstance(value, dict) else _checked(value)
        except (RecursionError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}); each line must be one value.") from error
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        yield sentence


def _checked(value: Any) -> Sentence:
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not (isinstance(value, str) or is_words):
        raise ValueError(f"must be a string, a list of words, or an object with one of them, found {str(value)[:80]}.")
    return value


def _parse_conllu(lines: Iterable[str], path: Path) -> Iterator[Sentence]:
    words: list[str] = []
    for number, line in enumerate(lines, start=1):
        line = line.rstrip("\r\n")
        if line.startswith("#"):
            continue
        if line:
            words += _conllu_words(line, f"{path}, line {number}")
        elif words:
            yield words
            words = []
    if words:
        yield words


def _conllu_words(line: str, place: str) -> list[str]:
    """The word of a line; none of a multiword token, whose words follow, and of an empty node."""
    columns = line.split("\t")
    found = CONLLU_NUMBER.fullmatch(columns[0])
    if len(columns) != 10 or found is None or not columns[1]:
        raise ValueError(
            f"{place}: CoNLL-U has 10 columns, the number of a word, such as 1, 2-3 or 4.1, and the word first, found "
            f"{len(columns)}: {line[:80]!r}."
        )
    return [columns[1]] if found[1] else []


PARSERS: dict[str, Callable[[Iterable[str], Path], Iterator[Sentence]]] = {
    **dict.fromkeys(JSON_SUFFIXES, _parse_json_lines),
    CONLLU_SUFFIX: _parse_conllu,
}
