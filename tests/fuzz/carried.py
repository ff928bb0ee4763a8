"""Whether a converted model is what the checkpoint holds.

Every number of a converted model is one number of the checkpoint or its negative, or the zero of a padding vector. All
numbers of a valid input differ, so its conversion shows where each one goes (`Places`). A changed input of the same
arrays must send its numbers to the same places; one of other arrays must keep the same numbers. The options' values
must be the config's.
"""

import json
from typing import Any

import numpy as np
from checkpoints import Arrays

from elmo_hf import ElmoConfig

from .mutators import Files
from .outcomes import Wrong


class Places:
    """Where each number of a valid checkpoint goes."""

    def __init__(self, source: Arrays, tensors: Arrays) -> None:
        """Takes what a plain reader finds in the checkpoint, and the converted tensors."""
        self.shapes = {name: array.shape for name, array in source.items()}
        numbers = _joined(source)
        order = np.argsort(np.abs(numbers), kind="stable")
        ranked = np.abs(numbers)[order]
        self.by_name: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        carried = np.zeros(len(numbers), dtype=bool)
        has_twin = np.append(ranked[1:] == ranked[:-1], False)
        for name, tensor in tensors.items():
            flat = tensor.reshape(-1).astype(np.float32)
            rank = np.minimum(np.searchsorted(ranked, np.abs(flat)), len(ranked) - 1)
            assert not (has_twin[rank] & (flat != 0)).any(), f"{name} holds a number that is twice in the checkpoint"
            place = np.where(ranked[rank] == np.abs(flat), order[rank], -1)
            assert ((place >= 0) | (flat == 0)).all(), f"{name} holds numbers that are not in the checkpoint"
            self.by_name[name] = place, np.where(place < 0, 0, np.sign(flat) * np.sign(numbers[place]))
            carried[place[place >= 0]] = True
        starts = np.cumsum([0, *(array.size for array in source.values())])
        self.carried = {
            name for name, start, end in zip(source, starts, starts[1:], strict=False) if carried[start:end].any()
        }

    def compare(self, source: Arrays, tensors: Arrays) -> None:
        """Raises `Wrong` if tensors are not what the arrays say."""
        if all(name in source and source[name].shape == self.shapes[name] for name in self.carried):
            # Arrays that are not carried may have changed; they keep the others in their places.
            kept = {name: source[name] if name in self.carried else np.zeros(self.shapes[name]) for name in self.shapes}
            numbers = np.append(_joined(kept), 0)
            for name, (place, sign) in self.by_name.items():
                expected = numbers[place] * sign.astype(np.float32)
                if name not in tensors or not np.array_equal(tensors[name].reshape(-1), expected, equal_nan=True):
                    raise Wrong(f"tensor {name} is not what the checkpoint holds")
            return
        found, expected = (np.sort(np.abs(_joined(arrays))) for arrays in (tensors, source))
        if not np.isin(found[found > 0], expected).all():
            raise Wrong("tensors hold numbers that the checkpoint lacks")


def distinct(arrays: Arrays, seed: int = 1) -> Arrays:
    """Arrays of the same shapes in which no two numbers have one absolute value, nor in those of other seeds."""
    generator = np.random.default_rng(seed)
    total = sum(array.size for array in arrays.values())
    numbers = generator.permutation(np.linspace(0.1 * seed, 0.1 * seed + 0.09, total)) * generator.choice(
        [-1, 1], total
    )
    cuts = np.cumsum([array.size for array in arrays.values()])[:-1]
    parts = np.split(numbers.astype(np.float32), cuts)
    return {name: part.reshape(array.shape) for (name, array), part in zip(arrays.items(), parts, strict=True)}


def options_of(files: Files, fields: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """What the options say of each field, if they are in a file outside archives."""
    sections = {path[0] for path in fields.values()}
    for content in files.values():
        try:
            options = json.loads(content or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(options, dict) and sections & options.keys():
            return {field: _dig(options, path) for field, path in fields.items()}
    return {}


def _dig(options: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        options = options.get(key) if isinstance(options, dict) else None
    return options


def compare_fields(expected: dict[str, Any], config: dict[str, Any]) -> None:
    """Raises `Wrong` if a field of the config is not what the options say."""
    for field, value in expected.items():
        found = config.get(field, getattr(ElmoConfig, field))
        if field.endswith("_clip"):
            value = float(value) if type(value) is int and value else value or None
        if value is not None and (value != found or isinstance(value, bool) != isinstance(found, bool)):
            raise Wrong(f"the options' {field} became another value: {value!r:.80} became {found!r:.80}")


def _joined(arrays: Arrays) -> np.ndarray:
    with np.errstate(all="ignore"):
        parts = [np.asarray(array).reshape(-1).astype(np.float32) for array in arrays.values()]
    return np.concatenate([*parts, np.zeros(0, np.float32)])
