"""Checks of a model's inputs, made once where they enter the model; all other code trusts ids and masks.

Glossary: B batch, T words.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..scan.private_names import has_transforms, is_tracing
from .configuration_elmo import ElmoConfig, require

# The label of words that the loss skips, as in torch.
IGNORED = -100


def checked_words(input_ids: Any, attention_mask: Tensor | None, config: ElmoConfig) -> tuple[Tensor, Tensor]:
    """Ids `(B, T, ...)` as int64, and the mask `(B, T)` of words: the given one, or else positions with an id above 0.

    Raises:
        TypeError: if the ids are not integers.
        ValueError: if ids or mask have a wrong shape, if the ids' type is too small for the model's largest id, or if
            the model has no entry for an id where the mask is True.
    """
    check_shape("input_ids", input_ids, ("batch", "words", *config.id_shape))
    dtype, most = input_ids.dtype, config.vocab_size - 1
    require(torch.iinfo(dtype).max >= most, "input_ids", f"integers, of a type that holds ids up to {most}", dtype)
    input_ids = input_ids.long()
    mask = checked_mask(attention_mask, any_of_word(input_ids > 0))
    if may_look_at(input_ids):
        words = input_ids[mask]
        check_range("input_ids", words, most)
        if config.num_input_words > 0:
            check_range("input_ids", words[:, :-1], config.num_characters)
    return input_ids, mask


def checked_mask(attention_mask: Tensor | None, default: Tensor) -> Tensor:
    """`(B, T)`, True on words: the given mask, or else `default`; raises ValueError for other shapes or numbers."""
    if attention_mask is None:
        return default
    check_shape("attention_mask", attention_mask, default.shape)
    if may_look_at(attention_mask):
        wrong = attention_mask[(attention_mask != 0) & (attention_mask != 1)].tolist()
        require(not wrong, "attention_mask", "1 on words and 0 on padding", next(iter(wrong), None))
    return attention_mask.to(default.device).bool()


def any_of_word(is_found: Tensor) -> Tensor:
    """Reduces `is_found`, of the shape of the ids, to `(B, T)`: True if it is True for any id of the word."""
    return is_found.any(dim=-1) if is_found.dim() == 3 else is_found


def check_shape(name: str, value: object, shape: Sequence[int | str]) -> None:
    """Raises ValueError if a value is not a tensor of this shape; a string in `shape` is an axis of any length."""
    found = tuple(getattr(value, "shape", ()))
    is_legal = len(found) == len(shape) and all(isinstance(a, str) or a == b for a, b in zip(shape, found, strict=True))
    require(is_legal, name, f"a tensor of shape ({', '.join(map(str, shape))})", found or value)


def may_look_at(tensor: Tensor) -> bool:
    """Whether Python may read the numbers to check them: not on a GPU, because Python would have to wait for it."""
    return tensor.device.type == "cpu" and may_depend_on_data()


def may_depend_on_data() -> bool:
    """Whether shapes may depend on the numbers: not while a graph is made, and not under `torch.func`."""
    return not (torch.compiler.is_compiling() or is_tracing() or has_transforms())


def check_range(name: str, ids: Tensor, most: int) -> None:
    """Raises ValueError if ids are not from 0 to `most`."""
    wrong = ids[(ids < 0) | (ids > most)].tolist()
    require(not wrong, name, f"from 0 to {most}", next(iter(wrong), None))
