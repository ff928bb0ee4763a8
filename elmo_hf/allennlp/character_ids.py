"""Words to character ids: AllenNLP's `batch_to_ids` and `ELMoCharacterMapper`."""

import functools

from torch import Tensor

from ..model.configuration_elmo import (
    BEGIN_SENTENCE_ID,
    BEGIN_WORD_ID,
    END_SENTENCE_ID,
    END_WORD_ID,
    FILLER_ID,
)
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from ..tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, CharacterCodec

MAX_WORD_LENGTH = 50


def batch_to_ids(batch: list[list[str]]) -> Tensor:
    """Maps B lists of words to `(B, T, C)` character ids, without `<S>` and `</S>`, padded with rows of 0.

    Raises:
        ValueError: if there is no list, or a string in place of one.
    """
    if len(batch) == 0 or any(isinstance(words, str) for words in batch):
        raise ValueError(f"`batch_to_ids` takes one list of words or more, found {batch!r:.200}.")
    encoded = _tokenizer()(batch, is_split_into_words=True, add_special_tokens=False, padding=True, return_tensors="pt")
    return encoded["input_ids"]


class ELMoCharacterMapper:
    """Maps one word to its C ids.

    The attributes, as AllenNLP has them, are one less than the ids: 0 is the id of padding.
    """

    max_word_length = MAX_WORD_LENGTH
    bos_token = BEGIN_SENTENCE
    eos_token = END_SENTENCE
    beginning_of_sentence_character = BEGIN_SENTENCE_ID - 1
    end_of_sentence_character = END_SENTENCE_ID - 1
    beginning_of_word_character = BEGIN_WORD_ID - 1
    end_of_word_character = END_WORD_ID - 1
    padding_character = FILLER_ID - 1

    @staticmethod
    def convert_word_to_char_ids(word: str) -> list[int]:
        """The C ids of a word, as `batch_to_ids` gives them."""
        return CharacterCodec(MAX_WORD_LENGTH).encode([word])[0].tolist()


@functools.cache
def _tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer(max_word_length=MAX_WORD_LENGTH)
