# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""The ELMo tokenizer: text to words, words to rows of ids (Peters et al. 2018, §3.4; AllenNLP's `batch_to_ids`).

    text -> word splitter -> words -> codec -> ids (T, C) or (T,) -> padding -> (B, T, C) or (B, T)

From top to bottom: the word splitter, the codecs of bytes, words and code points, the texts of a call, padding, and the
class `ElmoTokenizer`. Each section has the glossary that it needs.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy
from transformers.utils import TensorType, is_torch_available, is_torch_tensor, logging

from .configuration_elmo import (
    BEGIN_SENTENCE_ID,
    BEGIN_WORD_ID,
    END_SENTENCE_ID,
    END_WORD_ID,
    FILLER_ID,
    LEAST_WORD_LENGTH,
    PADDING_ID,
    require,
    save_code,
)

# ---- Raw text to words -----------------------------------------------------------------------------------------------
#
# Splits raw text into words, as the training text of ELMo models was split.
#
# The official models read the One Billion Word corpus, tokenised like the Penn Treebank: it splits off punctuation and
# English clitics (`do n't`, `Smith 's`, `can not`) and keeps hyphenated words whole. `PTB` is an ordered list of word
# patterns: at each place in the text, the first pattern that matches is the next word, and only white space is dropped
# between matches. TF-Hub's default signature splits on white space alone.
#
# Deliberate differences from the Treebank's `tokenizer.sed`:
#
#     text        It never changes (quotes stay as they are), so every word has its character offsets.
#     marks       Each is a word of its own, wherever it stands: `foo . bar`, `and / or`, `a = b`, `o ' clock`, `' 90s`,
#                 `€ 5`; only _ is a letter. The script splits off ,;:@#$%&?![](){}<>" and `--` and `...`, and ' at a
#                 word's end, and leaves the others where they are.
#     hyphens     They stay only between letters or digits: `well-known`, but `- 5`, `pre - and`, `U.S. - led`.
#     full stops  They stay in `_ABBREVIATIONS` and single capitals before white space and another word (`Mr. X`; but
#                 `Mr., X` becomes `Mr . , X`), and after each letter of dotted abbreviations (`U.S.`, at the end of a
#                 text too; but `U.S.A` becomes `U . S . A`). The script splits off only a text's last.
#     runs        Several of one of the marks .-*=~#+<> are one word, and so are several of ! and ?: `....`, `---`,
#                 `?!`, `##`, `<<`. Other marks are words of their own: `$ $`.
#     numbers     With .,:/ between digits they stay whole and end before a letter: `1,000`, `7:45 pm`, `1.5 m`. Plain
#                 digits do not end there: `7pm`.
#     names       Web and mail addresses and emoticons stay whole, and file names with one of `_FILE_SUFFIXES`:
#                 `report.pdf`, but `main . py`.
#     clitics     ’ is an apostrophe too, all clitics of a word are split off (`I 'd 've`), and capitals make no
#                 difference (`CAN NOT`), but a capital letter, an apostrophe and a capital letter stay together
#                 (`O'Brien`, and so `I'LL`). The script also splits 'tis, 'twas, more'n, d'ye, gimme and lemme.

_LETTER = r"[\p{L}\p{M}\p{N}_]"
_END = rf"(?!{_LETTER})"
_APOSTROPHE = "['’]"
_ABBREVIATIONS = (
    "Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|Ft|Mt|Sen|Rep|Gov|Gen|Col|Capt|Lt|Sgt|Maj|Rev|Hon|Inc|Corp|Ltd|Co|Bros|No|Nos|vs|etc"
    "|al|fig|vol|pp|Ave|Blvd|Rd|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec"
)
_FILE_SUFFIXES = "html?|pdf|docx?|xlsx?|txt|jpe?g|gif|png|zip"

# Tried in this order. The second pattern matches most words, which saves a third of the running time. Long text without
# blanks must not take quadratic time, so the parts of addresses have the length limits of real ones, and letters with
# full stops are tried at the first two letters alone: where those do not match, the rest of `a.b.c.de` does not either.
PTB = (
    rf"(?i:can(?=not{_END})|(?:gon|wan)(?=na{_END})|got(?=ta{_END}))",  # can not, gon na, wan na, got ta
    r"\p{L}+(?=[\s,;?!)]|\z)",  # a plain word
    rf"(?i:n{_APOSTROPHE}t){_END}",  # n't
    rf"\p{{L}}+?(?=(?i:n{_APOSTROPHE}t){_END})",  # do, before n't
    rf"{_APOSTROPHE}(?i:s|m|d|re|ve|ll){_END}",  # 's, 're
    r"(?i:https?://|ftp://|www\.)[^\s<>\"]*[\p{L}\p{N}/=_-]",  # web addresses
    r"[\p{L}\p{N}._+-]{1,64}@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+",  # mail addresses
    rf"(?:[\p{{L}}\p{{N}}-]{{1,63}}\.){{1,8}}(?i:com|org|net|edu|gov|{_FILE_SUFFIXES})(?![\p{{L}}\p{{N}}])(?:/\S*[\p{{L}}\p{{N}}/])?",
    r"(?<!\p{L}\.\p{L}\.)(?:\p{L}\.){2,}(?!\p{L})",  # U.S., i.e.
    rf"(?:{_ABBREVIATIONS}|\p{{Lu}})\.(?=\s+\S)",  # Mr., J.
    r"(?<!\S)(?:[:;=][-'^]?|8[-'^]|8(?=[DPpO]))[()DPpO/\\|\]\[](?!\S)",  # emoticons, but not "8)"
    r"\p{N}+(?:[.,:/]\p{N}+)+",  # 3,500.50 and 7:45
    rf"(?:\p{{Lu}}{_APOSTROPHE}(?=\p{{Lu}}))?{_LETTER}+(?:-{_LETTER}+)*",  # well-known, O'Brien
    r"\.{2,}|-{2,}|[!?]{2,}|\*{2,}|={2,}|~{2,}|#{2,}|\+{2,}|<{2,}|>{2,}",  # ... -- ?!
    r"\S\p{M}*",  # any other character
)

Offsets = tuple[int, int]  # start and end of a word, in characters of its text


@cache
def _ptb_regex() -> Regex:
    """The patterns as one, compiled once: tokenizers may share a `Regex`, which cannot change."""
    return Regex("|".join(PTB))


def _make_ptb_splitter() -> pre_tokenizers.PreTokenizer:
    """A `Split` of its own for each tokenizer, because a `Split` can be changed."""
    # The patterns match words, so what lies between matches is removed.
    return pre_tokenizers.Split(_ptb_regex(), behavior="removed", invert=True)


WORD_SPLITTERS = {"ptb": _make_ptb_splitter, "whitespace": pre_tokenizers.WhitespaceSplit}


def make_word_splitter(name: str) -> pre_tokenizers.PreTokenizer:
    """Builds the Rust pre-tokenizer with a name of `WORD_SPLITTERS`."""
    return WORD_SPLITTERS[name]()


def split_by(split: Callable[[str], Iterable[str]], text: str) -> list[tuple[str, Offsets]]:
    """Words from a user's function, with their offsets; raises ValueError if they are not the text's words in order."""
    words = []
    end = 0
    for word in split(text):
        start = text.find(word, end)
        if start < 0:
            raise ValueError(
                "`word_splitter` must be a function that returns the words of a text, unchanged and in order; it "
                f"returned {word!r:.200}, which is not in the rest of the text, {text[end:]!r:.200}."
            )
        if word.strip():  # some functions return blanks too
            end = start + len(word)
            words.append((word, (start, end)))
    return words


# ---- Words to rows of bytes, or to ids -------------------------------------------------------------------------------
#
# Maps words to ids and back: to C character ids, or to one id from a vocabulary.
#
# A word has C character ids (bilm-tf's `UnicodeCharsVocabulary`, AllenNLP's `ELMoCharacterMapper`):
#
#     [begin word] utf8(word)[: C - 2] [end word] [filler] ... [filler]
#
# Byte b has id b + 1; a padding position has C zeros. A word is cut after C - 2 *bytes*, possibly inside a character,
# and is never normalised. `<S>` and `</S>` have one id each, above all bytes, between the two marks; so have reserved
# words, such as `[MASK]`, for which models are trained (AllenNLP's `tokens_to_add`).
#
# Every codec has `id_shape`, the shape of one word's ids; `boundaries`, the words before and after a text; and
# `symbols`, single ids by name, including padding and boundaries.
#
# Glossary: N words, C characters per word (50 in the published models).

PADDING = "<pad>"
BEGIN_SENTENCE = "<S>"
END_SENTENCE = "</S>"
UNKNOWN_WORD = "<UNK>"
SPECIAL_WORDS = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD)  # in the vocabulary of every softmax

_BOUNDARY_IDS = {BEGIN_SENTENCE: BEGIN_SENTENCE_ID, END_SENTENCE: END_SENTENCE_ID}


class WordMarks(NamedTuple):
    """The ids around a word's characters."""

    begin: int
    end: int
    filler: int


BYTE_MARKS = WordMarks(begin=BEGIN_WORD_ID, end=END_WORD_ID, filler=FILLER_ID)


def mark_words(characters: np.ndarray, lengths: Sequence[int], num_characters: int, marks: WordMarks) -> np.ndarray:
    """Puts each word in a row, between its begin and end marks, with filler behind.

    Args:
        characters: ids of the characters of all N words, one word after the other.
        lengths: the number of characters of each word, at most C - 2.
        num_characters: C.
        marks: the ids of begin, end and filler.

    Returns:
        ids `(N, C)`.
    """
    num_words = len(lengths)
    word_lengths = np.array(lengths, dtype=np.int64)
    ids = np.full((num_words, num_characters), marks.filler, dtype=characters.dtype)
    ids[:, 0] = marks.begin
    # Boolean indexing visits the places row by row, in the order of `characters`.
    is_character = np.arange(num_characters - 1) < word_lengths[:, None]
    ids[:, 1:][is_character] = characters
    ids[np.arange(num_words), word_lengths + 1] = marks.end
    return ids


class CharacterCodec:
    """Maps words to character ids and back."""

    boundaries = (BEGIN_SENTENCE, END_SENTENCE)

    def __init__(self, max_word_length: int, reserved: Mapping[str, int] | None = None) -> None:
        """Takes C, which counts the two marks, and the id of each reserved word."""
        self.max_word_length = max_word_length
        self.id_shape: tuple[int, ...] = (max_word_length,)
        self.reserved = dict(reserved or {})
        self.symbols = {PADDING: PADDING_ID}
        self.symbols |= {f"<0x{byte:02X}>": byte + 1 for byte in range(256)}
        self.symbols |= _BOUNDARY_IDS
        self.symbols |= {"<W>": BEGIN_WORD_ID, "</W>": END_WORD_ID, "<filler>": FILLER_ID}

    @property
    def _single_ids(self) -> dict[str, int]:
        """The words that have one id between the marks, with that id."""
        return _BOUNDARY_IDS | self.reserved

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N, C)` int16 ids; drops lone surrogates, as AllenNLP does."""
        max_bytes = self.max_word_length - 2
        encoded = [word.encode("utf-8", "ignore")[:max_bytes] for word in words]
        byte_ids = np.frombuffer(b"".join(encoded), dtype=np.uint8).astype(np.int16) + 1
        lengths = [len(word_bytes) for word_bytes in encoded]
        ids = mark_words(byte_ids, lengths, self.max_word_length, BYTE_MARKS)
        single_ids = self._single_ids
        for index, word in enumerate(words):
            if word in single_ids:
                ids[index] = FILLER_ID
                ids[index, :3] = [BEGIN_WORD_ID, single_ids[word], END_WORD_ID]
        return ids

    def decode(self, ids: np.ndarray) -> str:
        """Maps ids `(C,)` back to the word; a character cut in the middle becomes U+FFFD."""
        if not ids.any():
            return PADDING
        if len(ids) > 2 and ids[2] == END_WORD_ID:  # one id between the marks
            names = {single_id: word for word, single_id in self._single_ids.items()}
            single_id = int(ids[1])
            if single_id in names:
                return names[single_id]
        is_byte = (ids >= 1) & (ids <= 256)
        return bytes((ids[is_byte] - 1).astype(np.uint8)).decode("utf-8", "replace")

    def is_special(self, ids: np.ndarray) -> np.ndarray:
        """Maps ids `(N, C)` to `(N,)`, True on boundaries and padding."""
        is_boundary = np.isin(ids[:, 1], list(_BOUNDARY_IDS.values()))
        is_padding = ~ids.any(axis=1)
        return is_boundary | is_padding


class VocabularyCodec:
    """Maps words to vocabulary ids and back, for biLMs with a word embedding."""

    id_shape: tuple[int, ...] = ()
    boundaries = (BEGIN_SENTENCE, END_SENTENCE)

    def __init__(self, vocabulary: dict[str, int]) -> None:
        """Takes ids by word, with `<pad>` at 0; raises ValueError without `<pad>`, `<S>`, `</S>` or `<UNK>`."""
        require_names(vocabulary, (PADDING, BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD))
        self.symbols = vocabulary
        self._words = {word_id: word for word, word_id in vocabulary.items()}
        self._is_lower_case: bool | None = None  # not known yet

    @classmethod
    def of_file(cls, path: str) -> "VocabularyCodec":
        """The codec of a vocabulary file; raises ValueError if the file is incomplete or not UTF-8."""
        try:
            with open(path, encoding="utf-8-sig") as lines:
                return cls(read_vocabulary(lines))
        except ValueError as error:
            raise ValueError(f"{path} must be a vocabulary in UTF-8: {error}") from error

    @property
    def lines(self) -> list[str]:
        """The words in id order from 1, as in a vocabulary file; unassigned ids get a placeholder."""
        last_id = max(self._words)
        return [self._words.get(word_id, f"<unused{word_id}>") for word_id in range(1, last_id + 1)]

    @property
    def is_lower_case(self) -> bool:
        """Whether only special words have upper-case letters; `encode` does not lower words, its caller may."""
        if self._is_lower_case is None:
            self._is_lower_case = all(word == word.lower() for word in self.symbols if word not in SPECIAL_WORDS)
        return self._is_lower_case

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N,)` int64 ids; unknown words become `<UNK>`."""
        unknown = self.symbols[UNKNOWN_WORD]
        word_ids = np.array([self.symbols.get(word, unknown) for word in words], dtype=np.int64)
        # The text "<pad>" is an ordinary word, an unknown one; id 0 means padding.
        word_ids[word_ids == PADDING_ID] = unknown
        return word_ids

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
    stripped_lines = (line.strip() for line in lines)
    words = (line for line in stripped_lines if line != "!!!MAXTERMID")
    vocabulary = {word: word_id for word_id, word in enumerate(words, 1)}
    vocabulary[PADDING] = PADDING_ID
    return vocabulary


def require_names(vocabulary: Mapping[str, int], required: Iterable[str]) -> None:
    """Raises ValueError if a vocabulary, ids by name, lacks a name that every model needs."""
    missing = [name for name in required if name not in vocabulary]
    if missing:
        raise ValueError(
            f"the vocabulary lacks {', '.join(missing)}, which every ELMo needs; give the vocabulary with which the "
            "model was trained."
        )


# ---- Words to rows of code points ------------------------------------------------------------------------------------
#
# Maps words to ids of code points from a learned alphabet (ELMoForManyLangs' `create_one_batch`).
#
# A word is cut after C - 2 code points. A word has C character ids, followed by a word id if the model also has word
# vectors; a model without characters has only the word id:
#
#     [<eow>] c_1 .. c_n [<bow>] [<pad>] ... [<pad>]   w
#
# The marks are swapped, as in the code that trained these models: a word *begins* with the character named `<eow>`. A
# boundary word, `<bos>` or `<eos>`, has a single character between the marks, of the same name. Unknown characters and
# unknown words are `<oov>`. The filler `<pad>` is a character with an id of its own, `c:<pad>`; padding is the id 0.
#
# Characters and words share one id space, so each id has one name: 0 is padding, then come the characters, then the
# words. The names are `c:x` for a character x and `w:x` for a word x, except that `<bos>` and `<eos>` have no prefix.
# Those two are characters, or words in a model without characters; in a model with both, the words are `w:<bos>` and
# `w:<eos>`.
#
# Glossary: N words, C characters per word (50 in the published models).

BOS = "<bos>"
EOS = "<eos>"
UNKNOWN = "<oov>"
FILLER = "<pad>"
BEGIN_WORD = "<eow>"
END_WORD = "<bow>"

CHARACTER_PREFIX = "c:"
WORD_PREFIX = "w:"
NEEDED_CHARACTERS = (BOS, EOS, UNKNOWN, FILLER, BEGIN_WORD, END_WORD)


class CodePointCodec:
    """Maps words to ids of code points `(C,)`, code points and words `(C + 1,)`, or words `()`, and back."""

    boundaries = (BOS, EOS)

    def __init__(self, vocabulary: Mapping[str, int], max_word_length: int, has_characters: bool) -> None:
        """Takes the vocabulary, ids by name, and C; raises ValueError without a required character or word."""
        self.symbols = dict(vocabulary)
        self.max_word_length = max_word_length
        self._characters = _names_with_prefix(vocabulary, CHARACTER_PREFIX)
        self._words = _names_with_prefix(vocabulary, WORD_PREFIX)
        boundary_ids = {name: vocabulary[name] for name in self.boundaries if name in vocabulary}
        self._boundary_ids = list(boundary_ids.values())
        self.id_shape: tuple[int, ...]
        if has_characters:
            self._characters |= boundary_ids
            require_names(self._characters, NEEDED_CHARACTERS)
            self.id_shape = (max_word_length,)
            if self._words:
                require_names(self._words, (UNKNOWN,))
                self.id_shape = (max_word_length + 1,)
        else:
            self._words |= boundary_ids
            require_names(self._words, (UNKNOWN, *self.boundaries))
            self.id_shape = ()
        self._character_names = {character_id: name for name, character_id in self._characters.items()}
        self._character_names[PADDING_ID] = PADDING
        self._word_names = {word_id: word for word, word_id in self._words.items()}

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to int32 ids `(N, *id_shape)`."""
        words = [word if word in self.boundaries else word[: self.max_word_length - 2] for word in words]
        if not self.id_shape:
            return self._word_ids(words)
        character_ids = self._character_ids(words)
        if not self._words:
            return character_ids
        return np.concatenate([character_ids, self._word_ids(words)[:, None]], axis=1)

    def decode(self, ids: np.ndarray) -> str:
        """Maps ids back to the word; an unknown word is spelled from its characters, with U+FFFD for `<oov>`."""
        if not np.any(ids):
            return PADDING
        if self._words:
            word_id = int(ids.flat[-1])
            if word_id != self._words[UNKNOWN]:
                return self._word_names.get(word_id, UNKNOWN)
        if not self.id_shape:
            return UNKNOWN
        first_id = int(ids[1])
        if first_id in self._boundary_ids:
            return self._character_names[first_id]
        return self._spell(ids[: self.max_word_length])

    def is_special(self, ids: np.ndarray) -> np.ndarray:
        """Maps ids `(N, *id_shape)` to `(N,)`, True on boundaries and padding."""
        if not self.id_shape:
            return np.isin(ids, [PADDING_ID, *self._boundary_ids])
        is_boundary = np.isin(ids[:, 1], self._boundary_ids)
        is_padding = ~ids.any(axis=1)
        return is_boundary | is_padding

    @property
    def _marks(self) -> WordMarks:
        characters = self._characters
        return WordMarks(begin=characters[BEGIN_WORD], end=characters[END_WORD], filler=characters[FILLER])

    def _word_ids(self, words: Sequence[str]) -> np.ndarray:
        """Word ids `(N,)` of words that are already cut."""
        unknown = self._words[UNKNOWN]
        return np.array([self._words.get(word, unknown) for word in words], dtype=np.int32)

    def _character_ids(self, words: Sequence[str]) -> np.ndarray:
        """Character ids `(N, C)` of words of at most C - 2 code points, or boundaries."""
        marks = self._marks
        unknown = self._characters[UNKNOWN]
        spellings = ["" if word in self.boundaries else word for word in words]
        code_points = np.frombuffer("".join(spellings).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        # Each distinct code point is looked up once.
        distinct, indices = np.unique(code_points, return_inverse=True)
        distinct_ids = [self._characters.get(chr(code_point), unknown) for code_point in distinct]
        character_ids = np.array(distinct_ids, dtype=np.int32)[indices]
        lengths = [len(spelling) for spelling in spellings]
        ids = mark_words(character_ids, lengths, self.max_word_length, marks)
        for index, word in enumerate(words):
            if word in self.boundaries:
                ids[index, 1:3] = [self._characters[word], marks.end]
        return ids

    def _spell(self, character_ids: np.ndarray) -> str:
        """The characters of a row `(C,)` without the marks."""
        marks = self._marks
        inner_ids = [character_id for character_id in character_ids.tolist() if character_id not in marks]
        names = [self._character_names.get(character_id, UNKNOWN) for character_id in inner_ids]
        return "".join("\ufffd" if name == UNKNOWN else name for name in names)


def _names_with_prefix(vocabulary: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The ids of the names that begin with a prefix, by name without the prefix."""
    return {name.removeprefix(prefix): name_id for name, name_id in vocabulary.items() if name.startswith(prefix)}


# ---- The texts of a call ---------------------------------------------------------------------------------------------
#
# The texts of a tokenizer call: their words, truncation, and where each position of an encoded text comes from.
#
# A call takes one text or a batch. A text is a string or a list of words, alone or paired with a second text. A
# position is a word, a boundary or padding:
#
#     [padding] <S> w_1 .. w_n </S> [<S> w_1 .. w_m </S>] [padding]
#
# `BatchEncoding` reads word ids, offsets and the maps between positions, words and characters from a `WordEncoding`, as
# it does from a Rust `tokenizers.Encoding`. The Rust class cannot be used: it needs a vocabulary of all words, splits
# given words again, drops empty words and rejects lone surrogates.


class SplitText(NamedTuple):
    """The words of one text, or some neighbouring ones of them."""

    words: list[str]
    offsets: list[Offsets]  # in characters of the text; of the word itself if the caller split the text
    indices: range  # the place of each word in the whole text


class Position(NamedTuple):
    """One position; `text_index` (0 or 1) and `word_index` are None on added boundaries and padding."""

    word: str
    offset: Offsets = (0, 0)
    text_index: int | None = None
    word_index: int | None = None
    type_id: int = 0


def is_list(value: object) -> TypeGuard[Sequence]:
    """Whether a value is a sequence other than a string."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def is_batch(text: Any, is_split_into_words: bool) -> bool:
    """Whether a call's `text` is several texts; an empty list of words is one text without words."""
    if not is_list(text):
        return False
    if not is_split_into_words:
        return True
    return len(text) > 0 and is_list(text[0])


def as_batch(text: Any, text_pair: Any, is_batched: bool, is_split_into_words: bool) -> list[tuple[Any, ...]]:
    """The texts of a call, one or two for each row.

    A batch may also hold pairs: tuples of two texts, or, without `is_split_into_words`, lists of two strings.

    Raises:
        ValueError: if there is not one second text for each first text.
    """
    if not is_batched:
        return [(text,)] if text_pair is None else [(text, text_pair)]
    if text_pair is not None:
        legal = f"a list with as many texts as `text`, which has {len(text)}"
        require(isinstance(text_pair, Iterable) and not isinstance(text_pair, str), "text_pair", legal, text_pair)
        second_texts = list(text_pair)
        require(len(second_texts) == len(text), "text_pair", legal, text_pair)
        return list(zip(text, second_texts, strict=True))
    if all(_is_pair(row, is_split_into_words) for row in text):
        return [tuple(pair) for pair in text]
    return [(row,) for row in text]


def _is_pair(row: Any, is_split_into_words: bool) -> bool:
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        return False
    if is_split_into_words:
        return isinstance(row, tuple) and not isinstance(row[0], str)
    return isinstance(row, tuple) or all(isinstance(text, str) for text in row)


def _words_of(value: Any) -> list[str] | None:
    """The words of a list, an array or another iterable in order; None if it holds others, or has no order."""
    if isinstance(value, (str, Set, Mapping)) or not isinstance(value, Iterable):
        return None
    words = list(value)
    return words if all(isinstance(word, str) for word in words) else None


def _kind_of(text: Any) -> str:
    """A value in the place of a text, for an error: columns and empty cells of tables, such as those of pandas, too."""
    shown = f"{text!r:.200}"
    is_nan = isinstance(text, float) and math.isnan(text)
    if text is None or is_nan:
        return f"{shown}, as an empty cell of a table is read; leave such rows out"
    if hasattr(text, "tolist") and isinstance(text, Iterable):
        return f"an object of type {type(text).__name__}; give a column of texts as a list, which its `tolist()` makes"
    return shown


def to_words(text: Any, is_split_into_words: bool, split: Callable[[str], Any], name: str = "text") -> SplitText:
    """Splits a string, or takes words in their order; raises ValueError, with the argument's name, for others."""
    if is_split_into_words:
        words = _words_of(text)
        if words is None:
            raise ValueError(f"`{name}` must be a list of words with `is_split_into_words=True`, found {text!r:.200}.")
        return SplitText(words, [(0, len(word)) for word in words], range(len(words)))
    if not isinstance(text, str):
        raise ValueError(
            f"`{name}` must be a string, or a list of words with `is_split_into_words=True`, found {_kind_of(text)}."
        )
    try:
        pairs = split(text)
    except UnicodeEncodeError:
        # Rust rejects lone surrogates; with another character in their place the offsets are the same.
        pairs = split(text.encode("utf-8", "replace").decode("utf-8"))
        pairs = [(text[start:end], (start, end)) for _, (start, end) in pairs]
    return SplitText([word for word, _ in pairs], [offset for _, offset in pairs], range(len(pairs)))


def truncate(
    texts: Sequence[SplitText], room: int, strategy: TruncationStrategy, side: str, stride: int | None = None
) -> list[tuple[SplitText, ...]]:
    """Drops words on the `"left"` or `"right"` side of one or two texts until `room` words remain.

    With a `stride`, further windows follow until each word is in some window; each shares `stride` words with the one
    before, and only the last may be shorter. In a pair, each window of one text comes with each window of the other,
    which is the whole other text if only one is shortened.

    Raises:
        ValueError: if a text to shorten has too few words, or a window would have no room for words of its own.
    """
    lengths = [len(text.words) for text in texts]
    if sum(lengths) <= room:
        return [tuple(texts)]
    sizes = _sizes_after_truncation(lengths, room, strategy)
    num_lacking = -sum(size for size in sizes if size < 0)
    if num_lacking > 0:
        raise ValueError(
            f"`max_length` must be larger by {num_lacking} at least: boundaries, and a text that is not to be "
            "shortened, need that many positions more."
        )
    windows = [_windows(text, size, side, stride) for text, size in zip(texts, sizes, strict=True)]
    return list(product(*windows))


def _sizes_after_truncation(lengths: Sequence[int], room: int, strategy: TruncationStrategy) -> list[int]:
    """The number of words of each text that fit in `room` together; below 0 if that is impossible."""
    if len(lengths) == 1:
        return [room]
    first, second = lengths
    if strategy == TruncationStrategy.ONLY_FIRST:
        return [room - second, second]
    if strategy == TruncationStrategy.ONLY_SECOND:
        return [first, room - first]
    # The longer text loses words until both are equally long; then they take turns.
    shorter = min(first, second, room // 2)
    if second < first:
        return [room - shorter, shorter]
    return [shorter, room - shorter]


def _windows(text: SplitText, size: int, side: str, stride: int | None) -> list[SplitText]:
    """The windows of `size` words of a text: one without a stride, or as many as hold all words."""
    length = len(text.words)
    if size >= length:
        return [text]
    if stride is None:
        starts = range(1)
    elif size > stride:
        starts = range(0, length - stride, size - stride)
    else:
        raise ValueError(
            f"`max_length` leaves room for {size} words of a text in each window, which must be more than the "
            f"`stride={stride}` words that windows share; give a larger `max_length` or a smaller `stride`."
        )
    if side == "left":  # counted from the text's end
        ends = [length - start for start in starts]
        parts = [slice(max(end - size, 0), end) for end in ends]
    else:
        parts = [slice(start, start + size) for start in starts]
    return [SplitText(text.words[part], text.offsets[part], text.indices[part]) for part in parts]


class WordEncoding:
    """An encoded text or pair, with the methods of `tokenizers.Encoding`, which return None if there is no answer.

    Deliberate difference from Rust: positions are computed on first use. They are no `cached_property`: in Python 3.11
    it has a lock, which `datasets` sends to its processes by dill, and which nobody can open there.
    """

    def __init__(self, texts: tuple[SplitText, ...], boundaries: tuple[str, str] | None) -> None:
        """Takes one or two texts, and the words to put around each text, or None for no words."""
        self.texts = texts
        self.n_sequences = len(texts)
        self.boundaries = boundaries
        self.num_padding = 0
        self.padding_side = "right"
        self._positions: list[Position] | None = None  # not computed yet
        # The words and boundaries in order, without padding.
        self.flat_words: list[str] = []
        for text in texts:
            if boundaries is None:
                self.flat_words += text.words
            else:
                begin, end = boundaries
                self.flat_words += [begin, *text.words, end]

    def __len__(self) -> int:
        return len(self.flat_words) + self.num_padding

    def pad(self, num_padding: int, side: str) -> None:
        """Adds positions of padding on the `"right"` or `"left"` side; must come before the first use of positions."""
        self.num_padding = num_padding
        self.padding_side = side

    @property
    def positions(self) -> list[Position]:
        """Every position, including padding."""
        if self._positions is None:
            self._positions = self._make_positions()
        return self._positions

    def _make_positions(self) -> list[Position]:
        positions = []
        for text_index, text in enumerate(self.texts):
            inner = []
            for word, offset, word_index in zip(text.words, text.offsets, text.indices, strict=True):
                inner.append(Position(word, offset, text_index, word_index, type_id=text_index))
            if self.boundaries is not None:
                begin, end = self.boundaries
                inner = [Position(begin, type_id=text_index), *inner, Position(end, type_id=text_index)]
            positions += inner
        padding = [Position(PADDING)] * self.num_padding
        if self.padding_side == "left":
            return padding + positions
        return positions + padding

    @property
    def tokens(self) -> list[str]:
        """The word at each position."""
        return [position.word for position in self.positions]

    @property
    def word_ids(self) -> list[int | None]:
        """The word's index in its text at each position."""
        return [position.word_index for position in self.positions]

    @property
    def words(self) -> list[int | None]:
        """The same, under the older name of `tokenizers.Encoding`."""
        return self.word_ids

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 or 1 at each position, for the first or second text."""
        return [position.text_index for position in self.positions]

    @property
    def type_ids(self) -> list[int]:
        """As `sequence_ids`, but boundaries count to their text and padding is 0."""
        return [position.type_id for position in self.positions]

    @property
    def offsets(self) -> list[Offsets]:
        """Each word's (start, end) in characters, (0, 0) on boundaries and padding."""
        return [position.offset for position in self.positions]

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 on added boundaries and padding."""
        return [int(position.text_index is None) for position in self.positions]

    def token_to_sequence(self, token_index: int) -> int | None:
        """The text of a position, 0 or 1."""
        return self.positions[token_index].text_index

    def token_to_word(self, token_index: int) -> int | None:
        """The word's index in its text."""
        return self.positions[token_index].word_index

    def token_to_chars(self, token_index: int) -> Offsets | None:
        """Start and end of a position's word, in characters."""
        position = self.positions[token_index]
        return None if position.text_index is None else position.offset

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """The position of a word, and the next position."""
        for index, position in enumerate(self.positions):
            if position.text_index == sequence_index and position.word_index == word_index:
                return index, index + 1
        return None

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> Offsets | None:
        """Start and end of a word, in characters."""
        span = self.word_to_tokens(word_index, sequence_index)
        return None if span is None else self.positions[span[0]].offset

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The position of the word that holds a character of the text."""
        for index, position in enumerate(self.positions):
            start, end = position.offset
            if position.text_index == sequence_index and start <= char_pos < end:
                return index
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The index of the word that holds a character of the text."""
        index = self.char_to_token(char_pos, sequence_index)
        return None if index is None else self.positions[index].word_index


# ---- Padding ---------------------------------------------------------------------------------------------------------
#
# Pads texts of different lengths, and converts between nested lists, arrays and tensors.
#
# The ids of a text are an array `(T, *id_shape)`: `(T, C)` for characters, `(T,)` for word ids. Character codecs use
# small integers, because a word has C of them; what a caller gets is int64, as from every tokenizer of transformers,
# which is what ONNX Runtime and embeddings of torch take.
#
# The tokenizer of a folder also works where torch is not installed, with lists and NumPy arrays.
#
# Glossary: B batch, T words of the longest text, C characters per word.

if is_torch_available():  # transformers does not ask for imports under this condition when it opens a folder
    import torch

# The keys that `pad` pads, and the value for each.
PADDING_VALUES = {
    "input_ids": 0,
    "attention_mask": 0,
    "token_type_ids": 0,
    "special_tokens_mask": 1,
    "bilm_layers": 0,
    "word_vector_ids": 0,
    "marks": 0,
}


def lengths_with_padding(
    lengths: np.ndarray, strategy: PaddingStrategy, max_length: int | None, multiple: int | None
) -> np.ndarray:
    """The padded length `(B,)` of each text; never shorter than the text."""
    if strategy == PaddingStrategy.DO_NOT_PAD:
        return lengths
    target = int(lengths.max(initial=0))
    if strategy == PaddingStrategy.MAX_LENGTH and max_length is not None:
        target = max_length
    if multiple:
        require(multiple > 0, "pad_to_multiple_of", "above 0", multiple)
        target = -(-target // multiple) * multiple  # rounded up
    return np.maximum(lengths, target)


def pad_texts(texts: Sequence[np.ndarray], padded_lengths: np.ndarray, side: str, value: int) -> list[np.ndarray]:
    """Pads the first axis of each text's array with `value` on the `"right"` or `"left"` side."""
    padded = []
    for text, length in zip(texts, padded_lengths.tolist(), strict=True):
        filler = np.full((length - len(text), *text.shape[1:]), value, dtype=text.dtype)
        parts = [filler, text] if side == "left" else [text, filler]
        padded.append(np.concatenate(parts))
    return padded


def cut_and_pad(joined: np.ndarray, lengths: np.ndarray, padded_lengths: np.ndarray, side: str) -> list[np.ndarray]:
    """Cuts the array of all texts, one after the other, into one array for each text, padded with 0."""
    ends = lengths.cumsum()
    starts = ends - lengths
    texts = [joined[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return pad_texts(texts, padded_lengths, side, 0)


def as_integers(values: Any) -> np.ndarray:
    """An array of integers; NumPy would make an empty list an array of floats."""
    array = np.asarray(values)
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(np.int64)
    return array


def convert(data: dict[str, Any], return_tensors: str | TensorType | None, drop_batch: bool) -> dict[str, Any]:
    """Converts each key to nested lists, or to one array or tensor; with `drop_batch`, returns only the first text.

    Integers of arrays and tensors are int64. As NumPy arrays, texts of different lengths become a list. A batch without
    texts must come as arrays, which show its shapes.

    Raises:
        ImportError: if tensors are wanted where torch is not installed.
        ValueError: if a key cannot be one tensor, or for another kind of tensor.
    """
    require(return_tensors in (None, "np", "pt"), "return_tensors", "None, 'np' or 'pt'", return_tensors)
    converted: dict[str, Any] = {}
    for key, value in data.items():
        if return_tensors is None:
            converted[key] = [_as_python(row) for row in value]
        elif return_tensors == "np":
            converted[key] = _as_arrays(value)
        else:
            converted[key] = _as_tensor(key, value)
    if drop_batch:
        return {key: value[0] for key, value in converted.items()}
    return converted


def _as_python(row: Any) -> Any:
    """A row as nested lists or a number of Python."""
    if _is_array(row) or isinstance(row, np.generic):
        return row.tolist()
    return row


def _as_arrays(value: Any) -> np.ndarray | list[np.ndarray]:
    """One array of all rows, or a list of them if they differ in shape."""
    if isinstance(value, np.ndarray) and len(value) == 0:  # without rows, only the array knows its shape
        return _as_int64(value)
    rows = [_as_int64(as_integers(row)) for row in value]
    shapes = {row.shape for row in rows}
    return rows if len(shapes) > 1 else np.array(rows)


def _as_int64(array: np.ndarray) -> np.ndarray:
    """The array, with integers as int64."""
    return array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array


def _as_tensor(key: str, value: Any) -> "torch.Tensor":
    if not is_torch_available():
        raise ImportError('`return_tensors="pt"` needs torch, which is not installed; `return_tensors="np"` does not.')
    array = _as_arrays(value)
    if isinstance(array, list) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"`{key}` must be numbers, and the same number of them for each text, to become a tensor; give texts of "
            "different lengths `padding=True`, or shorten them with `truncation=True`."
        )
    tensor = torch.from_numpy(array)
    # Python's own floats get torch's default type, as in `torch.tensor`.
    is_python = all(isinstance(row, (float, list)) for row in value)
    if tensor.is_floating_point() and is_python:
        return tensor.to(torch.get_default_dtype())
    return tensor


def _is_array(values: Any) -> bool:
    """Whether these are an array of NumPy or a tensor of torch."""
    return isinstance(values, np.ndarray) or is_torch_tensor(values)


def tensor_type_of(ids: Any) -> str | None:
    """The kind of tensor inside nested sequences of ids; None for plain numbers."""
    while is_list(ids) and len(ids) > 0:
        ids = ids[0]
    if is_torch_tensor(ids):
        return "pt"
    if isinstance(ids, np.ndarray):
        return "np"
    return None


def nesting(ids: Any) -> int:
    """Depth of nested ids: 0 for a number, 1 for a list of numbers; empty texts are skipped."""
    if _is_array(ids) and ids.dtype != object:
        return ids.ndim
    if is_list(ids) or isinstance(ids, np.ndarray):
        return 1 + max((nesting(item) for item in ids), default=0)
    return 0


# ---- The tokenizer ---------------------------------------------------------------------------------------------------
#
# The ELMo tokenizer: text to words, words to ids (Peters et al. 2018, §3.4; AllenNLP's `batch_to_ids`).
#
# A text is split into words, or comes as a list of words. `<S>` and `</S>` go around it, each word becomes ids, and a
# batch becomes one array with a mask:
#
#     input_ids (B, T, C)    attention_mask (B, T), 1 on words and boundaries
#     word_vector_ids (B, T), by `vector_codec`, if a task has word vectors of its own
#
# Glossary: B batch, T words of the longest text, C characters per word. For a word-embedding ELMo, ids are (B, T).
#
# Deliberate differences from other tokenizers of transformers: one position is one word with several ids, so this class
# overrides every method that handles ids, and the Rust tokenizer inside only splits text and names single ids. The
# splitter "ptb" splits `<S>` in raw text like any other text; a *word* `<S>`, given or split off at white space, is the
# boundary, as in AllenNLP. A pair of texts is two sentences side by side, each with its own boundaries. ELMo reads
# texts of any length, so nothing is cut unless a call asks for it. Where characters are bytes, `add_tokens` reserves a
# word (AllenNLP's `tokens_to_add`): one id from 262 on replaces its characters, in raw text too.
# `model.resize_token_embeddings(len(tokenizer))` makes room for it. In masks and in decoding, a reserved word counts as
# a word, even if it is `mask_token`. Words of a vocabulary are fixed.

logger = logging.get_logger(__name__)

Codec = CharacterCodec | VocabularyCodec | CodePointCodec

TOKEN_ENCODERS = ("char_cnn", "word_embedding")
ALPHABETS = ("bytes", "code_points")
# The key of `tokenizer_config.json` for the property of this name.
SAVED_VOCABULARIES = "saved_vocabularies"


def _vocabulary_in(tokenizer_file: str) -> dict[str, int]:
    """The ids by name in a `tokenizer.json`."""
    with open(tokenizer_file, encoding="utf-8") as file:
        return json.load(file)["model"]["vocab"]


def _make_codec(
    token_encoder: str, alphabet: str, max_word_length: int, vocab_file: str | None, vocabulary: dict[str, int]
) -> Codec:
    """The codec of a tokenizer's arguments; bytes need no vocabulary, and `vocab_file` precedes `vocabulary`."""
    has_characters = token_encoder == "char_cnn"
    if alphabet == "code_points":
        return CodePointCodec(vocabulary, max_word_length, has_characters)
    if has_characters:
        return CharacterCodec(max_word_length)
    if vocab_file is not None:
        return VocabularyCodec.of_file(vocab_file)
    return VocabularyCodec(vocabulary)


class ElmoTokenizer(PreTrainedTokenizerFast):
    """Makes the inputs of every ELMo model.

    Args:
        token_encoder: `"char_cnn"` for character ids, `"word_embedding"` for word ids.
        max_word_length: C, at least 3; a word is cut after C - 2 bytes, or code points.
        word_splitter: how raw text becomes words, `"ptb"`, `"whitespace"`, or a function from a text to its words. A
            function is not saved (the folder has `"whitespace"`), so pass it again when loading.
        vocab_file: for `"word_embedding"`, a text file with one word per line, including `<S>`, `</S>` and `<UNK>`.
        words_file: such a file with the words that the model's softmax predicts, if it has one; with word input, None
            means the words of `vocab_file`.
        vector_words_file: such a file with the words that have word vectors of the task's own, if there are any.
        alphabet: `"bytes"` or `"code_points"`. The latter, with either token encoder, needs the keyword argument
            `vocab`, a dict from names to ids (`CodePointCodec`), which is saved with the tokenizer.
        add_boundaries: whether texts get `<S>` and `</S>`, unless a call has `add_special_tokens=False`; False for a
            biLM that was trained without boundaries (google/elmo).
        **kwargs: the arguments of every transformers tokenizer, such as `padding_side`.

    Raises:
        ValueError: if an argument is illegal, or if the vocabulary is missing or incomplete.
    """

    vocab_files_names = {
        "words_file": "words.txt",
        "vector_words_file": "vector_words.txt",
        "tokenizer_file": "tokenizer.json",
    }
    model_input_names = ["input_ids", "attention_mask"]
    # For the config of a saved folder.
    _auto_map = {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}

    def __init__(
        self,
        token_encoder: str = "char_cnn",
        max_word_length: int = 50,
        word_splitter: Any = "ptb",
        vocab_file: str | None = None,
        words_file: str | None = None,
        alphabet: str = "bytes",
        add_boundaries: bool = True,
        vector_words_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Builds the Rust tokenizer from these arguments; of a `tokenizer.json` only the vocabulary is used."""
        tokenizer_file = kwargs.pop("tokenizer_file", None)
        vocabulary = kwargs.pop("vocab", None) or {}
        self._split_by = None
        if callable(word_splitter):
            self._split_by = partial(split_by, word_splitter)
            word_splitter = "whitespace"
        splitters = tuple(WORD_SPLITTERS)
        require(token_encoder in TOKEN_ENCODERS, "token_encoder", f"one of {TOKEN_ENCODERS}", token_encoder)
        require(alphabet in ALPHABETS, "alphabet", f"one of {ALPHABETS}", alphabet)
        require(word_splitter in splitters, "word_splitter", f"one of {splitters}, or a function", word_splitter)
        is_length = isinstance(max_word_length, (int, np.integer)) and max_word_length >= LEAST_WORD_LENGTH
        require(is_length, "max_word_length", f"an integer of at least {LEAST_WORD_LENGTH}", max_word_length)
        max_word_length = int(max_word_length)  # NumPy's integers cannot be saved
        needs_vocabulary = token_encoder == "word_embedding" or alphabet == "code_points"
        if needs_vocabulary and tokenizer_file is not None:
            vocabulary = _vocabulary_in(tokenizer_file)
        self._codec = _make_codec(token_encoder, alphabet, max_word_length, vocab_file, vocabulary)
        self._output_codec = None if words_file is None else VocabularyCodec.of_file(words_file)
        if self._output_codec is None and isinstance(self._codec, VocabularyCodec):
            self._output_codec = self._codec
        self.vector_codec = None if vector_words_file is None else VocabularyCodec.of_file(vector_words_file)
        self.token_encoder = token_encoder
        self.alphabet = alphabet
        self.max_word_length = max_word_length
        self.word_splitter = word_splitter
        self.add_boundaries = add_boundaries
        begin, end = self._codec.boundaries
        special_tokens = {"pad_token": PADDING, "bos_token": begin, "eos_token": end}
        unknown = PADDING  # `WordLevel` requires a name here; it is never used, because the codec makes the ids
        if isinstance(self._codec, VocabularyCodec):
            unknown = UNKNOWN_WORD
            special_tokens["unk_token"] = UNKNOWN_WORD
        # Set here, because transformers copies a tokenizer that it gets as an argument, which doubles the time.
        self._tokenizer = Tokenizer(models.WordLevel(self._codec.symbols, unk_token=unknown))
        # transformers saves its arguments, and gives them to this method when it loads the tokenizer.
        saved: dict[str, Any] = {
            "token_encoder": token_encoder,
            "alphabet": alphabet,
            "max_word_length": max_word_length,
            "word_splitter": word_splitter,
            "words_file": words_file,
            "vector_words_file": vector_words_file,
            "add_boundaries": add_boundaries,
            SAVED_VOCABULARIES: self.saved_vocabularies,
        }
        super().__init__(**(special_tokens | kwargs | saved))
        # Last, because transformers replaces the splitter's pattern if the vocabulary is large.
        self._tokenizer.pre_tokenizer = make_word_splitter(word_splitter)

    @classmethod
    def _from_pretrained(cls, resolved_vocab_files: dict[str, Any], name: str, *args: Any, **kwargs: Any) -> Any:
        """Refuses a folder or repository that has none of a tokenizer's files, because its name may be wrong."""
        if not any(resolved_vocab_files.values()):
            raise OSError(f"there is no tokenizer in {name}; `tokenizer.save_pretrained` writes one.")
        paths = cls._without_words_of_others(resolved_vocab_files, name, kwargs)
        return super()._from_pretrained(paths, name, *args, **kwargs)

    @classmethod
    def _without_words_of_others(
        cls, paths: dict[str, Any], source: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The paths of a source's files, with None for files of words that were not saved with its tokenizer.

        A folder may have `words.txt` of an earlier model, or of the user. The folder of an earlier version does not say
        which files are its tokenizer's, so all are read.
        """
        if paths.get("tokenizer_config_file") is None:
            return paths
        with open(paths["tokenizer_config_file"], encoding="utf-8") as file:
            saved = json.load(file).get(SAVED_VOCABULARIES)
        if saved is None:
            return paths
        require(isinstance(saved, list), SAVED_VOCABULARIES, "a list of names of files", saved)
        own_paths = dict(paths)
        for argument in ("words_file", "vector_words_file"):
            file_name = cls.vocab_files_names[argument]
            if own_paths.get(argument) is None or file_name in saved:
                continue
            own_paths[argument] = None
            if arguments.get(argument) is None:
                logger.warning(
                    f"`{file_name}` in {source} is not read, because it was not saved with the tokenizer there; if it "
                    f"has the tokenizer's words, load with `{argument}={paths[argument]!r}` and save again."
                )
        return own_paths

    @classmethod
    def convert_to_native_format(cls, **kwargs: Any) -> dict[str, Any]:
        """Passes `tokenizer.json` to the constructor, which reads only its vocabulary."""
        return kwargs

    def split_text(self, text: str) -> list[tuple[str, Offsets]]:
        """Splits a text into words with their offsets; reserved words are kept whole."""
        split = self._split_by
        if split is None:
            split = self._tokenizer.pre_tokenizer.pre_tokenize_str
        reserved = self._codec.reserved if isinstance(self._codec, CharacterCodec) else {}
        if not reserved:
            return split(text)
        longest_first = sorted(reserved, key=len, reverse=True)
        any_reserved = "|".join(re.escape(word) for word in longest_first)
        words: list[tuple[str, Offsets]] = []
        start = 0
        for part in re.split(f"({any_reserved})", text):  # the group makes the reserved words parts, too
            words_of_part = [(part, (0, len(part)))] if part in reserved else split(part)
            words += [(word, (start + begin, start + end)) for word, (begin, end) in words_of_part]
            start += len(part)
        return words

    def _encode_plus(
        self,
        text: str | Sequence[Any],
        text_pair: str | Sequence[Any] | None = None,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | TensorType | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Encodes one text or a batch; arguments and result are as in every transformers tokenizer.

        A batch without texts, `[]`, becomes arrays or tensors of no texts of no words, such as `input_ids` `(0, 0, C)`.
        """
        is_batched = is_batch(text, is_split_into_words)
        boundaries = self.boundaries if add_special_tokens and self.add_boundaries else None
        overlap = stride if return_overflowing_tokens else None
        encodings: list[WordEncoding] = []
        samples: list[int] = []
        for sample, row in enumerate(as_batch(text, text_pair, is_batched, is_split_into_words)):
            texts = self._split_row(row, is_split_into_words)
            num_boundaries = 0 if boundaries is None else 2 * len(texts)
            windows = self._truncate(texts, num_boundaries, truncation_strategy, max_length, overlap)
            encodings += [WordEncoding(window, boundaries) for window in windows]
            samples += [sample] * len(windows)
        side = self._checked_padding_side(padding_side)
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        padded_lengths = lengths_with_padding(lengths, padding_strategy, max_length, pad_to_multiple_of)
        for encoding, num_padding in zip(encodings, (padded_lengths - lengths).tolist(), strict=True):
            encoding.pad(num_padding, side)

        as_rows = partial(cut_and_pad, lengths=lengths, padded_lengths=padded_lengths, side=side)
        words = [word for encoding in encodings for word in encoding.flat_words]
        data: dict[str, Any] = {"input_ids": as_rows(self._codec.encode(words))}
        if self.vector_codec is not None:
            data["word_vector_ids"] = as_rows(self._encode_for_vectors(words, self.vector_codec))
        if return_attention_mask is not False:
            data["attention_mask"] = as_rows(np.ones(len(words), dtype=np.int64))
        if return_token_type_ids:
            data["token_type_ids"] = [encoding.type_ids for encoding in encodings]
        if return_special_tokens_mask:
            data["special_tokens_mask"] = [encoding.special_tokens_mask for encoding in encodings]
        if return_offsets_mapping:
            data["offset_mapping"] = [encoding.offsets for encoding in encodings]
        if return_length:
            data["length"] = padded_lengths
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = np.array(samples, dtype=np.int64)
        data = self._with_all_axes(data)
        is_alone = not is_batched and return_tensors is None and not return_overflowing_tokens
        return BatchEncoding(convert(data, return_tensors, drop_batch=is_alone), encodings)

    def _with_all_axes(self, data: dict[str, Any]) -> dict[str, Any]:
        """The rows of a batch by name; without texts, arrays with the axes of every batch in place of no rows."""
        if len(data["input_ids"]) > 0:
            return data
        shapes = {
            "input_ids": (0, 0, *self._codec.id_shape),
            "offset_mapping": (0, 0, 2),
            "length": (0,),
            "overflow_to_sample_mapping": (0,),
        }
        return {name: np.zeros(shapes.get(name, (0, 0)), dtype=np.int64) for name in data}

    def _split_row(self, row: tuple[Any, ...], is_split_into_words: bool) -> tuple[SplitText, ...]:
        """The words of one text, or of a pair."""
        texts = [to_words(row[0], is_split_into_words, self.split_text)]
        if len(row) == 2:
            texts.append(to_words(row[1], is_split_into_words, self.split_text, "text_pair"))
        return tuple(texts)

    def _truncate(
        self,
        texts: tuple[SplitText, ...],
        num_boundaries: int,
        strategy: TruncationStrategy,
        max_length: int | None,
        stride: int | None,
    ) -> list[tuple[SplitText, ...]]:
        """The texts of one row, cut to `max_length` positions if the call asks for it; see `truncate`."""
        if strategy == TruncationStrategy.DO_NOT_TRUNCATE or max_length is None:
            return [texts]
        return truncate(texts, max_length - num_boundaries, strategy, self.truncation_side, stride)

    def _encode_for_vectors(self, words: Sequence[str], codec: VocabularyCodec) -> np.ndarray:
        """Maps N words to their ids `(N,)` in the vocabulary of the task's word vectors."""
        if codec.is_lower_case:
            words = [word if word in self.boundaries else word.lower() for word in words]
        return codec.encode(words)

    def _checked_padding_side(self, padding_side: str | None) -> str:
        """The side that a call names, or the tokenizer's own."""
        side = padding_side or self.padding_side
        require(side in ("right", "left"), "padding_side", "'right' or 'left'", side)
        return side

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str | PaddingStrategy = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | TensorType | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Pads encoded texts to one length, in words; arguments are as in every transformers tokenizer.

        Only keys of `PADDING_VALUES` are padded. Without `return_tensors`, the result is of the kind of `input_ids`.

        Raises:
            ValueError: if there is no text, an argument is illegal, or tensors are requested of texts whose lengths
                still differ.
        """
        is_list_of_texts = isinstance(encoded_inputs, (list, tuple))
        require(not is_list_of_texts or len(encoded_inputs) > 0, "encoded_inputs", "one text at least", encoded_inputs)
        data: dict[str, Any] = {}
        if is_list_of_texts:
            for key in encoded_inputs[0]:
                data[key] = [encoded_text[key] for encoded_text in encoded_inputs]
        else:
            data |= encoded_inputs
        is_batched = is_list_of_texts or self._is_batch_of_ids(data["input_ids"])
        if is_batched:
            require(len(data["input_ids"]) > 0, "encoded_inputs", "one text at least", encoded_inputs)
        else:
            data = {key: [value] for key, value in data.items()}
        if return_tensors is None:
            return_tensors = tensor_type_of(data["input_ids"])
        strategy, _, max_length, _ = self._get_padding_truncation_strategies(
            padding=padding, max_length=max_length, verbose=verbose
        )
        data["input_ids"] = [self._as_ids(ids) for ids in data["input_ids"]]
        lengths = np.array([len(ids) for ids in data["input_ids"]], dtype=np.int64)
        if return_attention_mask is not False and "attention_mask" not in data:
            data["attention_mask"] = [np.ones(length, dtype=np.int64) for length in lengths]
        padded_lengths = lengths_with_padding(lengths, strategy, max_length, pad_to_multiple_of)
        side = self._checked_padding_side(padding_side)
        for key, padding_value in PADDING_VALUES.items():
            if key in data:
                texts = [as_integers(text) for text in data[key]]
                data[key] = pad_texts(texts, padded_lengths, side, padding_value)
        return BatchEncoding(convert(data, return_tensors, drop_batch=not is_batched))

    def _as_ids(self, ids: Any) -> np.ndarray:
        """One text's ids as an array `(T, *id_shape)`, even if T is 0."""
        return as_integers(ids).reshape(-1, *self._codec.id_shape)

    def _is_batch_of_ids(self, ids: Any) -> bool:
        """Whether ids belong to several texts; a word's ids are never empty, so an empty list in a list is a text."""
        if is_list(ids) and len(ids) > 0:
            holds_only_empty_texts = all(is_list(text) and len(text) == 0 for text in ids)
            if holds_only_empty_texts:
                return True
        return nesting(ids) > 1 + len(self._codec.id_shape)

    @property
    def boundaries(self) -> tuple[str, str]:
        """The words before and after a text: `<S>` and `</S>`, or those of the model's own alphabet."""
        return self._codec.boundaries

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """2 boundaries, or 4 for a pair of texts; 0 without `add_boundaries`."""
        if not self.add_boundaries:
            return 0
        return 4 if pair else 2

    @property
    def all_special_ids(self) -> list[int]:
        """The single ids of all tokens that transformers calls special.

        They are boundaries, padding, and `<UNK>` or `[MASK]` where there is one.
        """
        ids = [self._tokenizer.token_to_id(token) for token in self.all_special_tokens]
        return [token_id for token_id in ids if token_id is not None]

    def get_special_tokens_mask(
        self, token_ids_0: Any, token_ids_1: Any = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """1 on boundaries and padding, for ids with boundaries."""
        if not already_has_special_tokens:
            return super().get_special_tokens_mask(token_ids_0, token_ids_1)
        return self._codec.is_special(self._as_ids(token_ids_0)).astype(int).tolist()

    def _add_tokens(self, new_tokens: Sequence[Any], special_tokens: bool = False) -> int:
        """Reserves words; raises ValueError for words that cannot be reserved.

        These are new padding or boundaries, names of single ids such as `<0x41>`, and every new word if ids come from a
        fixed vocabulary. The tokenizer's own padding and boundaries, which transformers adds, change nothing.
        """
        words = [str(token) for token in new_tokens]
        new_words = [word for word in words if word not in self._codec.symbols]
        if not isinstance(self._codec, CharacterCodec):
            require(not new_words, "new_tokens", "in the model's vocabulary, which is fixed", new_words)
            return super()._add_tokens(new_tokens, special_tokens)
        fixed_words = {self.special_tokens_map.get(name) for name in ("pad_token", "bos_token", "eos_token")}
        refused = [word for word in new_words if word in fixed_words]
        require(not refused, "new_tokens", "other words than padding and boundaries", refused)
        names = self._codec.symbols.keys() - {PADDING, *self.boundaries}
        refused = [word for word in words if word in names]
        require(not refused, "new_tokens", "other words than the names of bytes and marks in `get_vocab()`", refused)
        num_added = super()._add_tokens(new_tokens, special_tokens)
        ids = self._tokenizer.get_vocab()
        self._codec.reserved |= {word: ids[word] for word in new_words}
        return num_added

    def word_classes(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N,)` int64 classes of the softmax; unknown words become `<UNK>`.

        Class k is line k of the softmax's vocabulary, counted from 0. The tokenizer's own boundaries get the classes of
        `<S>` and `</S>`.

        Raises:
            ValueError: if the tokenizer has no such vocabulary.
        """
        standard_names = dict(zip(self.boundaries, VocabularyCodec.boundaries, strict=True))
        words = [standard_names.get(word, word) for word in words]
        return self._required_output_codec.encode(words) - 1

    def class_words(self, classes: Sequence[int]) -> list[str]:
        """The inverse of `word_classes`."""
        codec = self._required_output_codec
        return [codec.decode(np.asarray(word_class + 1)) for word_class in classes]

    @property
    def num_word_classes(self) -> int | None:
        """Size of the softmax's vocabulary, or None without one."""
        return None if self._output_codec is None else max(self._output_codec.symbols.values())

    @property
    def predicted_words(self) -> list[str] | None:
        """The softmax's vocabulary in class order, or None without one."""
        return None if self._output_codec is None else self._output_codec.lines

    @property
    def _required_output_codec(self) -> VocabularyCodec:
        """The codec of the softmax's vocabulary; raises ValueError without one."""
        if self._output_codec is None:
            raise ValueError(
                "this tokenizer has no vocabulary of predicted words: it was made without, or its folder lacks "
                "`words.txt`. Load it with `words_file=...`, a file of one word a line."
            )
        return self._output_codec

    @property
    def _vocabularies_by_file(self) -> dict[str, VocabularyCodec]:
        """The vocabularies that are saved in files of their own; that of word input is in `tokenizer.json`."""
        vocabularies = {}
        if self._output_codec is not None and self._output_codec is not self._codec:
            vocabularies[self.vocab_files_names["words_file"]] = self._output_codec
        if self.vector_codec is not None:
            vocabularies[self.vocab_files_names["vector_words_file"]] = self.vector_codec
        return vocabularies

    @property
    def saved_vocabularies(self) -> list[str]:
        """The files of words that `save_pretrained` writes; others in a folder are not the tokenizer's."""
        return list(self._vocabularies_by_file)

    def _save_pretrained(
        self, save_directory: str, *args: Any, filename_prefix: str | None = None, **kwargs: Any
    ) -> tuple[str, ...]:
        """Also saves the words of softmax and word vectors, and the code that loads the folder without this package."""
        if self._split_by is not None:
            logger.warning(
                "`word_splitter` is a function, which is not saved: loaded from this folder, the tokenizer splits at "
                "white space, unless it gets the function again."
            )
        save_code(save_directory)
        paths = super()._save_pretrained(save_directory, *args, filename_prefix=filename_prefix, **kwargs)
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        for name, codec in self._vocabularies_by_file.items():
            path = os.path.join(save_directory, prefix + name)
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{word}\n" for word in codec.lines)
            paths = (*paths, path)
        return paths

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Maps one word or a list of words to their ids.

        The name of a special token becomes its single id, because transformers looks up `pad_token_id` here.
        """
        if tokens is None:
            return None
        if isinstance(tokens, str):
            if tokens in self.all_special_tokens:
                return self._tokenizer.token_to_id(tokens)
            return self._codec.encode([tokens])[0].tolist()
        if not self._codec.id_shape:
            return [self.convert_tokens_to_ids(word) for word in tokens]
        return self._codec.encode(list(tokens)).tolist()

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Maps one word's ids to the word, one text's ids to a list of words, and single ids to their names."""
        array = as_integers(ids)
        num_word_axes = len(self._codec.id_shape)
        if array.ndim < num_word_axes:  # one single id
            return self._tokenizer.id_to_token(int(array))
        if array.shape == self._codec.id_shape:  # one word
            return self._codec.decode(array)
        if array.ndim == num_word_axes and array.size > 0:  # several single ids
            return [self._tokenizer.id_to_token(single_id) for single_id in array.tolist()]
        words = self._as_ids(array)
        if skip_special_tokens:
            words = words[~self._codec.is_special(words)]
        return [self._codec.decode(word) for word in words]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """Maps one text's ids to its words, joined by blanks, or a batch of ids to a list of such texts."""
        if self._is_batch_of_ids(token_ids):
            return [self.decode(ids, skip_special_tokens) for ids in token_ids]
        words = self.convert_ids_to_tokens(token_ids, skip_special_tokens)
        if isinstance(words, str):
            return words
        return " ".join(words)
