"""Escapes text from outside (names of files and folders, values of a run) for cards and terminals.

The result is one line, and Markdown, HTML, Python or a terminal show it as text.
"""

import re

# Characters with a meaning for Markdown in the middle of a line; an underscore only at the edge of a word, and a `#`
# where the last word has no other characters, because it would close a heading and vanish.
_MARKDOWN = re.compile(r"[\\`*\[\]<>|&~]|(?<![^\W_])_|_(?![^\W_])|(?<!\S)#(?=#*\s*\Z)")


def printable(text: str) -> str:
    """The text on one line, with Python's escapes for characters that cannot be printed, such as lone surrogates."""
    return "".join(_printable_character(character) for character in text)


def markdown(value: object) -> str:
    """Escapes a text for a sentence, a heading or a cell of a table."""
    return _MARKDOWN.sub(r"\\\g<0>", printable(str(value)))


def code_span(text: str) -> str:
    """The text as inline code, also in a cell of a table."""
    text = printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    gap = " " if text.strip("`") != text else ""
    return f"{fence}{gap}{text}{gap}{fence}".replace("|", r"\|")


def string_literal(text: str) -> str:
    """The text as a Python string in a fenced block."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + printable(escaped).replace("`", r"\x60") + '"'


def _printable_character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
