"""The note of a command that may have split a text into the wrong words."""

from collections.abc import Sequence

from ..text.sentences import looks_split
from .errors import say

# What each word splitter does.
SPLITS = {"whitespace": "at blanks", "ptb": "by Penn Treebank rules"}
OPTIONS = {"whitespace": "--words whitespace", "ptb": "--words ptb"}
# A larger share of unknown words is worth a note.
MOST_UNKNOWN = 0.1


def say_split(
    name: str, texts: Sequence[str], splitter: str, unknown: float = 0.0, options: dict[str, str] = OPTIONS
) -> None:
    """Prints to standard error which split was used, and the option for the other, if it may be wrong.

    It may be wrong if the text looks split already, or more than a tenth of its words are unknown, unless it came as
    lists of words.

    Args:
        name: of the text.
        texts: its first raw texts.
        splitter: the word splitter that was used.
        unknown: share of the text's words that are unknown to the softmax.
        options: of the command, by word splitter.
    """
    other = next(each for each in SPLITS if each != splitter)
    found = ["looks split into words already"] if looks_split(texts) else []
    found += [f"has {unknown:.0%} unknown words"] if texts and unknown > MOST_UNKNOWN else []
    if found and other in options:
        note = f"Note: {name} {' and '.join(found)}; it was split {SPLITS[splitter]}."
        say(f"{note} {options[other]} splits it {SPLITS[other]}.", is_error=True)
