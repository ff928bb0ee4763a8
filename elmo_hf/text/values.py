"""Sentences out of values: of JSON, of tables' cells and of datasets.

A value is a string (raw text), a list of words, or an object with one of them under a key. Tables written from lists
hold them as text, such as `"['The', 'old', 'sailor']"`. If the first string of a file is such a list, all must be, and
the lists are read; if it is not, none may be.
"""

import ast
import re
from collections.abc import Sequence
from typing import Any

from .notes import note

Sentence = str | list[str]

KEYS = ("words", "tokens", "text", "sentence")
_STRING = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_OTHER = r"(?:[+-]?\d[\d.eE+-]*|nan|None|null|True|False)"
# A list of strings as Python and JSON write it.
LIST = re.compile(rf"\[\s*(?:{_STRING}(?:\s*,\s*{_STRING})*\s*,?\s*)?\]")
# A list as text of which some items are no strings, or between which NumPy has blanks in place of commas.
OTHER_LIST = re.compile(rf"\[\s*(?:{_STRING}|{_OTHER})(?:[\s,]+(?:{_STRING}|{_OTHER}))*[\s,]*\]")
NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:[.,]\d*)?|\.\d+)(?:[eE][+-]?\d+)?\s*")


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


def list_of(text: str) -> list[str] | None:
    """The strings of a list that is written as text, or None if the text is no such list."""
    text = text.strip()
    if not text.startswith("[") or LIST.fullmatch(text) is None:
        return None
    return list(ast.literal_eval(text))


class Sentences:
    """A function from the values of one file or dataset to sentences."""

    def __init__(self, source: object, keys: Sequence[str] = KEYS) -> None:
        """Takes the name of what the values are from, for a note."""
        self._source = source
        self._keys = keys
        self._are_lists: bool | None = None

    def __call__(self, value: Any) -> Sentence:
        """The sentence in a value.

        Raises:
            ValueError: if there is none, or if it is a list written as text where others are not, or the reverse.
        """
        sentence = sentence_of(value, self._keys)
        if isinstance(sentence, list):
            check_words(sentence)
            return sentence
        if sentence.strip() == "":
            return sentence
        words = list_of(sentence)
        if self._are_lists is None:
            self._are_lists = words is not None
            if self._are_lists:
                note(f"{self._source} holds lists written as text, such as {sentence[:40]!r}; they are read as words.")
        if self._are_lists and words is not None:
            return words
        if self._are_lists:
            raise ValueError(f"must be a list written as text, as those before it are, found {sentence[:80]!r}.")
        if words is not None or _is_other_list(sentence):
            raise ValueError(
                f"is a list written as text, {sentence[:80]!r}, not a text or a list of words. Write the words with "
                "blanks between them, or write .jsonl or .parquet, which hold lists."
            )
        return sentence


def check_words(words: list[str]) -> None:
    """Refuses a list of texts in the place of a list of words.

    Raises:
        ValueError: if its strings have two blanks and more on average; words of some languages have one.
    """
    num_blanks = sum(len(word.split()) - 1 for word in words)
    if words and num_blanks >= 2 * len(words):
        raise ValueError(
            f"must be a text or a list of words, found a list of texts, beginning with {words[0][:60]!r}. Write one "
            "text a line."
        )


def _is_other_list(text: str) -> bool:
    text = text.strip()
    has_string = "'" in text or '"' in text
    return text.startswith("[") and text.endswith("]") and has_string and OTHER_LIST.fullmatch(text) is not None
