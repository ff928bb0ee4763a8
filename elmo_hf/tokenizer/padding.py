"""Texts of different lengths as one batch: padding, and the step between nested lists, arrays and tensors.

A text's ids are an array `(T, *id_shape)`: `(T, C)` for rows of characters, `(T,)` for word ids. A batch is
`(B, T, *id_shape)` where all texts are padded to one length, and a list of arrays where they are not.

Glossary: B batch, T words of the longest text, C characters per word.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.tokenization_utils_base import PaddingStrategy
from transformers.utils import TensorType

# The value a key is padded with. Other keys of a batch are left as they are.
PADDING_VALUES = {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1, "bilm_layers": 0}


def lengths_with_padding(
    lengths: np.ndarray, strategy: PaddingStrategy, max_length: int | None, multiple: int | None
) -> np.ndarray:
    """Length of each text with its padding: no text gets shorter."""
    if strategy == PaddingStrategy.DO_NOT_PAD or len(lengths) == 0:
        return lengths
    target = lengths.max() if strategy == PaddingStrategy.LONGEST or max_length is None else max_length
    if multiple:
        target = -(-target // multiple) * multiple
    return np.maximum(lengths, target)


def spread(flat: np.ndarray, lengths: np.ndarray, padded_lengths: np.ndarray, side: str) -> Any:
    """Lays out a batch.

    Args:
        flat: `(sum of lengths, *id_shape)`, the rows of all texts one after another.
        lengths: `(B,)`, words of each text.
        padded_lengths: `(B,)`, its length with padding.
        side: where padding stands, `"right"` or `"left"`.

    Returns:
        `(B, T, *id_shape)`, or a list of `(T, *id_shape)` where the padded lengths differ.
    """
    longest = padded_lengths.max(initial=0)
    if (padded_lengths == longest).all():
        places = np.arange(longest)
        is_word = places < lengths[:, None] if side == "right" else places >= (longest - lengths)[:, None]
        batch = np.zeros((*is_word.shape, *flat.shape[1:]), dtype=flat.dtype)
        batch[is_word] = flat
        return batch
    texts = np.split(flat, np.cumsum(lengths)[:-1])
    return [pad_one(text, length, side, 0) for text, length in zip(texts, padded_lengths.tolist(), strict=True)]


def pad_one(rows: np.ndarray, length: int, side: str, value: int) -> np.ndarray:
    """Pads one text's rows to `length` with `value`."""
    missing = length - len(rows)
    widths = [(missing, 0) if side == "left" else (0, missing)] + [(0, 0)] * (rows.ndim - 1)
    return np.pad(rows, widths, constant_values=value)


def as_integers(values: Any) -> np.ndarray:
    """An array of any integers; NumPy would take an empty list for floats."""
    array = np.asarray(values)
    return array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array


def as_lists(key: str, value: Any) -> Any:
    """Python lists, as tokenizers return without `return_tensors`; offsets as pairs."""
    lists = [row.tolist() if isinstance(row, (np.ndarray, np.generic, torch.Tensor)) else row for row in value]
    return [[tuple(pair) for pair in row] for row in lists] if key == "offset_mapping" else lists


def as_array(key: str, value: Any, tensor_type: TensorType) -> Any:
    """One array or tensor for the batch, or a list of arrays where lengths differ.

    Character ids stay int16 in NumPy, a quarter of a tensor's size.
    """
    if tensor_type not in (TensorType.PYTORCH, TensorType.NUMPY):
        raise ValueError(f"`return_tensors` must be 'pt' or 'np', found {tensor_type.value!r}.")
    rows = [np.asarray(row) for row in value]
    if len({row.shape for row in rows}) <= 1:
        array = np.asarray(value) if isinstance(value, np.ndarray) else np.array(rows)
        if tensor_type == TensorType.NUMPY:
            return array
        return torch.from_numpy(array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array)
    if tensor_type == TensorType.PYTORCH:
        raise ValueError(
            f"Unable to create a tensor of `{key}`, because texts have different lengths: activate padding with "
            "`padding=True`, or truncation as well."
        )
    return rows


def tensor_type_of(ids: Any) -> TensorType | None:
    """The kind of tensor in which ids came in."""
    innermost = ids
    while is_sequence(innermost) and len(innermost) > 0:
        innermost = innermost[0]
    if isinstance(innermost, torch.Tensor):
        return TensorType.PYTORCH
    return TensorType.NUMPY if isinstance(innermost, np.ndarray) else None


def nesting(ids: Any) -> int:
    """How deeply ids are nested: 0 a number, 1 a list of numbers, and so on; looks past empty texts."""
    if isinstance(ids, (np.ndarray, torch.Tensor)) and not (isinstance(ids, np.ndarray) and ids.dtype == object):
        return ids.ndim
    if not is_sequence(ids) and not isinstance(ids, np.ndarray):
        return 0
    return 1 + max((nesting(item) for item in ids), default=0)


def is_sequence(value: Any) -> bool:
    """Whether a value is a list or the like, and not a string."""
    return isinstance(value, Sequence) and not isinstance(value, str)
