"""Pads texts of different lengths, and converts between nested lists, arrays and tensors.

The ids of a text are an array `(T, *id_shape)`: `(T, C)` for characters, `(T,)` for word ids. Codecs make the smallest
integers that hold their ids, because a word has C of them; what a caller gets is int64, as from every tokenizer of
transformers, which is what ONNX Runtime and embeddings of torch take.

The tokenizer of a folder also works where torch is not installed, with lists and NumPy arrays.

Glossary: B batch, T words of the longest text, C characters per word.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers.tokenization_utils_base import PaddingStrategy
from transformers.utils import TensorType, is_torch_available, is_torch_tensor

from ..model.configuration_elmo import require
from .word_codec import is_list

if is_torch_available():  # transformers does not ask for imports under this condition when it opens a folder
    import torch

# The keys that `pad` pads, and the value for each.
PADDING_VALUES = {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1, "bilm_layers": 0}
PADDING_VALUES |= {"word_vector_ids": 0, "marks": 0}


def lengths_with_padding(
    lengths: np.ndarray, strategy: PaddingStrategy, max_length: int | None, multiple: int | None
) -> np.ndarray:
    """The padded length `(B,)` of each text; never shorter than the text."""
    if strategy == PaddingStrategy.DO_NOT_PAD:
        return lengths
    target = lengths.max(initial=0) if strategy == PaddingStrategy.LONGEST or max_length is None else max_length
    if multiple:
        require(multiple > 0, "pad_to_multiple_of", "above 0", multiple)
        target = -(-target // multiple) * multiple
    return np.maximum(lengths, target)


def pad_each(texts: Sequence[np.ndarray], padded_lengths: np.ndarray, side: str, value: int) -> list[np.ndarray]:
    """Pads the first axis of each array with `value` on the `"right"` or `"left"` side."""
    padded = []
    for text, length in zip(texts, padded_lengths.tolist(), strict=True):
        filler = np.full((length - len(text), *text.shape[1:]), value, dtype=text.dtype)
        padded.append(np.concatenate({"right": [text, filler], "left": [filler, text]}[side]))
    return padded


def as_integers(values: Any) -> np.ndarray:
    """An array of integers; NumPy would make an empty list an array of floats."""
    array = np.asarray(values)
    return array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array


def convert(data: dict[str, Any], return_tensors: str | TensorType | None, drop_batch: bool) -> dict[str, Any]:
    """Converts each key to nested lists, or to one array or tensor; with `drop_batch`, returns only the first text.

    Integers of arrays and tensors are int64. As NumPy arrays, texts of different lengths become a list.

    Raises:
        ImportError: if tensors are wanted where torch is not installed.
        ValueError: if a key cannot be one tensor.
    """
    convert_one = {None: _as_lists, "np": _as_arrays, "pt": _as_tensor}[return_tensors]
    converted = {key: convert_one(key, value) for key, value in data.items()}
    return {key: value[0] for key, value in converted.items()} if drop_batch else converted


def _as_lists(key: str, value: Any) -> Any:
    return [row.tolist() if _is_array(row) or isinstance(row, np.generic) else row for row in value]


def _as_arrays(key: str, value: Any) -> Any:
    rows = [_as_int64(as_integers(row)) for row in value]
    return rows if len({row.shape for row in rows}) > 1 else np.array(rows)


def _as_int64(array: np.ndarray) -> np.ndarray:
    """The array, with integers as int64."""
    return array.astype(np.int64, copy=False) if array.dtype.kind in "iu" else array


def _as_tensor(key: str, value: Any) -> "torch.Tensor":
    if not is_torch_available():
        raise ImportError('`return_tensors="pt"` needs torch, which is not installed; `return_tensors="np"` does not.')
    array = _as_arrays(key, value)
    if isinstance(array, list) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"Unable to create a tensor of `{key}`: give numbers, and activate padding with `padding=True` if texts "
            "have different lengths, or truncation."
        )
    tensor = torch.from_numpy(array)
    # Python's own floats get torch's default type, as in `torch.tensor`.
    is_python = tensor.is_floating_point() and all(isinstance(row, (float, list)) for row in value)
    return tensor.to(torch.get_default_dtype()) if is_python else tensor


def _is_array(values: Any) -> bool:
    """Whether these are an array of NumPy or a tensor of torch."""
    return isinstance(values, np.ndarray) or is_torch_tensor(values)


def tensor_type_of(ids: Any) -> str | None:
    """The kind of tensor inside nested sequences of ids; None for plain numbers."""
    while is_list(ids) and len(ids) > 0:
        ids = ids[0]
    if is_torch_tensor(ids):
        return "pt"
    return "np" if isinstance(ids, np.ndarray) else None


def nesting(ids: Any) -> int:
    """Depth of nested ids: 0 for a number, 1 for a list of numbers; empty texts are skipped."""
    if _is_array(ids) and ids.dtype != object:
        return ids.ndim
    if not is_list(ids) and not isinstance(ids, np.ndarray):
        return 0
    return 1 + max((nesting(item) for item in ids), default=0)
