"""What a model's inputs may be, checked once, where they enter a model; behind that ids and masks are trusted.

Glossary: B batch, T words.
"""

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
    require_tensor("input_ids", input_ids)
    is_other = input_ids.is_floating_point() or input_ids.is_complex() or input_ids.dtype == torch.bool
    if is_other or torch.iinfo(input_ids.dtype).max < config.vocab_size - 1:
        raise ValueError(
            f"`input_ids` must be integers, of a type that holds the ids of this model, up to {config.vocab_size - 1}, "
            f"found {input_ids.dtype}."
        )
    shape = config.id_shape
    if input_ids.dim() != 2 + len(shape) or input_ids.shape[2:] != shape:
        ids = f"character ids of shape (batch, words, {shape[0]})" if shape else "word ids of shape (batch, words)"
        found = tuple(input_ids.shape)
        raise ValueError(f"`input_ids` must be {ids}, found {found}; `ElmoTokenizer` makes them.")
    input_ids = input_ids.long()
    mask = checked_mask(attention_mask, any_of_word(input_ids > 0))
    if may_look_at(input_ids):
        words = input_ids[mask]
        check_range("input_ids", words, config.vocab_size - 1)
        if config.num_input_words > 0:
            check_range("input_ids", words[:, :-1], config.num_characters, "of characters ")
    return input_ids, mask


def checked_mask(attention_mask: Tensor | None, default: Tensor) -> Tensor:
    """`(B, T)`, True on words: the caller's mask, or else `default`; raises ValueError for another shape."""
    if attention_mask is None:
        return default
    check_shape("attention_mask", attention_mask, default)
    return attention_mask.to(default.device).bool()


def any_of_word(is_found: Tensor) -> Tensor:
    """`(B, T)`, whether `is_found`, of the shape of ids, is True for any id of a word."""
    return is_found.any(dim=-1) if is_found.dim() == 3 else is_found


def require_tensor(name: str, value: object) -> None:
    """Raises ValueError for anything that is no tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"`{name}` must be a tensor, found {type(value).__name__}; `torch.tensor` makes one.")


def check_shape(name: str, value: Tensor, mask: Tensor) -> None:
    """Raises ValueError if a value is not a tensor of the same shape as `mask` `(B, T)`."""
    require_tensor(name, value)
    if value.shape != mask.shape:
        expected, found = tuple(mask.shape), tuple(value.shape)
        raise ValueError(f"`{name}` must have shape (batch, words) = {expected}, found {found}.")


def may_look_at(tensor: Tensor) -> bool:
    """Whether Python may look at numbers to check them; on a GPU it would wait for them."""
    return tensor.device.type == "cpu" and may_depend_on_data()


def may_depend_on_data() -> bool:
    """Whether shapes may depend on numbers: not in a graph, and not under `torch.func`."""
    is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return not (is_graph or torch._C._are_functorch_transforms_active())


def check_range(name: str, ids: Tensor, most: int, which: str = "") -> None:
    """Raises ValueError if ids are not from 0 to `most`."""
    smallest, largest = ids.aminmax() if ids.numel() else (0, 0)
    if smallest < 0 or largest > most:
        found = int(smallest if smallest < 0 else largest)
        raise ValueError(f"`{name}` {which}must be from 0 to {most}, found {found}; is this the model's own tokenizer?")
