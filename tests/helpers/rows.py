"""Short names for the ids and the mask that tests of the tokenizer expect for a line of words."""

from elmo_hf.tokenizer.word_codec import CharacterCodec

C = 11
SPLIT = {"is_split_into_words": True}
BARE = {"add_special_tokens": False}


def rows(words: str) -> list[list[int]]:
    """The ids of words between blanks; `_` is a position without a word."""
    return [[0] * C if word == "_" else CharacterCodec(C).encode([word])[0].tolist() for word in words.split()]


def mask(words: str) -> list[int]:
    """1 for each word and 0 for each `_`."""
    return [int(word != "_") for word in words.split()]
