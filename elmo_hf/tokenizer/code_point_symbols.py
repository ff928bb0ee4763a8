"""The vocabulary of a tokenizer of code points, from the tables of characters and words of a model."""

from collections.abc import Mapping

from ..model.configuration_elmo import PADDING_ID
from .code_point_codec import BOS, CHARACTER, EOS, WORD
from .word_codec import PADDING


def name_symbols(characters: Mapping[str, int], words: Mapping[str, int], num_characters: int) -> dict[str, int]:
    """Builds a tokenizer's vocabulary, ids by name.

    Characters and words come with their index in the model's table, from 0; a table that the model lacks is empty.
    """
    symbols = {WORD + word: 1 + num_characters + index for word, index in words.items()}
    symbols |= {CHARACTER + character: 1 + index for character, index in characters.items()}
    prefix = CHARACTER if characters else WORD
    for boundary in (BOS, EOS):
        if prefix + boundary in symbols:
            symbols[boundary] = symbols.pop(prefix + boundary)
    return symbols | {PADDING: PADDING_ID}
