"""Words to character ids: AllenNLP's `batch_to_ids` and `ELMoCharacterMapper`."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from ..model.configuration_elmo import BEGIN_SENTENCE_ID, BEGIN_WORD_ID, END_SENTENCE_ID, END_WORD_ID, FILLER_ID
from ..model.tokenization_elmo import BEGIN_SENTENCE, END_SENTENCE, CharacterCodec

MAX_WORD_LENGTH = 50


def batch_to_ids(batch: list[list[str]]) -> Tensor:
    """Maps B lists of words to `(B, T, C)` character ids, without `<S>` and `</S>`, padded with rows of 0.

    Raises:
        ValueError: if a string is given instead of a list.
    """
    if any(isinstance(words, str) for words in batch):
        raise ValueError(f"`batch_to_ids` takes lists of words, found {batch!r:.200}.")
    codec = CharacterCodec(MAX_WORD_LENGTH)
    rows = [torch.from_numpy(codec.encode(words)).long() for words in batch]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def word_to_ids(tokens_to_add: Mapping[str, int], word: str) -> list[int]:
    """The C ids of a word, as in `batch_to_ids`; a word of `tokens_to_add` has the id after its number."""
    reserved = {token: number + 1 for token, number in tokens_to_add.items()}
    return CharacterCodec(MAX_WORD_LENGTH, reserved).encode([word])[0].tolist()


class WordToIds:
    """`convert_word_to_char_ids`, which old code calls on the class and on a mapper."""

    def __get__(self, mapper: "ELMoCharacterMapper | None", owner: type) -> Callable[[str], list[int]]:
        return partial(word_to_ids, {} if mapper is None else mapper.tokens_to_add)


def boundary_characters(word: str) -> list[int]:
    """The C numbers of a boundary, each one less than the id."""
    return [number - 1 for number in word_to_ids({}, word)]


class ELMoCharacterMapper:
    """Maps one word to its C ids: `convert_word_to_char_ids(word)`, of the class or of a mapper.

    The attributes have AllenNLP's values, one less than the ids, because id 0 is padding; so has `tokens_to_add`, the
    ids of words whose characters are replaced by one id, such as `{"[MASK]": 261}`.
    """

    max_word_length = MAX_WORD_LENGTH
    bos_token = BEGIN_SENTENCE
    eos_token = END_SENTENCE
    beginning_of_sentence_character = BEGIN_SENTENCE_ID - 1
    end_of_sentence_character = END_SENTENCE_ID - 1
    beginning_of_word_character = BEGIN_WORD_ID - 1
    end_of_word_character = END_WORD_ID - 1
    padding_character = FILLER_ID - 1
    beginning_of_sentence_characters = boundary_characters(BEGIN_SENTENCE)
    end_of_sentence_characters = boundary_characters(END_SENTENCE)
    convert_word_to_char_ids = WordToIds()

    def __init__(self, tokens_to_add: dict[str, int] | None = None) -> None:
        """Takes AllenNLP's argument."""
        self.tokens_to_add = tokens_to_add or {}
