"""What a model's inputs may be, checked once, where they enter a model; behind that ids and masks are trusted.

Glossary: B batch, T words.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .configuration_elmo import ElmoConfig

# The label of words that the loss skips, as in torch.
IGNORED = -100


def checked_words(input_ids: Tensor, attention_mask: Tensor | None, config: ElmoConfig) -> tuple[Tensor, Tensor]:
    """Ids `(B, T, ...)` as int64, and the mask `(B, T)` of words: the caller's, or else positions with an id above 0.

    Raises:
        ValueError: if the ids are not integers, of a type too small for the model's ids, or of a wrong shape; if the
            mask has another shape; if the model has no entry for an id where the mask is True.
    """
    check_shape("input_ids", input_ids, ("batch", "words", *config.id_shape))
    dtype, most = input_ids.dtype, config.vocab_size - 1
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool or torch.iinfo(dtype).max < most:
        raise ValueError(f"`input_ids` must be integers, of a type that holds ids up to {most}, found {dtype}.")
    input_ids = input_ids.long()
    mask = checked_mask(attention_mask, any_of_word(input_ids > 0))
    if may_look_at(input_ids):
        words = input_ids[mask]
        check_range("input_ids", words, most)
        if config.num_input_words > 0:
            check_range("input_ids", words[:, :-1], config.num_characters)
    return input_ids, mask


def checked_mask(attention_mask: Tensor | None, default: Tensor) -> Tensor:
    """`(B, T)`, True on words: the caller's mask, or else `default`; raises ValueError for another shape."""
    if attention_mask is None:
        return default
    check_shape("attention_mask", attention_mask, default.shape)
    return attention_mask.to(default.device).bool()


def any_of_word(is_found: Tensor) -> Tensor:
    """`(B, T)`, whether `is_found`, of the shape of ids, is True for any id of a word."""
    return is_found.any(dim=-1) if is_found.dim() == 3 else is_found


def check_shape(name: str, value: object, shape: Sequence[int | str]) -> None:
    """Raises ValueError if a value is not a tensor of a shape; words in it name axes of any length."""
    found = tuple(value.shape) if isinstance(value, Tensor) else None
    expected = [size if isinstance(wanted, str) else wanted for wanted, size in zip(shape, found or (), strict=False)]
    if found is None or len(found) != len(shape) or list(found) != expected:
        legal, found_or_kind = ", ".join(map(str, shape)), type(value).__name__ if found is None else found
        raise ValueError(f"`{name}` must be a tensor of shape ({legal}), found {found_or_kind}.")


def may_look_at(tensor: Tensor) -> bool:
    """Whether Python may look at numbers to check them; on a GPU it would wait for them."""
    return tensor.device.type == "cpu" and may_depend_on_data()


def may_depend_on_data() -> bool:
    """Whether shapes may depend on numbers: not in a graph, and not under `torch.func`."""
    is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return not (is_graph or torch._C._are_functorch_transforms_active())


def check_range(name: str, ids: Tensor, most: int) -> None:
    """Raises ValueError if ids are not from 0 to `most`."""
    wrong = ids[(ids < 0) | (ids > most)]
    if len(wrong) > 0:
        raise ValueError(
            f"`{name}` must be from 0 to {most}, found {int(wrong[0])}; is this the model's own tokenizer?"
        )
