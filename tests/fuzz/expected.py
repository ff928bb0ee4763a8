"""What a changed input must become: its files read with h5py, torch and Python's own modules, and the comparisons.

Every number of a converted model is one number of the checkpoint or its negative, or the zero of a padding vector. All
numbers of a valid input differ, so its conversion shows where each one goes (`Places`). A changed input of the same
arrays must send its numbers to the same places; one of other arrays must keep the same numbers.
"""

import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from checkpoints import Arrays, read_datasets

from elmo_hf import ElmoConfig

from .changes import Files
from .inputs import Wrong

Reader = Callable[[Files], Arrays]
Sentence = str | list[str]
# Names that lead outside an archive, on some system.
HOSTILE = re.compile(r"^/|(^|/)\.\.(/|$)|\\|\0|^[A-Za-z]:")


def read_hdf5(files: Files) -> Arrays:
    """Every dataset of numbers of every hdf5 file."""
    arrays: Arrays = {}
    for content in ending(files, ".hdf5", ".dump"):
        arrays |= read_datasets(io.BytesIO(content))
    return {name: array for name, array in arrays.items() if array.dtype.kind in "fiu"}


def read_torch(files: Files) -> Arrays:
    """Every tensor of every state dict; names begin with the file's."""
    return {
        f"{name}:{key}": value.float().numpy(force=True)
        for name, content in sorted(files.items())
        if name.endswith((".th", ".pkl"))
        for key, value in torch.load(io.BytesIO(content), weights_only=True).items()
        if isinstance(value, torch.Tensor)
    }


def read_safetensors(files: Files) -> Arrays:
    """Every tensor of every safetensors file."""
    contents = ending(files, ".safetensors")
    return {name: array for content in contents for name, array in safetensors.numpy.load(content).items()}


def ending(files: Files, *ends: str) -> list[bytes]:
    """The contents of the files whose names end so."""
    return [content for name, content in files.items() if name.endswith(ends)]


def unpacked(read: Reader, name: str) -> Reader:
    """Reads the files in the archive `name`, by the last parts of their names."""

    def read_members(files: Files) -> Arrays:
        content, inside = io.BytesIO(files[name]), dict[str, bytes]()
        if files[name].startswith(b"PK"):
            with zipfile.ZipFile(content) as archive:
                inside |= {member: archive.read(member) for member in archive.namelist()}
        else:
            with tarfile.open(fileobj=content) as tar:
                inside |= {member.name: file.read() if (file := tar.extractfile(member)) else b"" for member in tar}
        hostile = [member for member in inside if HOSTILE.search(member)]
        if hostile:
            raise ValueError(f"{hostile[0]!r} is no name of a file inside")
        return read({member.rpartition("/")[2]: data for member, data in inside.items()})

    return read_members


class Places:
    """Where each number of a valid checkpoint goes."""

    def __init__(self, source: Arrays, tensors: Arrays) -> None:
        """Takes what a plain reader finds in the checkpoint, and the converted tensors."""
        known = {
            abs(number): (name, place, number)
            for name, array in source.items()
            for place, number in enumerate(numbers_of(array))
        }
        # For each number of a tensor its place in the checkpoint; a zero has none.
        self.places = {
            name: [(number, known[abs(number)] if number else None) for number in numbers_of(tensor)]
            for name, tensor in tensors.items()
        }
        carried = {place[0] for places in self.places.values() for _, place in places if place}
        self.shapes = {name: source[name].shape for name in carried}

    def compare(self, source: Arrays, tensors: Arrays) -> None:
        """Raises `Wrong` if tensors are not what the arrays say."""
        if all(name in source and source[name].shape == shape for name, shape in self.shapes.items()):
            held = {name: numbers_of(source[name]) for name in self.shapes}
            for name, places in self.places.items():
                expected = [
                    held[place[0]][place[1]] * (1 if place[2] == number else -1) if place else 0
                    for number, place in places
                ]
                if name not in tensors or not np.array_equal(numbers_of(tensors[name]), expected, equal_nan=True):
                    raise Wrong(f"tensor {name} is not what the checkpoint holds")
            return
        found, held_numbers = (
            {abs(number) for array in arrays.values() for number in numbers_of(array)} for arrays in (tensors, source)
        )
        if not {number for number in found if number > 0} <= held_numbers:
            raise Wrong("tensors hold numbers that the checkpoint lacks")


def numbers_of(array: np.ndarray) -> list[float]:
    """All numbers of an array, as float32 rounds them."""
    with np.errstate(all="ignore"):
        return array.reshape(-1).astype(np.float32).tolist()


def distinct(arrays: Mapping[str, np.ndarray | tuple[int, ...]], seed: int = 1) -> Arrays:
    """Arrays of the same shapes in which no two numbers have one absolute value, nor in those of other seeds."""
    shapes = {name: each if isinstance(each, tuple) else each.shape for name, each in arrays.items()}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    generator = np.random.default_rng(seed)
    numbers = generator.permutation(np.linspace(0.1 * seed, 0.1 * seed + 0.09, sum(sizes)))
    numbers *= generator.choice([-1, 1], sum(sizes))
    parts = np.split(numbers.astype(np.float32), np.cumsum(sizes)[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def options_of(files: Files, fields: Mapping[str, str]) -> dict[str, Any]:
    """What the options say of fields that are not at their defaults, if they are in a file outside archives."""
    for content in files.values():
        try:
            options = json.loads(content)
        except (ValueError, RecursionError):
            continue
        if isinstance(options, dict) and {path.partition(".")[0] for path in fields.values()} & options.keys():
            found = {field: _dig(options, path) for field, path in fields.items()}
            # A clip is switched off by any falsy value.
            return {key: each for key, each in found.items() if each is not None and (each or "clip" not in key)}
    return {}


def _dig(options: Any, path: str) -> Any:
    for key in path.split("."):
        options = options.get(key) if isinstance(options, dict) else None
    return options


def compare_fields(expected: dict[str, Any], config: Any) -> None:
    """Raises `Wrong` if a field of the config, or of its JSON, is not what a file says."""
    for field, value in expected.items():
        found = config.get(field, getattr(ElmoConfig, field)) if isinstance(config, dict) else getattr(config, field)
        listed = json.loads(json.dumps(found))
        if listed != value or isinstance(listed, bool) != isinstance(value, bool):
            raise Wrong(f"{field} became another value: {value!r:.80} became {found!r:.80}")


def sentences_of(kind: str, content: bytes) -> list[Sentence]:
    """The sentences of a text whose name ends with `kind`; raises `Wrong` if it is no such text."""
    try:
        text = (gzip.decompress(content) if kind.endswith(".gz") else content).decode("utf-8-sig")
        lines = text.removesuffix("\n").split("\n") if text else []
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
