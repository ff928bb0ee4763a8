"""Words to ids and back: the row of character ids of a word, or its number in a vocabulary.

A word's row has C ids (bilm-tf's `UnicodeCharsVocabulary`, AllenNLP's `ELMoCharacterMapper`):

    [begin word] utf8(word)[: C - 2] [end word] [filler] ... [filler]

where byte b has id b + 1, so that 0 is left for positions without a word, C zeros each. A word is cut after C - 2
*bytes*, possibly inside a character; nothing is normalised. The words `<S>` and `</S>` have rows of their own, with
one id above all bytes between the two marks.

Glossary: N words, C characters per word (50 in the published models).
"""

from collections.abc import Mapping, Sequence

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

_BOUNDARY_IDS = {BEGIN_SENTENCE: BEGIN_SENTENCE_ID, END_SENTENCE: END_SENTENCE_ID}
_BOUNDARIES = {boundary_id: word for word, boundary_id in _BOUNDARY_IDS.items()}


class CharacterCodec:
    """Words to rows of character ids and back.

    Attributes:
        id_shape: `(C,)`, the shape of one word's ids.
        boundaries: the two words that stand around a text.
        symbols: a name for each single id, `<pad>`, `<S>` and `</S>` among them.
    """

    boundaries = (BEGIN_SENTENCE, END_SENTENCE)

    def __init__(self, max_word_length: int) -> None:
        """`max_word_length` is C, the two marks included."""
        self.id_shape: tuple[int, ...] = (max_word_length,)
        self.symbols = {PADDING: PADDING_ID}
        self.symbols |= {f"<0x{byte:02X}>": byte + 1 for byte in range(256)} | _BOUNDARY_IDS
        self.symbols |= {"<W>": BEGIN_WORD_ID, "</W>": END_WORD_ID, "<filler>": FILLER_ID}

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N, C)` int16 ids, all words at once.

        Lone surrogates vanish (`"ignore"`), as in AllenNLP; an empty word is its two marks.
        """
        (length,) = self.id_shape
        encoded = [word.encode("utf-8", "ignore")[: length - 2] for word in words]
        num_bytes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        rows = np.full((len(encoded), length), FILLER_ID, dtype=np.int16)
        rows[:, 0] = BEGIN_WORD_ID
        # Row by row, the places of the bytes are taken in the order of the joined bytes.
        is_byte = np.arange(length - 1) < num_bytes[:, None]
        rows[:, 1:][is_byte] = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16) + 1
        rows[np.arange(len(encoded)), num_bytes + 1] = END_WORD_ID
        for index in [index for index, word in enumerate(words) if word in _BOUNDARY_IDS]:
            rows[index] = self._boundary_row(_BOUNDARY_IDS[words[index]])
        return rows

    def decode(self, row: np.ndarray) -> str:
        """Maps one word's ids `(C,)` back; bytes that a cut left incomplete become U+FFFD."""
        if not row.any():
            return PADDING
        if len(row) > 1 and int(row[1]) in _BOUNDARIES:
            return _BOUNDARIES[int(row[1])]
        is_byte = (row >= 1) & (row <= 256)
        return bytes((row[is_byte] - 1).astype(np.uint8)).decode("utf-8", "replace")

    def is_special(self, rows: np.ndarray) -> np.ndarray:
        """Maps `(N, C)` ids to `(N,)`, True on boundaries and on padding."""
        return np.isin(rows[:, 1], list(_BOUNDARIES)) | ~rows.any(axis=1)

    def _boundary_row(self, boundary_id: int) -> np.ndarray:
        row = np.full(self.id_shape, FILLER_ID, dtype=np.int16)
        row[:3] = BEGIN_WORD_ID, boundary_id, END_WORD_ID
        return row


class VocabularyCodec:
    """Words to their numbers in a vocabulary and back, for biLMs with a word embedding.

    Attributes:
        id_shape: `()`, since one word has one id.
        boundaries: the two words that stand around a text.
        symbols: the vocabulary itself.
    """

    id_shape: tuple[int, ...] = ()
    boundaries = (BEGIN_SENTENCE, END_SENTENCE)

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        """`vocabulary` maps words to ids, `<pad>` to 0; `<S>`, `</S>` and `<UNK>` must be in it.

        Raises:
            ValueError: if one of them is missing.
        """
        missing = [word for word in (PADDING, BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD) if word not in vocabulary]
        if missing:
            raise ValueError(f"the vocabulary lacks {', '.join(missing)}; every vocabulary of an ELMo needs them.")
        self.symbols = dict(vocabulary)
        self._words = {word_id: word for word, word_id in vocabulary.items()}
        # The text "<pad>" is a word like any other; id 0 means that there is no word.
        self._ids = {word: word_id for word, word_id in vocabulary.items() if word_id != PADDING_ID}

    @property
    def lines(self) -> list[str]:
        """The vocabulary file, one word a line in the order of the ids; an id that is nobody's gets a name."""
        return [self._words.get(word_id, f"<unused{word_id}>") for word_id in range(1, max(self._words) + 1)]

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N,)` int64 ids; a word outside the vocabulary becomes `<UNK>`."""
        unknown = self._ids[UNKNOWN_WORD]
        return np.array([self._ids.get(word, unknown) for word in words], dtype=np.int64)

    def decode(self, word_id: np.ndarray) -> str:
        """Maps one id back to its word; the id of an earlier duplicate line is nobody's and becomes `<UNK>`."""
        return self._words.get(int(word_id), UNKNOWN_WORD)

    def is_special(self, word_ids: np.ndarray) -> np.ndarray:
        """Maps `(N,)` ids to `(N,)`, True on boundaries and on padding."""
        return np.isin(word_ids, [PADDING_ID, self.symbols[BEGIN_SENTENCE], self.symbols[END_SENTENCE]])


def read_vocabulary(lines: Sequence[str]) -> dict[str, int]:
    """Numbers the words of a bilm-tf vocabulary file, one a line, from 1; 0 is `<pad>`.

    Source: bilm-tf's `Vocabulary`: of a word that occurs twice the later line counts, and both keep their number;
    a `!!!MAXTERMID` line is not a word.
    """
    words = [line.strip() for line in lines]
    numbered = enumerate((word for word in words if word != "!!!MAXTERMID"), start=1)
    return {word: number for number, word in numbered} | {PADDING: PADDING_ID}
