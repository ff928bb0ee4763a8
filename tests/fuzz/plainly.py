"""What a file holds, read with h5py, torch and Python's own modules, and whether a converted model holds the same.

Every number of a converted model is one number of the checkpoint or its negative, or the zero of a padding vector. All
numbers of a valid input differ, so its conversion shows where each one goes (`Places`). A changed input of the same
arrays must send its numbers to the same places; one of other arrays must keep the same numbers. The options' values
must be the config's.
"""

import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import safetensors.numpy
import torch
from checkpoints import Arrays

from elmo_hf import ElmoConfig

from .containers import Files
from .inputs import Wrong

Reader = Callable[[Files], Arrays]
# Names that lead outside an archive, on some system.
HOSTILE = re.compile(r"^/|(^|/)\.\.(/|$)|\\|\0|^[A-Za-z]:")


def read_hdf5(files: Files) -> Arrays:
    """Every dataset of every hdf5 file."""
    arrays: Arrays = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu":
            arrays[name] = item[()]

    for content in ending(files, ".hdf5", ".dump").values():
        with h5py.File(io.BytesIO(content)) as file:
            file.visititems(keep)
    return arrays


def read_torch(files: Files) -> Arrays:
    """Every tensor of every state dict; names begin with the file's."""
    return {
        f"{name}:{key}": value.float().numpy(force=True)
        for name, content in sorted(ending(files, ".th", ".pkl").items())
        for key, value in torch.load(io.BytesIO(content), weights_only=True).items()
        if isinstance(value, torch.Tensor)
    }


def read_safetensors(files: Files) -> Arrays:
    """Every tensor of every safetensors file."""
    contents = ending(files, ".safetensors").values()
    return {name: array for content in contents for name, array in safetensors.numpy.load(content).items()}


def ending(files: Files, *ends: str) -> dict[str, bytes]:
    """The files whose names end so."""
    return {name: content for name, content in files.items() if name.endswith(ends) and content is not None}


def unpacked(read: Reader, name: str) -> Reader:
    """Reads the files in the archive `name`, by the last parts of their names."""

    def read_members(files: Files) -> Arrays:
        content, inside = files[name] or b"", dict[str, bytes | None]()
        if content.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                inside |= {member: archive.read(member) for member in archive.namelist()}
        else:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                for member in tar:
                    file = tar.extractfile(member)
                    inside[member.name] = file.read() if file else None
        hostile = [member for member in inside if HOSTILE.search(member)]
        if hostile:
            raise ValueError(f"{hostile[0]!r} is no name of a file inside")
        return read({member.rpartition("/")[2]: data for member, data in inside.items()})

    return read_members


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
            place = np.where(ranked[rank] == np.abs(flat), order[rank], -1)
            is_known = (place >= 0) & ~has_twin[rank]
            assert (is_known | (flat == 0)).all(), f"{name} holds numbers that are not once in the checkpoint"
            self.by_name[name] = place, np.where(place < 0, 0, np.sign(flat) * np.sign(numbers[place]))
            carried[place[place >= 0]] = True
        starts = np.cumsum([0, *(array.size for array in source.values())])
        pairs = zip(source, np.split(carried, starts[1:-1]), strict=True)
        self.carried = {name for name, each in pairs if each.any()}

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
        found, expected = (np.abs(_joined(arrays)) for arrays in (tensors, source))
        if not np.isin(found[found > 0], expected).all():
            raise Wrong("tensors hold numbers that the checkpoint lacks")


def distinct(arrays: Mapping[str, np.ndarray | tuple[int, ...]], seed: int = 1) -> Arrays:
    """Arrays of the same shapes in which no two numbers have one absolute value, nor in those of other seeds."""
    shapes = {name: each if isinstance(each, tuple) else each.shape for name, each in arrays.items()}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    generator = np.random.default_rng(seed)
    numbers = generator.permutation(np.linspace(0.1 * seed, 0.1 * seed + 0.09, sum(sizes)))
    numbers *= generator.choice([-1, 1], sum(sizes))
    parts = np.split(numbers.astype(np.float32), np.cumsum(sizes)[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def options_of(files: Files, fields: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """What the options say of fields that are not at their defaults, if they are in a file outside archives."""
    sections = {path[0] for path in fields.values()}
    for content in files.values():
        try:
            options = json.loads(content or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(options, dict) and sections & options.keys():
            found = {field: _dig(options, path) for field, path in fields.items()}
            # A clip is switched off by any falsy value.
            return {key: each for key, each in found.items() if each is not None and (each or "clip" not in key)}
    return {}


def _dig(options: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        options = options.get(key) if isinstance(options, dict) else None
    return options


def compare_fields(expected: dict[str, Any], config: Any) -> None:
    """Raises `Wrong` if a field of the config, or of its JSON, is not what a file says."""
    for field, value in expected.items():
        found = config.get(field, getattr(ElmoConfig, field)) if isinstance(config, dict) else getattr(config, field)
        listed = json.loads(json.dumps(found))
        if listed != value or isinstance(listed, bool) != isinstance(value, bool):
            raise Wrong(f"{field} became another value: {value!r:.80} became {found!r:.80}")


def _joined(arrays: Arrays) -> np.ndarray:
    with np.errstate(all="ignore"):
        parts = [np.asarray(array).reshape(-1).astype(np.float32) for array in arrays.values()]
    return np.concatenate([*parts, np.zeros(0, np.float32)])


Sentence = str | list[str]


def sentences_of(kind: str, content: bytes) -> list[Sentence]:
    """The sentences of a text whose name ends with `kind`; raises `Wrong` if it is no such text."""
    try:
        text = (gzip.decompress(content) if kind.endswith(".gz") else content).decode("utf-8-sig")
        lines = text.split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        if kind.startswith("txt"):
            return [line.rstrip("\r") for line in lines]
        return list(_json_lines(lines) if kind.startswith("jsonl") else _conllu(lines))
    except (ValueError, KeyError, TypeError, OSError, EOFError, RecursionError) as error:
        raise Wrong(f"read although it is no {kind}: {error!s:.80}") from error


def _json_lines(lines: list[str]) -> Iterator[Sentence]:
    for line in lines:
        value: Any = json.loads(line) if line.strip() else ""
        if isinstance(value, dict):
            found = [value[key] for key in ("words", "tokens", "text", "sentence") if key in value]
            value = next((each for each in found if each is not None), "" if found else None)
        if not isinstance(value, str) and not all(isinstance(word, str) for word in value):
            raise ValueError
        yield value if isinstance(value, str) else list(value)


def _conllu(lines: list[str]) -> Iterator[Sentence]:
    words: list[str] = []
    for line in [*lines, ""]:
        line = line.rstrip("\r")
        if line and not line.startswith("#"):
            number, word, *others = line.split("\t")
            if len(others) != 8:
                raise ValueError
            words += [word] if number.isdigit() else []
        elif not line and words:
            yield words
            words = []
