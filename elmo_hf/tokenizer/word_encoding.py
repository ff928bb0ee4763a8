"""Where each position of an encoded text comes from, with the interface of the Rust `tokenizers.Encoding`.

`BatchEncoding` asks this object for word ids, offsets and the maps between positions, words and characters. A position
is a word, a boundary or padding; a second text may follow the first:

    [padding] <S> w_1 .. w_n </S> [<S> w_1 .. w_m </S>] [padding]

Deliberate difference from Rust: positions are computed when first asked for.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from .word_codec import PADDING


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
    attention: int = 1


def _column(value: Callable[[Position], Any], doc: str) -> Any:
    return property(lambda encoding: [value(position) for position in encoding.positions], doc=doc)


class WordEncoding:
    """An encoded text or pair of texts; names are those of `tokenizers.Encoding`, and None marks what has no answer."""

    overflowing: tuple["WordEncoding", ...] = ()

    def __init__(self, texts: tuple[Words, ...], boundaries: tuple[str, str] | None) -> None:
        """Takes one or two texts, and the words to put around each, or None."""
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
        pads = [Position(PADDING, attention=0)] * self.padding
        return pads + positions if self.padding_side == "left" else positions + pads

    tokens = _column(lambda at: at.word, "The word at each position.")
    words = word_ids = _column(lambda at: at.word_index, "The word's index in its text at each position.")
    sequence_ids = _column(lambda at: at.text, "0 or 1 at each position, for the first or second text.")
    type_ids = _column(lambda at: at.type_id, "As `sequence_ids`, but boundaries count to their text and padding is 0.")
    offsets = _column(lambda at: at.offset, "Each word's (start, end) in characters, (0, 0) on boundaries and padding.")
    attention_mask = _column(lambda at: at.attention, "0 on padding.")
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
        for i, at in enumerate(self.positions):
            if at.text == sequence_index and at.offset[0] <= char_pos < at.offset[1]:
                return i
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The index of the word that holds a character of the text."""
        place = self.char_to_token(char_pos, sequence_index)
        return None if place is None else self.positions[place].word_index
