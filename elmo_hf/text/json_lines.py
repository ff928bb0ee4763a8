"""JSON, one value a line, or one JSON document: an array, or an object, of one line or of several."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from .notes import note
from .text_files import MAX_CHARACTERS, TextFile
from .values import Sentence, Sentences

MAX_COMMAS = 1 << 21
# How many lines are looked at in a file whose name does not say what it holds.
LOOKED_AT = 100
# The second line of a document whose first is a bracket: of an object, a key; of an array, an object, a list or a
# string alone.
STRING = r'"(?:[^"\\]|\\.)*"'
KEY = STRING + r"\s*:.*"
SECOND_LINES = {
    "{": re.compile(KEY),
    "[": re.compile(rf"\{{\s*(?:{KEY})?|\[\s*(?:{STRING}\s*[],].*)?|{STRING}\s*,?"),
}


def json_sentences(file: TextFile, keys: Sequence[str]) -> Iterator[Sentence]:
    """The sentences of a file: one a line, blank lines among them; or one for each item of a single array.

    Raises:
        ValueError: if a value is no sentence, or no JSON.
    """
    sentences = Sentences(file.path, keys)
    for number, value in json_values(file):
        try:
            sentence = sentences(value)
        except ValueError as error:
            raise file.fault(error, number) from error
        yield sentence


def shown_keys(file: TextFile, keys: Sequence[str]) -> str:
    """The keys of the first object of a file with one value a line, and which of them is read; "" if it has none."""
    first = next((line for line in file.first_lines(LOOKED_AT) if line.strip()), "")
    try:
        value = decoded(first)
    except ValueError:
        return ""
    if not isinstance(value, dict):
        return ""
    key = next((key for key in keys if value.get(key) is not None), "none")
    return f"{key}, of {', '.join(value)}"


def looks_like_json(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file can only be JSON: objects, lists of strings, or the start of a document."""
    filled = [line for line in lines[:LOOKED_AT] if line.strip()]
    if len(filled) > 1 and filled[0].strip() in SECOND_LINES:
        return SECOND_LINES[filled[0].strip()].fullmatch(filled[1].strip()) is not None
    return len(filled) > 0 and all(map(_is_object_or_words, filled))


def _is_object_or_words(line: str) -> bool:
    if not line.lstrip().startswith(("{", "[")):
        return False
    try:
        value = decoded(line)
    except ValueError:
        return False
    if isinstance(value, dict):
        return len(value) > 0
    return isinstance(value, list) and len(value) > 0 and all(map(_is_item, value))


def _is_item(value: Any) -> bool:
    """Whether an item of an array is a text, an object, or a list of words."""
    if isinstance(value, list):
        return len(value) > 0 and all(isinstance(word, str) for word in value)
    return isinstance(value, (str, dict))


def json_values(file: TextFile) -> Iterator[tuple[int, Any]]:
    """Each value with the number of its line; "" for a blank line."""
    numbered_lines = enumerate(file.lines(), start=1)
    for number, line in numbered_lines:
        if line.strip():
            yield from _values_from(file, number, line, numbered_lines)
        else:
            yield number, ""


def _values_from(
    file: TextFile, number: int, line: str, further_lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, Any]]:
    """The values from the first line with one on.

    Args:
        file: the file.
        number: the number of that line.
        line: that line.
        further_lines: the lines behind it, with their numbers.
    """
    _refuse_many_commas(file, line, number)
    try:
        first = decoded(line)
    except json.JSONDecodeError as error:
        if not line.lstrip().startswith(("[", "{")):
            raise file.fault(error, number) from error
        yield from _document(file, number, line, further_lines, error)
        return
    except ValueError as error:
        raise file.fault(error, number) from error
    blanks = []
    following: list[tuple[int, str]] = []  # the next line with a value, if there is one
    for next_number, next_line in further_lines:
        if next_line.strip():
            following.append((next_number, next_line))
            break
        blanks.append((next_number, ""))
    if not following and isinstance(first, list):
        for item in _items(file, first, number):
            yield number, item
    else:
        yield number, first
    yield from blanks
    for next_number, next_line in chain(following, further_lines):
        yield next_number, _value_of(file, next_line, next_number)


def _value_of(file: TextFile, line: str, number: int) -> Any:
    """The value in a line, "" for a blank one."""
    if not line.strip():
        return ""
    _refuse_many_commas(file, line, number)
    try:
        return decoded(line)
    except ValueError as error:
        raise file.fault(error, number) from error


def _refuse_many_commas(file: TextFile, text: str, number: int) -> None:
    if text.count(",") > MAX_COMMAS:
        raise file.fault(f"holds more than {MAX_COMMAS:,} commas; give a sentence a line.", number)


def decoded(text: str) -> Any:
    """The value of a JSON text; raises ValueError if there is none."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply for Python's reader of JSON.") from error


def _document(
    file: TextFile, number: int, line: str, numbered: Iterator[tuple[int, str]], first_error: json.JSONDecodeError
) -> Iterator[tuple[int, Any]]:
    """The values of a document that has several lines."""
    parts = [line]
    size = len(line)
    for _, part in numbered:
        parts.append(part)
        size += len(part)
        if size > MAX_CHARACTERS:
            raise file.fault(first_error, number)
    content = "".join(parts)
    _refuse_many_commas(file, content, number)
    try:
        value = decoded(content)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and line.strip() in ("[", "{"):
            raise file.fault(error.msg, number + error.lineno - 1) from error
        # The first line alone is an error of a file with one value a line, which this file may be.
        raise file.fault(first_error, number) from error
    if isinstance(value, list):
        note(f"{file.path} is one JSON array; each item is read as one value.")
        for item in _items(file, value, number, is_said=True):
            yield number, item
        return

    note(f"{file.path} is one JSON object, which is read as one value.")
    yield number, value


def _items(file: TextFile, array: list[Any], number: int, is_said: bool = False) -> Iterator[Any]:
    """The values of an array that is all of a file: itself if it is a list of words, else its items.

    Raises:
        ValueError: if its strings may be words as well as texts.
    """
    strings = [item for item in array if isinstance(item, str)]
    num_texts = sum(len(item.split()) > 1 for item in strings)
    if len(strings) == len(array) and not is_said:
        if num_texts == 0:
            yield array
            return
        if num_texts < len(array):
            raise file.fault(
                f"is one array, in which {num_texts} of {len(array)} strings have blanks, so it may be a list of words "
                "or of texts. Write one value a line: each text as a string, or the words as a list.",
                number,
            )
    if not is_said:
        note(f"{file.path} is one JSON array; each item is read as one value.")
    yield from array
