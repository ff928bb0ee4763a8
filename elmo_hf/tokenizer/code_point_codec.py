"""Words to ids where characters are code points of a learned alphabet (ELMoForManyLangs' `create_one_batch`).

A word is cut after C - 2 code points. Its row has C ids of characters, and one of the word where the model has word
vectors beside its characters; a model without characters has the id of the word alone:

    [<eow>] c_1 .. c_n [<bow>] [<pad>] ... [<pad>]   w

The marks are exchanged, as in the code that trained these models: a row *begins* with the character named `<eow>`. The
words `<bos>` and `<eos>`, which stand around a text, have the one character of that name between the marks. What the
alphabet lacks is `<oov>`, and so is a word that the vocabulary lacks.

All ids are of one space, so that each has one name: 0 is a position without a word, then come the characters, then the
words. `name_symbols` names them: `<bos>` and `<eos>` plainly, the other characters `c:x`, the other words `w:x`.

Glossary: N words, C characters per word (50 in the published models).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..model.configuration_elmo import PADDING_ID
from .word_codec import PADDING

BOS = "<bos>"
EOS = "<eos>"
UNKNOWN = "<oov>"
FILLER = "<pad>"
# Exchanged, as in ELMoForManyLangs' `create_one_batch`.
BEGIN_WORD = "<eow>"
END_WORD = "<bow>"

CHARACTER = "c:"
WORD = "w:"
NEEDED_CHARACTERS = (BOS, EOS, UNKNOWN, FILLER, BEGIN_WORD, END_WORD)
NEEDED_WORDS = (UNKNOWN,)


def name_symbols(characters: Mapping[str, int], words: Mapping[str, int], num_characters: int) -> dict[str, int]:
    """Names every id, for the vocabulary of a tokenizer.

    Args:
        characters: rows of the characters in their table, from 0; empty if the model has none.
        words: rows of the words in theirs; empty if the model has none.
        num_characters: rows of the table of characters, 0 if there is none.

    Returns:
        ids by name.
    """
    symbols = {WORD + word: 1 + num_characters + row for word, row in words.items()}
    symbols |= {CHARACTER + character: 1 + row for character, row in characters.items()}
    prefix = CHARACTER if characters else WORD
    for boundary in (BOS, EOS):
        if prefix + boundary in symbols:
            symbols[boundary] = symbols.pop(prefix + boundary)
    return symbols | {PADDING: PADDING_ID}


class CodePointCodec:
    """Words to ids of code points, of words, or of both, and back.

    Attributes:
        id_shape: `(C,)`, `(C + 1,)` with words beside the characters, or `()` for words alone.
        boundaries: the two words that stand around a text.
        symbols: a name for each single id.
    """

    boundaries = (BOS, EOS)

    def __init__(self, vocabulary: Mapping[str, int], max_word_length: int, has_characters: bool) -> None:
        """Takes ids by the names that `name_symbols` gives, and C.

        Raises:
            ValueError: if a character or word that every such model has is missing.
        """
        self.symbols = dict(vocabulary)
        self.max_word_length = max_word_length
        self._characters = _named(vocabulary, CHARACTER)
        self._words = _named(vocabulary, WORD)
        boundary_ids = {name: vocabulary[name] for name in self.boundaries if name in vocabulary}
        (self._characters if has_characters else self._words).update(boundary_ids)
        missing = [f"character {name}" for name in NEEDED_CHARACTERS if has_characters and name not in self._characters]
        has_words = bool(self._words) or not has_characters
        needed_words = NEEDED_WORDS if has_characters else NEEDED_WORDS + self.boundaries
        missing += [f"word {name}" for name in needed_words if has_words and name not in self._words]
        if missing:
            raise ValueError(f"the vocabulary of code points lacks {', '.join(missing)}.")
        self._boundary_ids = list(boundary_ids.values())
        self._names = {symbol_id: name for name, symbol_id in (self._characters | {PADDING: PADDING_ID}).items()}
        self._word_names = {word_id: word for word, word_id in self._words.items()}
        self.id_shape: tuple[int, ...] = (max_word_length + has_words,) if has_characters else ()

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to int32 ids `(N, *id_shape)`, all words at once."""
        length = self.max_word_length
        words = [word if word in self.boundaries else word[: length - 2] for word in words]
        unknown = self._words.get(UNKNOWN, 0)
        word_ids = np.array([self._words.get(word, unknown) for word in words], dtype=np.int32)
        if not self.id_shape:
            return word_ids
        rows = self._character_rows(words)
        return np.concatenate([rows, word_ids[:, None]], axis=1) if self._words else rows

    def decode(self, ids: np.ndarray) -> str:
        """Maps one word's ids back: the word itself where it is known, else its characters with U+FFFD for `<oov>`."""
        if not np.any(ids):
            return PADDING
        last = int(ids.flat[-1])
        if self._words and last != self._words[UNKNOWN]:
            return self._word_names.get(last, UNKNOWN)
        if not self.id_shape:
            return UNKNOWN
        if int(ids[1]) in self._boundary_ids:
            return self._names[int(ids[1])]
        marks = {self._characters[name] for name in (BEGIN_WORD, END_WORD, FILLER)}
        inner = [int(number) for number in ids[: self.max_word_length] if int(number) not in marks]
        return "".join("�" if number == self._characters[UNKNOWN] else self._names.get(number, "�") for number in inner)

    def is_special(self, ids: np.ndarray) -> np.ndarray:
        """Maps ids `(N, *id_shape)` to `(N,)`, True on boundaries and on padding."""
        if not self.id_shape:
            return np.isin(ids, [PADDING_ID, *self._boundary_ids])
        return np.isin(ids[:, 1], self._boundary_ids) | ~ids.any(axis=1)

    def _character_rows(self, words: Sequence[str]) -> np.ndarray:
        """`(N, C)` ids of the characters of words that are short enough."""
        is_boundary = [word in self.boundaries for word in words]
        letters = ["" if skip else word for word, skip in zip(words, is_boundary, strict=True)]
        lengths = np.fromiter(map(len, letters), dtype=np.int64, count=len(letters))
        rows = np.full((len(words), self.max_word_length), self._characters[FILLER], dtype=np.int32)
        rows[:, 0] = self._characters[BEGIN_WORD]
        # Row by row, the places of the characters are taken in the order of the joined text.
        is_character = np.arange(self.max_word_length - 1) < lengths[:, None]
        points = np.frombuffer("".join(letters).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        distinct, which = np.unique(points, return_inverse=True)
        unknown = self._characters[UNKNOWN]
        ids = np.array([self._characters.get(chr(point), unknown) for point in distinct], dtype=np.int32)
        rows[:, 1:][is_character] = ids[which]
        rows[np.arange(len(words)), lengths + 1] = self._characters[END_WORD]
        for index in np.flatnonzero(is_boundary).tolist():
            rows[index, 1:3] = self._characters[words[index]], self._characters[END_WORD]
        return rows


def _named(vocabulary: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name[len(prefix) :]: symbol_id for name, symbol_id in vocabulary.items() if name.startswith(prefix)}
