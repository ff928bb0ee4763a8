"""The engine of conversion: tables of rules that work in both directions.

A format is a list of `Rule`s. Each rule pairs one foreign array with one or more of our tensors and lists the
operations between them. Every operation has an inverse, so import and export use the same table:

    ours    = op_n(... op_1([theirs]))            `import_arrays`
    [theirs] = op_1^-1(... op_n^-1(ours))         `export_arrays`

Operations work on lists of NumPy arrays, because one foreign array may hold several of our tensors. The operations only
move numbers and change signs, so a round trip gives the same bits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .refusals import ConversionError, listed, shortened

Arrays = list[np.ndarray]


class ArrayOp(NamedTuple):
    """A reversible rearrangement: `apply` maps arrays of the foreign file to ours, `invert` ours to the file's."""

    apply: Callable[[Arrays], Arrays]
    invert: Callable[[Arrays], Arrays]


def _transpose(arrays: Arrays) -> Arrays:
    return [array.transpose() for array in arrays]


def _swap_middle_gates(arrays: Arrays) -> Arrays:
    swapped = []
    for array in arrays:
        first, second, third, fourth = np.split(array, 4, axis=-1)
        swapped.append(np.concatenate([first, third, second, fourth], axis=-1))
    return swapped


def _negate_second(arrays: Arrays) -> Arrays:
    return [arrays[0], -arrays[1]]


def _drop_zero_row(arrays: Arrays) -> Arrays:
    if any(array[0].any() for array in arrays):
        raise ConversionError(
            "row 0 of the embedding, the vector of padding, must be zero, because the format has no place for it; the "
            "model's has other numbers."
        )
    return [array[1:] for array in arrays]


# Reverses the axes: TensorFlow's kernel `(in, out)` or `(width, in, out)` becomes torch's weight.
TRANSPOSE = ArrayOp(_transpose, _transpose)
# Removes a first axis of length 1, a TensorFlow convolution's height.
DROP_LEADING_AXIS = ArrayOp(
    lambda arrays: [array.reshape(array.shape[1:]) for array in arrays],
    lambda arrays: [array[np.newaxis] for array in arrays],
)
# Gives a single number an axis of length 1.
ADD_LEADING_AXIS = ArrayOp(DROP_LEADING_AXIS.invert, DROP_LEADING_AXIS.apply)
# Swaps the middle quarters of the last axis: TensorFlow's gates i, j, f, o become torch's i, f, g, o.
SWAP_MIDDLE_GATES = ArrayOp(_swap_middle_gates, _swap_middle_gates)
# Cuts `(2n, ...)` into two arrays `(n, ...)`: the input half and the recurrent half of an LSTM kernel.
SPLIT_ROWS = ArrayOp(lambda arrays: np.split(arrays[0], 2), lambda arrays: [np.concatenate(arrays)])
# Negates the second of two arrays: a highway gate on the old value becomes a gate on the new value.
NEGATE_SECOND = ArrayOp(_negate_second, _negate_second)
# Puts the padding id's zero vector in front of a table; files lack this vector, and bilm-tf adds it on reading.
PREPEND_ZERO_ROW = ArrayOp(
    lambda arrays: [np.concatenate([np.zeros_like(array[:1]), array]) for array in arrays], _drop_zero_row
)


def pad_columns(size: int, width: int) -> ArrayOp:
    """Fills a matrix up with columns of zeros, from `size` to `width` columns."""
    return ArrayOp(
        lambda arrays: [np.pad(array, ((0, 0), (0, width - size))) for array in arrays],
        lambda arrays: [array[:, :size] for array in arrays],
    )


def num_rows(shape: tuple[int, ...]) -> int:
    """The length of an array's first axis; 0 for a single number, which no rule takes for a table."""
    return shape[0] if shape else 0


@dataclass(frozen=True)
class Rule:
    """One row of a format's table."""

    source: str  # name of the foreign array
    shape: tuple[int, ...]  # its shape
    targets: tuple[str, ...]  # names of our tensors, in the order that the operations return them
    ops: tuple[ArrayOp, ...] = ()  # the operations from `source` to `targets`, in the order of import


def import_arrays(rules: Iterable[Rule], source: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Applies every rule, and checks that the rules use each foreign array exactly once.

    Args:
        rules: the format's table for this architecture.
        source: the foreign arrays by name.
        where: the file's name, for messages.

    Returns:
        our tensors by name, C-contiguous float32; other float types are cast, as AllenNLP's reader does.

    Raises:
        ConversionError: if an array is missing, unknown or of a wrong shape, if its values are not finite floats, or if
            a matrix has only zeros; the message lists all faults.
    """
    rules = list(rules)
    faults = _faults(rules, source)
    if faults:
        separator = "\n  "
        raise ConversionError(
            f"{where} does not hold the arrays that its options describe:\n  {listed(faults, separator)}\n"
            "Check that the options file belongs to these weights."
        )
    imported = {}
    for rule in rules:
        arrays: Arrays = [source[rule.source]]
        for op in rule.ops:
            arrays = op.apply(arrays)
        for target, array in zip(rule.targets, arrays, strict=True):
            imported[target] = np.array(array, dtype=np.float32, order="C")
    return imported


def export_arrays(rules: Iterable[Rule], tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Applies every rule backwards.

    Returns:
        the foreign arrays by name, C-contiguous.

    Raises:
        KeyError: if one of our tensors is missing.
        ConversionError: if the format cannot hold a value.
    """
    exported = {}
    for rule in rules:
        arrays = [tensors[target] for target in rule.targets]
        for op in reversed(rule.ops):
            arrays = op.invert(arrays)
        exported[rule.source] = np.ascontiguousarray(arrays[0])
    return exported


def _faults(rules: Sequence[Rule], source: Mapping[str, np.ndarray]) -> list[str]:
    """What keeps the rules from being applied: arrays that are missing, unknown or not as their rule says."""
    known = {rule.source for rule in rules}
    faults = [f"missing: `{rule.source}` {rule.shape}" for rule in rules if rule.source not in source]
    for name, array in source.items():
        if name not in known:
            faults.append(f"unknown: `{shortened(name, 100)}` {array.shape}")
    for rule in rules:
        if rule.source in source:
            faults += _faults_of_array(rule, source[rule.source])
    return faults


def _faults_of_array(rule: Rule, array: np.ndarray) -> list[str]:
    if array.shape != rule.shape:
        return [f"shape: `{rule.source}` must be {rule.shape}, found {array.shape}"]
    if array.dtype.kind != "f":
        return [f"type: `{rule.source}` must be float32, found {array.dtype}"]
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(array.astype(np.float32, copy=False)).all()
    if not is_finite:
        return [f"values: `{rule.source}` holds NaN or infinite numbers"]
    # A bias may be zero; a matrix of zeros is what a file without its numbers gives.
    if array.ndim > 1 and array.size > 0 and not array.any():
        return [f"values: `{rule.source}` holds only zeros, as if it had never been filled"]
    return []
