"""Maps words to ids of code points from a learned alphabet (ELMoForManyLangs' `create_one_batch`).

A word is cut after C - 2 code points. A word has C character ids, followed by a word id if the model also has word
vectors; a model without characters has only the word id:

    [<eow>] c_1 .. c_n [<bow>] [<pad>] ... [<pad>]   w

The marks are swapped, as in the code that trained these models: a word *begins* with the character named `<eow>`. A
boundary word, `<bos>` or `<eos>`, has a single character between the marks, of the same name. Unknown characters and
unknown words are `<oov>`.

Characters and words share one id space, so each id has one name: 0 is padding, then come the characters, then the
words. The names are `<bos>` and `<eos>`, `c:x` for the other characters and `w:x` for the other words.

Glossary: N words, C characters per word (50 in the published models).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..model.configuration_elmo import PADDING_ID
from .word_codec import PADDING, mark_words, require_names

BOS = "<bos>"
EOS = "<eos>"
UNKNOWN = "<oov>"
FILLER = "<pad>"
BEGIN_WORD = "<eow>"
END_WORD = "<bow>"

CHARACTER = "c:"
WORD = "w:"
NEEDED_CHARACTERS = (BOS, EOS, UNKNOWN, FILLER, BEGIN_WORD, END_WORD)


class CodePointCodec:
    """Maps words to ids of code points `(C,)`, code points and words `(C + 1,)`, or words `()`, and back."""

    boundaries = (BOS, EOS)

    def __init__(self, vocabulary: Mapping[str, int], max_word_length: int, has_characters: bool) -> None:
        """Takes the vocabulary, ids by name, and C; raises ValueError without a required character or word."""
        self.symbols = dict(vocabulary)
        self.max_word_length = max_word_length
        self._characters, self._words = (
            {name[len(prefix) :]: symbol_id for name, symbol_id in vocabulary.items() if name.startswith(prefix)}
            for prefix in (CHARACTER, WORD)
        )
        boundary_ids = {name: vocabulary[name] for name in self.boundaries if name in vocabulary}
        (self._characters if has_characters else self._words).update(boundary_ids)
        has_words = bool(self._words) or not has_characters
        if has_characters:
            require_names(self._characters, NEEDED_CHARACTERS)
        if has_words:
            require_names(self._words, (UNKNOWN,) if has_characters else (UNKNOWN, *self.boundaries))
        self._boundary_ids = list(boundary_ids.values())
        self._names = {symbol_id: name for name, symbol_id in (self._characters | {PADDING: PADDING_ID}).items()}
        self._word_names = {word_id: word for word, word_id in self._words.items()}
        self.id_shape: tuple[int, ...] = (max_word_length + has_words,) if has_characters else ()

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to int32 ids `(N, *id_shape)`."""
        words = [word if word in self.boundaries else word[: self.max_word_length - 2] for word in words]
        unknown = self._words.get(UNKNOWN, 0)
        word_ids = np.array([self._words.get(word, unknown) for word in words], dtype=np.int32)
        if not self.id_shape:
            return word_ids
        ids = self._character_ids(words)
        return np.concatenate([ids, word_ids[:, None]], axis=1) if self._words else ids

    def decode(self, ids: np.ndarray) -> str:
        """Maps ids back to the word; an unknown word is spelled from its characters, with U+FFFD for `<oov>`."""
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
        inner = [int(each) for each in ids[: self.max_word_length] if int(each) not in marks]
        return "".join("�" if each == self._characters[UNKNOWN] else self._names.get(each, "�") for each in inner)

    def is_special(self, ids: np.ndarray) -> np.ndarray:
        """Maps ids `(N, *id_shape)` to `(N,)`, True on boundaries and padding."""
        if not self.id_shape:
            return np.isin(ids, [PADDING_ID, *self._boundary_ids])
        return np.isin(ids[:, 1], self._boundary_ids) | ~ids.any(axis=1)

    def _character_ids(self, words: Sequence[str]) -> np.ndarray:
        """Character ids `(N, C)` of words of at most C - 2 code points, or boundaries."""
        letters = ["" if word in self.boundaries else word for word in words]
        points = np.frombuffer("".join(letters).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        distinct, which = np.unique(points, return_inverse=True)
        unknown = self._characters[UNKNOWN]
        flat = np.array([self._characters.get(chr(point), unknown) for point in distinct], dtype=np.int32)[which]
        begin, end, filler = (self._characters[name] for name in (BEGIN_WORD, END_WORD, FILLER))
        ids = mark_words(flat, [*map(len, letters)], self.max_word_length, (begin, end, filler))
        for index in [index for index, word in enumerate(words) if word in self.boundaries]:
            ids[index, 1:3] = self._characters[words[index]], end
        return ids
