"""Reads sentences from text, JSON lines and CoNLL-U, plain or gzipped, one sentence at a time.

A sentence is a string (raw text) or a list of words. Blank lines of text and JSON lines are sentences without words, so
that the n-th sentence is always the n-th line. In CoNLL-U each block is a sentence.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

Sentence = str | list[str]


def read_sentences(path: Path, split_into_words: bool = False) -> Iterator[Sentence]:
    """Reads a file sentence by sentence; the suffix gives the format, with or without `.gz` after it.

    Args:
        path: `*.jsonl` (each line a string, a list of words, or an object with `text` or `words`), `*.conllu` (words
            of the second column, with multiword tokens split), or any other name for text, one sentence a line.
        split_into_words: whether the sentences of text and JSON strings are words separated by blanks already.

    Raises:
        ValueError: if a line has a wrong format; the message names the line.
        FileNotFoundError: if the file does not exist.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_gzipped = suffixes[-1:] == [".gz"]
    if is_gzipped:
        suffixes.pop()
    parse = PARSERS.get(suffixes[-1] if suffixes else "", _parse_text)
    try:
        with _open(path, is_gzipped) as lines:
            for sentence in parse(lines, path.name):
                yield sentence.split() if split_into_words and isinstance(sentence, str) else sentence
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        kind = "gzipped UTF-8 text" if is_gzipped else "UTF-8 text"
        raise ValueError(f"{path.name} must be {kind}: {error}.") from error


def _open(path: Path, is_gzipped: bool) -> IO[str]:
    # "utf-8-sig" skips the byte order mark that Windows puts first; a lone carriage return ends no line.
    if is_gzipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="\n")
    return path.open(encoding="utf-8-sig", newline="\n")


def _parse_text(lines: Iterable[str], name: str) -> Iterator[Sentence]:
    for line in lines:
        yield line.rstrip("\r\n")


def _parse_jsonl(lines: Iterable[str], name: str) -> Iterator[Sentence]:
    for number, line in enumerate(lines, start=1):
        try:
            value: Any = json.loads(line) if line.strip() else ""
        except ValueError as error:
            raise ValueError(f"{name}, line {number}: not JSON ({error}).") from error
        if isinstance(value, dict):
            value = value.get("text", value.get("words"))
        is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
        if not (isinstance(value, str) or is_words):
            raise ValueError(
                f"{name}, line {number}: must be a string, a list of words, or an object with `text` or `words`, "
                f"found {line.strip()[:80]!r}."
            )
        yield value


def _parse_conllu(lines: Iterable[str], name: str) -> Iterator[Sentence]:
    words: list[str] = []
    for number, line in enumerate(lines, start=1):
        line = line.rstrip("\r\n")
        if line.startswith("#"):
            continue
        if line:
            columns = line.split("\t")
            if len(columns) != 10:
                raise ValueError(f"{name}, line {number}: CoNLL-U has 10 columns, found {len(columns)}.")
            if columns[0].isdigit():
                words.append(columns[1])
        elif words:
            yield words
            words = []
    if words:
        yield words


PARSERS: dict[str, Callable[[Iterable[str], str], Iterator[Sentence]]] = {
    ".jsonl": _parse_jsonl,
    ".conllu": _parse_conllu,
}
