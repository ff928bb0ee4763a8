"""The special tokens of a tokenizer: padding and boundaries are the model's own, and no token can be added."""

from collections.abc import Sequence
from typing import Any

from .code_point_codec import CodePointCodec
from .word_codec import PADDING, UNKNOWN_WORD, CharacterCodec, VocabularyCodec, is_list

Codec = CharacterCodec | VocabularyCodec | CodePointCodec


def own_special_tokens(codec: Codec, kwargs: dict[str, Any]) -> dict[str, str]:
    """The special tokens of a codec; raises ValueError for arguments that would have no effect."""
    begin, end = codec.boundaries
    fixed = {"pad_token": PADDING, "bos_token": begin, "eos_token": end}
    for name, token in fixed.items():
        if str(kwargs.get(name, token)) != token:
            raise ValueError(f"`{name}` of an ELMo is always {token!r}, found {kwargs[name]!r:.200}.")
    if kwargs.get("do_lower_case"):
        raise ValueError("`do_lower_case=True` is not supported: an ELMo reads case; lower the texts yourself.")
    for name in ("add_bos_token", "add_eos_token"):
        if not kwargs.get(name, True):
            raise ValueError(f"`{name}=False` is not supported; call the tokenizer with `add_special_tokens=False`.")
    return fixed | {"unk_token": UNKNOWN_WORD} if isinstance(codec, VocabularyCodec) else fixed


def check_special_tokens(codec: Codec, tokens: dict[str, Any]) -> None:
    """Raises ValueError if a special token is not one of the model's own."""
    own_special_tokens(codec, tokens)
    for token in tokens.values():
        check_known(codec, token if is_list(token) else [token] if token else [])


def check_known(codec: Codec, tokens: Sequence[Any]) -> None:
    """Raises ValueError for tokens without an id."""
    unknown = [str(token) for token in tokens if str(token) not in codec.symbols]
    if unknown:
        raise ValueError(
            f"no token can be added to an ELMo's `vocab`, found {unknown!r:.200}: its ids are characters, or "
            "the words that the model was trained with."
        )
