"""The texts of a tokenizer call, and their words.

A call takes one text or a batch. A text is a string or a list of words, alone or paired with a second text.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from transformers.tokenization_utils_base import TruncationStrategy

from .word_codec import is_list
from .word_encoding import Words


def is_batch(text: Any, is_split_into_words: bool) -> bool:
    """Whether a call's `text` is several texts; an empty list of words is one text without words."""
    return is_list(text) and (not is_split_into_words or (len(text) > 0 and is_list(text[0])))


def as_batch(text: Any, text_pair: Any, is_batched: bool, is_split_into_words: bool) -> list[tuple[Any, ...]]:
    """The texts of a call, one or two for each row.

    A batch may also hold pairs: tuples of two texts, or lists of two strings if those are not words.

    Raises:
        ValueError: if `text` is a batch and `text_pair` is not as many texts.
    """
    if not is_batched:
        return [(text,) if text_pair is None else (text, text_pair)]
    if text_pair is None:
        are_pairs = all(_is_pair(each, is_split_into_words) for each in text)
        return [tuple(each) if are_pairs else (each,) for each in text]
    if isinstance(text_pair, str) or len(text) != len(text_pair):
        found = "a string" if isinstance(text_pair, str) else f"{len(text_pair)} for {len(text)}"
        raise ValueError(f"`text_pair` must be a list of as many texts as `text`, found {found}.")
    return [*zip(text, text_pair, strict=True)]


def _is_pair(text: Any, is_split_into_words: bool) -> bool:
    if not isinstance(text, (tuple, list)) or len(text) != 2:
        return False
    if is_split_into_words:
        return isinstance(text, tuple) and not isinstance(text[0], str)
    return isinstance(text, tuple) or all(isinstance(part, str) for part in text)


def to_words(text: Any, is_split_into_words: bool, split: Callable[[str], Any]) -> Words:
    """Splits one text into words with their offsets.

    Raises:
        ValueError: if a raw text is not a string, or a pre-split text is not a list of words.
    """
    if is_split_into_words and not isinstance(text, str) and all(isinstance(word, str) for word in text):
        return Words(list(text), [(0, len(word)) for word in text], range(len(text)))
    if is_split_into_words or not isinstance(text, str):
        legal = "a list of words with `is_split_into_words=True`, a string without"
        raise ValueError(f"a text must be {legal}, found {text!r:.200}.")
    try:
        pieces = split(text)
    except UnicodeEncodeError:
        # Rust rejects lone surrogates. Any other character in their place gives the same offsets.
        places = split(text.encode("utf-8", "replace").decode("utf-8"))
        pieces = [(text[start:end], (start, end)) for _, (start, end) in places]
    return Words([word for word, _ in pieces], [offset for _, offset in pieces], range(len(pieces)))


def truncate(
    texts: Sequence[Words],
    max_length: int,
    strategy: TruncationStrategy,
    side: str,
    boundaries: Sequence[str] | None,
    stride: int | None = None,
) -> list[tuple[Words, ...]]:
    """Drops words from the `"left"` or `"right"` side of one or two texts until they fit with their boundaries.

    With a `stride`, further windows of the same length follow, until no word is left out; each shares `stride` words
    with the one before. Windows of one text are paired with all of the other.

    Raises:
        ValueError: if the only text to shorten has too few words, the boundaries alone do not fit, or the stride is not
            shorter than a window.
    """
    room = max_length - (2 * len(texts) if boundaries else 0)
    if room < 0:
        what = f"the boundaries `{boundaries[0]}` and `{boundaries[1]}`" if boundaries else "words"
        raise ValueError(f"`max_length` = {max_length} leaves no room for {what}.")
    lengths = [len(text.words) for text in texts]
    excess = sum(lengths) - room
    if excess <= 0:
        return [tuple(texts)]
    if len(texts) == 1:
        kept = [room]
    elif strategy == TruncationStrategy.LONGEST_FIRST:
        # The longer text loses words until both are equally long; then they take turns.
        shorter = int(lengths[1] < lengths[0])
        kept = [room, room]
        kept[shorter] = min(lengths[shorter], room // 2)
        kept[1 - shorter] -= kept[shorter]
    else:
        cut = 0 if strategy == TruncationStrategy.ONLY_FIRST else 1
        if lengths[cut] < excess:
            raise ValueError(
                f"`truncation='{strategy.value}'` cannot shorten {lengths[cut]} words by {excess}; "
                "the other text alone is too long for `max_length`."
            )
        kept = [length - excess * (index == cut) for index, length in enumerate(lengths)]
    windows = [_windows(text, size, side, stride) for text, size in zip(texts, kept, strict=True)]
    return [*product(*windows)]


def _windows(text: Words, size: int, side: str, stride: int | None) -> list[Words]:
    length = len(text.words)
    starts = range(1)
    if stride is not None and size < length:
        if not 0 <= stride < size:
            raise ValueError(f"`stride` must be at least 0 and below the {size} words that fit, found {stride}.")
        starts = range(0, length - stride, size - stride)
    parts = [slice(max(length - s - size, 0), length - s) if side == "left" else slice(s, s + size) for s in starts]
    return [Words(text.words[part], text.offsets[part], text.indices[part]) for part in parts]
