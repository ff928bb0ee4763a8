"""The note on how a text was split into words, where the words that a model reads are perhaps not those of the text."""

from collections.abc import Mapping, Sequence

from ..text.sentences import looks_split
from .errors import say

# Each word splitter: what it does, and the option that chooses it.
SPLITS = {"whitespace": "at blanks", "ptb": "by Penn Treebank rules"}
OPTIONS = {"whitespace": "--words whitespace", "ptb": "--words ptb"}
# A larger share of unknown words is worth a note.
MOST_UNKNOWN = 0.1


def split_note(
    name: str, texts: Sequence[str], splitter: str, unknown: float = 0.0, options: Mapping[str, str] = OPTIONS
) -> str | None:
    """One line that names the split that was used and the option that chooses the other, or None.

    There is a note if the text looks split already or more than a tenth of its words are unknown. There is none for a
    text that came as lists of words, or if no option chooses the other split.

    Args:
        name: of the text.
        texts: its first raw texts.
        splitter: the word splitter that was used.
        unknown: share of the text's words that the model does not predict.
        options: of the command, by word splitter.
    """
    found = ["looks split into words already"] if looks_split(texts) else []
    if texts and unknown > MOST_UNKNOWN:
        found.append(f"has {unknown:.0%} unknown words")
    other = next(each for each in SPLITS if each != splitter)
    if not found or other not in options:
        return None
    return (
        f"Note: {name} {' and '.join(found)}; it was split {SPLITS[splitter]}. "
        f"{options[other]} splits it {SPLITS[other]}."
    )


def say_split(
    name: str, texts: Sequence[str], splitter: str, unknown: float = 0.0, options: Mapping[str, str] = OPTIONS
) -> None:
    """Prints the note of `split_note`, if there is one, to standard error."""
    note = split_note(name, texts, splitter, unknown, options)
    if note is not None:
        say(note, is_error=True)
