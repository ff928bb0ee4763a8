"""Maps words to ids and back: to C character ids, or to one id from a vocabulary.

A word has C character ids (bilm-tf's `UnicodeCharsVocabulary`, AllenNLP's `ELMoCharacterMapper`):

    [begin word] utf8(word)[: C - 2] [end word] [filler] ... [filler]

Byte b has id b + 1; a padding position has C zeros. A word is cut after C - 2 *bytes*, possibly inside a character, and
is never normalised. `<S>` and `</S>` have one id each, above all bytes, between the two marks; so have reserved words,
such as `[MASK]`, for which models are trained (AllenNLP's `tokens_to_add`).

Every codec has `id_shape`, the shape of one word's ids; `boundaries`, the words before and after a text; and `symbols`,
single ids by name, including padding and boundaries.

Glossary: N words, C characters per word (50 in the published models).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeGuard

import numpy as np

from ..model.configuration_elmo import (
    BEGIN_SENTENCE_ID,
    BEGIN_WORD_ID,
    END_SENTENCE_ID,
    END_WORD_ID,
    FILLER_ID,
    PADDING_ID,
)

PADDING = "<pad>"
BEGIN_SENTENCE = "<S>"
END_SENTENCE = "</S>"
UNKNOWN_WORD = "<UNK>"
SPECIAL_WORDS = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD)  # in the vocabulary of every softmax

_BOUNDARY_IDS = {BEGIN_SENTENCE: BEGIN_SENTENCE_ID, END_SENTENCE: END_SENTENCE_ID}


def is_list(value: object) -> TypeGuard[Sequence]:
    """Whether a value is a sequence other than a string."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def mark_words(flat: np.ndarray, lengths: list[int], num_characters: int, marks: tuple[int, int, int]) -> np.ndarray:
    """Makes ids `(N, C)` from the joined characters of N words and the begin, end and filler marks."""
    begin, end, filler = marks
    num = np.array(lengths, dtype=np.int64)
    ids = np.full((len(num), num_characters), filler, dtype=flat.dtype)
    ids[:, 0] = begin
    # Boolean indexing visits the places row by row, in the order of `flat`.
    ids[:, 1:][np.arange(num_characters - 1) < num[:, None]] = flat
    ids[np.arange(len(num)), num + 1] = end
    return ids


class CharacterCodec:
    """Maps words to character ids and back."""

    boundaries = (BEGIN_SENTENCE, END_SENTENCE)

    def __init__(self, max_word_length: int, reserved: Mapping[str, int] | None = None) -> None:
        """Takes C, which counts the two marks, and the id of each reserved word."""
        self.id_shape: tuple[int, ...] = (max_word_length,)
        self.reserved = {**(reserved or {})}
        self.symbols = {PADDING: PADDING_ID}
        self.symbols |= {f"<0x{byte:02X}>": byte + 1 for byte in range(256)} | _BOUNDARY_IDS
        self.symbols |= {"<W>": BEGIN_WORD_ID, "</W>": END_WORD_ID, "<filler>": FILLER_ID}

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N, C)` int16 ids; drops lone surrogates, as AllenNLP does."""
        (length,) = self.id_shape
        encoded = [word.encode("utf-8", "ignore")[: length - 2] for word in words]
        flat = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16) + 1
        ids = mark_words(flat, [*map(len, encoded)], length, (BEGIN_WORD_ID, END_WORD_ID, FILLER_ID))
        single = _BOUNDARY_IDS | self.reserved
        for index in [index for index, word in enumerate(words) if word in single]:
            ids[index] = FILLER_ID
            ids[index, :3] = BEGIN_WORD_ID, single[words[index]], END_WORD_ID
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """Maps ids `(C,)` back to the word; a character cut in the middle becomes U+FFFD."""
        if not ids.any():
            return PADDING
        names = {single_id: word for word, single_id in (_BOUNDARY_IDS | self.reserved).items()}
        if len(ids) > 2 and ids[2] == END_WORD_ID and int(ids[1]) in names:
            return names[int(ids[1])]
        is_byte = (ids >= 1) & (ids <= 256)
        return bytes((ids[is_byte] - 1).astype(np.uint8)).decode("utf-8", "replace")

    def is_special(self, ids: np.ndarray) -> np.ndarray:
        """Maps ids `(N, C)` to `(N,)`, True on boundaries and padding."""
        return np.isin(ids[:, 1], list(_BOUNDARY_IDS.values())) | ~ids.any(axis=1)


class VocabularyCodec:
    """Maps words to vocabulary ids and back, for biLMs with a word embedding."""

    id_shape: tuple[int, ...] = ()
    boundaries = (BEGIN_SENTENCE, END_SENTENCE)

    def __init__(self, vocabulary: dict[str, int]) -> None:
        """Takes ids by word, with `<pad>` at 0; raises ValueError without `<pad>`, `<S>`, `</S>` or `<UNK>`."""
        require_names(vocabulary, (PADDING, BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD))
        self.symbols = vocabulary
        self._words = {word_id: word for word, word_id in vocabulary.items()}

    @classmethod
    def of_file(cls, path: str | None) -> "VocabularyCodec | None":
        """The codec of a vocabulary file, None for None; raises ValueError if the file is incomplete or not UTF-8."""
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8-sig") as lines:
                return cls(read_vocabulary(lines))
        except ValueError as error:
            raise ValueError(f"{path} must be a vocabulary in UTF-8: {error}") from error

    @property
    def lines(self) -> list[str]:
        """The words in id order from 1, as in a vocabulary file; unassigned ids get a placeholder."""
        return [self._words.get(word_id, f"<unused{word_id}>") for word_id in range(1, max(self._words) + 1)]

    @cached_property
    def is_lower_case(self) -> bool:
        """Whether only special words have upper-case letters; words are then looked up in lower case."""
        return all(word in (*self.boundaries, UNKNOWN_WORD) or word == word.lower() for word in self.symbols)

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N,)` int64 ids; unknown words become `<UNK>`."""
        unknown = self.symbols[UNKNOWN_WORD]
        # The text "<pad>" is an ordinary word; id 0 means padding.
        return np.array([self.symbols.get(word, unknown) or unknown for word in words], dtype=np.int64)

    def decode(self, word_id: np.ndarray) -> str:
        """Maps an id back to its word; an unassigned id (an earlier duplicate line) becomes `<UNK>`."""
        return self._words.get(int(word_id), UNKNOWN_WORD)

    def is_special(self, word_ids: np.ndarray) -> np.ndarray:
        """Maps ids `(N,)` to `(N,)`, True on boundaries and padding."""
        return np.isin(word_ids, [PADDING_ID, self.symbols[BEGIN_SENTENCE], self.symbols[END_SENTENCE]])


def read_vocabulary(lines: Iterable[str]) -> dict[str, int]:
    """Assigns ids from 1 to the words of a vocabulary file, one per line; 0 is `<pad>`.

    Source: bilm-tf's `Vocabulary`. Each line has an id, and a repeated word has the id of its last line; a line
    `!!!MAXTERMID` is not a word.
    """
    words = (word for word in map(str.strip, lines) if word != "!!!MAXTERMID")
    vocabulary = {word: i for i, word in enumerate(words, 1)}
    vocabulary[PADDING] = PADDING_ID
    return vocabulary


def require_names(vocabulary: Mapping[str, int], needed: Iterable[str]) -> None:
    """Raises ValueError if a vocabulary, ids by name, lacks a name that every model needs."""
    missing = [name for name in needed if name not in vocabulary]
    if missing:
        raise ValueError(f"the vocabulary lacks {', '.join(missing)}, which every ELMo needs.")
