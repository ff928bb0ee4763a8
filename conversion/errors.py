"""The error that users of the conversion see, and how it quotes what a file says."""

from collections.abc import Iterable
from itertools import accumulate

from elmo_hf.text.escapes import printable

MAX_QUOTE = 200
MAX_LISTED = 20
MAX_CHARACTERS = 1000


class ConversionError(Exception):
    """A checkpoint cannot be converted; the message says what was expected, what was found, and what to do."""


def quoted(value: object) -> str:
    """A value from a file as Python writes it, cut after `MAX_QUOTE` characters.

    The value must be a string, or something that a bounded file holds.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return f"a number of {value.bit_length():,} bits"
    return shortened(repr(value[: MAX_QUOTE + 1] if isinstance(value, str) else value))


def shortened(text: str, most: int = MAX_QUOTE) -> str:
    """A text that a terminal can show, cut after so many characters."""
    return printable(text if len(text) <= most else f"{text[:most]}...")


def listed(names: Iterable[object], separator: str = ", ") -> str:
    """The first `MAX_LISTED` names, as far as a message has room for them, and how many more there are."""
    texts = [shortened(str(name)) for name in names]
    num_listed = max(1, sum(number <= MAX_CHARACTERS for number in accumulate(map(len, texts[:MAX_LISTED]))))
    more = f"{separator}and {len(texts) - num_listed:,} more" if len(texts) > num_listed else ""
    return separator.join(texts[:num_listed]) + more
