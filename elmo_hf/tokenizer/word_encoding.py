"""Where each position of an encoded text comes from, in the interface of the Rust `tokenizers.Encoding`.

`BatchEncoding` asks such an object for `word_ids`, offsets and the maps between positions, words and characters of
the text. A position of an ELMo text is one word, or a boundary, or padding:

    [padding] <S> w_1 .. w_n </S> [<S> w_1 .. w_m </S>] [padding]          with a second text in brackets

Deliberate difference from Rust: nothing is computed until it is asked for.
"""

from functools import cached_property
from typing import NamedTuple

from .word_codec import BEGIN_SENTENCE, END_SENTENCE, PADDING


class Words(NamedTuple):
    """The words of one text.

    Attributes:
        words: n strings.
        offsets: n pairs, start and end of each word in characters of its text (of the word itself if pre-split).
        numbers: n indices of the words in the text before truncation.
    """

    words: list[str]
    offsets: list[tuple[int, int]]
    numbers: range

    def cut(self, num_words: int, side: str) -> "Words":
        """Takes `num_words` words off the `"left"` or `"right"` side."""
        kept = slice(num_words, None) if side == "left" else slice(0, max(len(self.words) - num_words, 0))
        return Words(self.words[kept], self.offsets[kept], self.numbers[kept])


class Position(NamedTuple):
    """What stands at one position."""

    word: str
    offset: tuple[int, int] = (0, 0)
    sequence: int | None = None
    number: int | None = None
    type_id: int = 0
    is_padding: bool = False


class WordEncoding:
    """One encoded text, or pair of texts; method and attribute names are those of `tokenizers.Encoding`."""

    overflowing: tuple["WordEncoding", ...] = ()

    def __init__(
        self,
        sequences: tuple[Words, ...],
        has_boundaries: bool,
        padding: int = 0,
        padding_side: str = "right",
        boundaries: tuple[str, str] = (BEGIN_SENTENCE, END_SENTENCE),
    ) -> None:
        """Describes one or two texts, with or without the `boundaries`, and `padding` positions on one side."""
        self.sequences = sequences
        self.has_boundaries = has_boundaries
        self.boundaries = boundaries
        self.padding = padding
        self.padding_side = padding_side

    def __len__(self) -> int:
        """Number of positions, padding included."""
        return self.num_words + self.padding

    @property
    def num_words(self) -> int:
        """Number of positions without padding."""
        return sum(len(sequence.words) + 2 * self.has_boundaries for sequence in self.sequences)

    @property
    def n_sequences(self) -> int:
        """1, or 2 for a pair of texts."""
        return len(self.sequences)

    @property
    def flat_words(self) -> list[str]:
        """The words in order, boundaries among them, without padding."""
        flat: list[str] = []
        begin, end = self.boundaries
        for sequence in self.sequences:
            flat += [begin, *sequence.words, end] if self.has_boundaries else sequence.words
        return flat

    @cached_property
    def positions(self) -> list[Position]:
        """Every position, padding included."""
        positions = []
        begin, end = self.boundaries
        for index, (words, offsets, numbers) in enumerate(self.sequences):
            inner = [
                Position(word, offset, index, number, index)
                for word, offset, number in zip(words, offsets, numbers, strict=True)
            ]
            if self.has_boundaries:
                inner = [Position(begin, type_id=index), *inner, Position(end, type_id=index)]
            positions += inner
        pads = [Position(PADDING, is_padding=True)] * self.padding
        return pads + positions if self.padding_side == "left" else positions + pads

    @property
    def tokens(self) -> list[str]:
        """The word at each position."""
        return [position.word for position in self.positions]

    @property
    def words(self) -> list[int | None]:
        """The word's number in its text at each position, None on boundaries and padding."""
        return [position.number for position in self.positions]

    word_ids = words

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 or 1 at each position, None on boundaries and padding."""
        return [position.sequence for position in self.positions]

    @property
    def type_ids(self) -> list[int]:
        """0 or 1 at each position, that of the text on its boundaries, 0 on padding."""
        return [position.type_id for position in self.positions]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each position's word in characters, (0, 0) on boundaries and padding."""
        return [position.offset for position in self.positions]

    @property
    def attention_mask(self) -> list[int]:
        """1 at each position but padding."""
        return [int(not position.is_padding) for position in self.positions]

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 on added boundaries and padding."""
        return [int(position.sequence is None) for position in self.positions]

    def token_to_sequence(self, token_index: int) -> int | None:
        """The text of a position, 0 or 1."""
        return self.positions[token_index].sequence

    def token_to_word(self, token_index: int) -> int | None:
        """The word's number in its text."""
        return self.positions[token_index].number

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Start and end of a position's word in characters of its text."""
        position = self.positions[token_index]
        return None if position.sequence is None else position.offset

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """First position of a word and the position after it."""
        for index, position in enumerate(self.positions):
            if position.sequence == sequence_index and position.number == word_index:
                return index, index + 1
        return None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Start and end of a word in characters of its text."""
        span = self.word_to_tokens(word_index, sequence_index)
        return None if span is None else self.positions[span[0]].offset

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The position whose word holds a character of the text, None between words."""
        for index, position in enumerate(self.positions):
            start, end = position.offset
            if position.sequence == sequence_index and start <= char_pos < end:
                return index
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The number of the word that holds a character of the text, None between words."""
        index = self.char_to_token(char_pos, sequence_index)
        return None if index is None else self.positions[index].number
