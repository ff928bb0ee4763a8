"""What a model's inputs may be; without these checks, errors would come from deep inside torch, or not at all.

Checks that look at numbers run on CPUs only, because on a GPU Python would wait for them, and not in compiled graphs.

Glossary: B batch, T words, N words of a batch, C characters per word.
"""

import torch
from torch import Tensor, nn

from .configuration_elmo import ElmoConfig

# The label of words that the loss skips, as in torch.
IGNORED = -100


def require_tensor(name: str, value: object) -> None:
    """Raises ValueError for anything that is no tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"`{name}` must be a tensor, found {type(value).__name__}; `torch.tensor` makes one.")


def checked_ids(input_ids: Tensor, config: ElmoConfig) -> Tensor:
    """Ids `(B, T, ...)` of any integer type as int64.

    Raises:
        ValueError: if they are no integers, of a type too small for the model's ids, or on the meta device.
    """
    require_tensor("input_ids", input_ids)
    if input_ids.is_meta:
        raise ValueError("`input_ids` are on the meta device, which holds no numbers; make them on a real one.")
    if input_ids.is_floating_point() or input_ids.is_complex() or input_ids.dtype == torch.bool:
        raise ValueError(f"`input_ids` must be integers, found {input_ids.dtype}.")
    largest = torch.iinfo(input_ids.dtype).max
    if largest < config.vocab_size - 1:
        raise ValueError(
            f"`input_ids` of this model go up to {config.vocab_size - 1}, found {input_ids.dtype}, which ends at "
            f"{largest}."
        )
    return input_ids.long()


def check_shapes(arguments: dict[str, Tensor | None], mask: Tensor) -> None:
    """Raises ValueError if an argument is not a tensor of the same shape as `mask` `(B, T)`; None is left out."""
    given = {name: value for name, value in arguments.items() if value is not None}
    for name, value in given.items():
        require_tensor(name, value)
        if value.shape != mask.shape:
            expected, found = tuple(mask.shape), tuple(value.shape)
            raise ValueError(f"`{name}` must have shape (batch, words) = {expected}, found {found}.")


def check_range(words: Tensor, config: ElmoConfig) -> None:
    """Raises ValueError if the model has no entry for an id of the words `(N, C)`, `(N, C + 1)` or `(N,)`."""
    if words.device.type != "cpu" or words.numel() == 0:
        return
    parts = [(words, config.vocab_size - 1)]
    if config.num_input_words > 0:
        parts.append((words[:, :-1], config.num_characters))
    for part, most in parts:
        smallest, largest = (int(end) for end in part.aminmax())
        if smallest < 0 or largest > most:
            found = smallest if smallest < 0 else largest
            what = "" if part is words else "of characters "
            raise ValueError(
                f"`input_ids` {what}must be from 0 to {most}, found {found}; is this the model's own tokenizer?"
            )


def check_has_weights(embedding: nn.Embedding, model: nn.Module) -> None:
    """Raises ValueError for a model on the meta device, unless hooks of accelerate bring the weights in time."""
    if embedding.weight.is_meta and not any(hasattr(module, "_hf_hook") for module in model.modules()):
        raise ValueError("the model is on the meta device, which holds no weights; load it with `from_pretrained`.")
