"""The texts of a tokenizer call: their words, truncation, and where each position of an encoded text comes from.

A call takes one text or a batch. A text is a string or a list of words, alone or paired with a second text. A position
is a word, a boundary or padding:

    [padding] <S> w_1 .. w_n </S> [<S> w_1 .. w_m </S>] [padding]

`BatchEncoding` reads word ids, offsets and the maps between positions, words and characters from a `WordEncoding`, as
it does from a Rust `tokenizers.Encoding`. The Rust class cannot be used: it needs a vocabulary of all words, splits
given words again, drops empty words and rejects lone surrogates.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from transformers.tokenization_utils_base import TruncationStrategy

from ..model.configuration_elmo import require
from .word_codec import PADDING, is_list


class Words(NamedTuple):
    """The words of one text."""

    words: list[str]
    offsets: list[tuple[int, int]]  # start and end, in characters of the text, or of the word itself if pre-split
    indices: range  # of the words in the text before truncation


class Position(NamedTuple):
    """One position; `text` (0 or 1) and `word_index` are None on added boundaries and padding."""

    word: str
    offset: tuple[int, int] = (0, 0)
    text: int | None = None
    word_index: int | None = None
    type_id: int = 0


def is_batch(text: Any, is_split_into_words: bool) -> bool:
    """Whether a call's `text` is several texts; an empty list of words is one text without words."""
    return is_list(text) and (not is_split_into_words or (len(text) > 0 and is_list(text[0])))


def as_batch(text: Any, text_pair: Any, is_batched: bool, is_split_into_words: bool) -> list[tuple[Any, ...]]:
    """The texts of a call, one or two for each row.

    A batch may also hold pairs: tuples of two texts, or lists of two strings if those are not words.
    """
    if not is_batched:
        return [(text,) if text_pair is None else (text, text_pair)]
    if text_pair is None:
        are_pairs = all(_is_pair(each, is_split_into_words) for each in text)
        return [tuple(each) if are_pairs else (each,) for each in text]
    return [*zip(text, text_pair, strict=True)]


def _is_pair(text: Any, is_split_into_words: bool) -> bool:
    if not isinstance(text, (tuple, list)) or len(text) != 2:
        return False
    if is_split_into_words:
        return isinstance(text, tuple) and not isinstance(text[0], str)
    return isinstance(text, tuple) or all(isinstance(part, str) for part in text)


def to_words(text: Any, is_split_into_words: bool, split: Callable[[str], Any]) -> Words:
    """Splits a string, or takes a list of words; raises ValueError for anything else."""
    if is_split_into_words and not isinstance(text, str) and all(isinstance(word, str) for word in text):
        return Words(list(text), [(0, len(word)) for word in text], range(len(text)))
    legal = "a list of words with `is_split_into_words=True`, a string without"
    require(not is_split_into_words and isinstance(text, str), "text", legal, text)
    try:
        pieces = split(text)
    except UnicodeEncodeError:
        # Rust rejects lone surrogates; with another character in their place the offsets are the same.
        places = split(text.encode("utf-8", "replace").decode("utf-8"))
        pieces = [(text[start:end], (start, end)) for _, (start, end) in places]
    return Words([word for word, _ in pieces], [offset for _, offset in pieces], range(len(pieces)))


def truncate(
    texts: Sequence[Words], room: int, strategy: TruncationStrategy, side: str, stride: int | None = None
) -> list[tuple[Words, ...]]:
    """Drops words on the `"left"` or `"right"` side of one or two texts until `room` words remain.

    With a `stride`, further windows of the same length follow until all words are in one; each shares `stride` words
    with the one before. In a pair, each window of one text comes with the whole other text.

    Raises:
        ValueError: if a text to shorten has too few words, or a window would have no room for words of its own.
    """
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
        kept = [length - excess * (index == cut) for index, length in enumerate(lengths)]
    return [*product(*(_windows(text, size, side, stride) for text, size in zip(texts, kept, strict=True)))]


def _windows(text: Words, size: int, side: str, stride: int | None) -> list[Words]:
    length = len(text.words)
    starts = range(1)
    if size < length:
        least = 0 if stride is None else stride + 1
        require(size >= least, "max_length", f"room for {least} words of a text, beside boundaries and the other", size)
        starts = starts if stride is None else range(0, length - stride, size - stride)
    parts = [slice(max(length - s - size, 0), length - s) if side == "left" else slice(s, s + size) for s in starts]
    return [Words(text.words[part], text.offsets[part], text.indices[part]) for part in parts]


def _column(value: Callable[[Position], Any], doc: str) -> Any:
    return property(lambda encoding: [value(position) for position in encoding.positions], doc=doc)


class WordEncoding:
    """An encoded text or pair, with the methods of `tokenizers.Encoding`, which return None if there is no answer.

    Deliberate difference from Rust: positions are computed on first use.
    """

    def __init__(self, texts: tuple[Words, ...], boundaries: tuple[str, str] | None) -> None:
        """Takes one or two texts, and the words to put around each text, or None for no words."""
        self.texts = texts
        self.n_sequences = len(texts)
        self.boundaries = boundaries
        self.padding = 0
        self.padding_side = "right"
        # The words and boundaries in order, without padding.
        self.flat_words: list[str] = []
        for text in texts:
            self.flat_words += text.words if boundaries is None else [boundaries[0], *text.words, boundaries[1]]

    def __len__(self) -> int:
        return len(self.flat_words) + self.padding

    @cached_property
    def positions(self) -> list[Position]:
        """Every position, including padding."""
        positions = []
        for text, (words, offsets, indices) in enumerate(self.texts):
            parts = zip(words, offsets, indices, strict=True)
            inner = [Position(word, offset, text, index, text) for word, offset, index in parts]
            if self.boundaries is not None:
                begin, end = self.boundaries
                inner = [Position(begin, type_id=text), *inner, Position(end, type_id=text)]
            positions += inner
        pads = [Position(PADDING)] * self.padding
        return pads + positions if self.padding_side == "left" else positions + pads

    tokens = _column(lambda at: at.word, "The word at each position.")
    words = word_ids = _column(lambda at: at.word_index, "The word's index in its text at each position.")
    sequence_ids = _column(lambda at: at.text, "0 or 1 at each position, for the first or second text.")
    type_ids = _column(lambda at: at.type_id, "As `sequence_ids`, but boundaries count to their text and padding is 0.")
    offsets = _column(lambda at: at.offset, "Each word's (start, end) in characters, (0, 0) on boundaries and padding.")
    special_tokens_mask = _column(lambda at: int(at.text is None), "1 on added boundaries and padding.")

    def token_to_sequence(self, token_index: int) -> int | None:
        """The text of a position, 0 or 1."""
        return self.positions[token_index].text

    def token_to_word(self, token_index: int) -> int | None:
        """The word's index in its text."""
        return self.positions[token_index].word_index

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Start and end of a position's word, in characters."""
        position = self.positions[token_index]
        return None if position.text is None else position.offset

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """The position of a word, and the next position."""
        word = (sequence_index, word_index)
        return next(((i, i + 1) for i, at in enumerate(self.positions) if (at.text, at.word_index) == word), None)

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Start and end of a word, in characters."""
        span = self.word_to_tokens(word_index, sequence_index)
        return None if span is None else self.positions[span[0]].offset

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The position of the word that holds a character of the text."""
        found = (
            i
            for i, at in enumerate(self.positions)
            if at.text == sequence_index and at.offset[0] <= char_pos < at.offset[1]
        )
        return next(found, None)

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The index of the word that holds a character of the text."""
        place = self.char_to_token(char_pos, sequence_index)
        return None if place is None else self.positions[place].word_index
