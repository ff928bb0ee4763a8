"""Short names for the ids and the mask that tests of the tokenizer expect for a line of words."""

from elmo_hf.conversion.readers.manylangs import name_symbols
from elmo_hf.model.tokenization_elmo import CharacterCodec

C = 11
SPLIT = {"is_split_into_words": True}
BARE = {"add_special_tokens": False}
# Rows of two tables of code points and words; ids are one more, and words come after the ten rows of characters.
CHARACTERS = {"a": 0, "b": 1, "é": 2, "日": 3, "<bos>": 4, "<eos>": 5, "<oov>": 6, "<pad>": 7, "<bow>": 8, "<eow>": 9}
WORDS = {"<oov>": 0, "<bos>": 1, "<eos>": 2, "<pad>": 3, "ab": 4, "日": 5, "<pad>a": 6, "ababa": 7}
BOTH = name_symbols(CHARACTERS, WORDS, 10)
CHARACTERS_ALONE = name_symbols(CHARACTERS, {}, 10)
WORDS_ALONE = name_symbols({}, WORDS, 0)


def rows(words: str) -> list[list[int]]:
    """The ids of words between blanks; `_` is a position without a word."""
    return [[0] * C if word == "_" else CharacterCodec(C).encode([word])[0].tolist() for word in words.split()]


def mask(words: str) -> list[int]:
    """1 for each word and 0 for each `_`."""
    return [int(word != "_") for word in words.split()]
