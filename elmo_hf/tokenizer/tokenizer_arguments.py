"""Arguments of every transformers tokenizer, as an ELMo's understands them.

A call takes one text or a batch, each text a string or a list of words, alone or with a second text beside it; here
all of these become two lists of one length. Settings that change nothing in an ELMo are refused, not passed over.
"""

from collections.abc import Sequence
from typing import Any

from .padding import is_sequence


def check_special_tokens(kwargs: dict[str, Any], special_tokens: dict[str, str]) -> None:
    """Refuses settings of other tokenizers that would silently do nothing here.

    Args:
        kwargs: what the constructor was given.
        special_tokens: the one legal value of `pad_token`, `bos_token` and `eos_token`.

    Raises:
        ValueError: if one of them is to be another, or boundaries are switched off for good.
    """
    for name, token in special_tokens.items():
        if str(kwargs.get(name, token)) != token:
            raise ValueError(f"`{name}` of an ELMo is always {token!r}, found {kwargs[name]!r}.")
    for name in ("add_bos_token", "add_eos_token"):
        if not kwargs.get(name, True):
            raise ValueError(f"`{name}=False` is not supported; call the tokenizer with `add_special_tokens=False`.")


def is_batch(text: Any, is_split_into_words: bool) -> bool:
    """Whether a call's `text` is several texts; an empty list of words is one text without words."""
    if is_split_into_words:
        return is_sequence(text) and len(text) > 0 and is_sequence(text[0])
    return is_sequence(text)


def as_batch(
    text: Any, text_pair: Any, is_batched: bool, is_split_into_words: bool
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Texts and second texts of a batch; the second ones are None where there are none.

    Args:
        text: one text; or a batch of texts, or of tuples of two texts.
        text_pair: second texts in the same form, or None.
        is_batched: what `is_batch` says of `text`.
        is_split_into_words: whether a text is a list of words.

    Raises:
        TypeError: if `text` is a batch and `text_pair` is one string.
        ValueError: if there are not as many second texts as texts.
    """
    if not is_batched:
        return [text], [text_pair]
    if text_pair is None and len(text) > 0 and isinstance(text[0], tuple) and len(text[0]) == 2:
        holds_words = is_split_into_words and isinstance(text[0][0], str)
        if not holds_words:
            return [first for first, _ in text], [second for _, second in text]
    if isinstance(text_pair, str):
        raise TypeError("for a batch of texts, `text_pair` must be a list of as many texts, found a string.")
    if text_pair is not None and len(text) != len(text_pair):
        raise ValueError(f"`text` has {len(text)} texts and `text_pair` has {len(text_pair)}; they must be as many.")
    return text, [None] * len(text) if text_pair is None else text_pair


def is_wanted(choice: bool | None, key: str, model_input_names: list[str]) -> bool:
    """Whether a key is to be returned: as the caller chose, or else if the model reads it."""
    return key in model_input_names if choice is None else choice
