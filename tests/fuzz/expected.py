"""What a changed input must become: its files read with h5py, torch and Python's own modules, and the comparisons.

Every number of a converted model is one number of the checkpoint or its negative, or the zero of a padding vector.
Nearly all numbers of a valid input differ, so its conversion shows where each one goes (`Places`). A changed input of
the same arrays must send its numbers to the same places; one of other arrays must keep the same numbers.
"""

import codecs
import csv
import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from elmo_hf import ElmoConfig
from elmo_hf.conversion.options import Option
from tests.helpers.checkpoints import Arrays, read_datasets

from .changes import Files
from .inputs import Wrong

Sentence = str | list[str]
GZIP = b"\x1f\x8b"
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Names that lead outside an archive, on some system.
HOSTILE = re.compile(r"^/|(^|/)\.\.(/|$)|\\|\0|^[A-Za-z]:")


def read_arrays(files: Files) -> Arrays:
    """Every array of numbers in files, those in archives included; names of tensors begin with the file's."""
    arrays: Arrays = {}
    for name, content in sorted(files.items()):
        if name.endswith((".hdf5", ".dump")):
            arrays |= read_datasets(io.BytesIO(content))
        elif name.endswith(".safetensors"):
            arrays |= safetensors.numpy.load(content)
        elif name.endswith((".th", ".pkl")):
            state = torch.load(io.BytesIO(content), weights_only=True)
            tensors = {f"{name}:{key}": value for key, value in state.items() if isinstance(value, torch.Tensor)}
            arrays |= {key: tensor.float().numpy(force=True) for key, tensor in tensors.items()}
        elif name.endswith((".zip", ".gz", ".bz2")):
            arrays |= read_arrays(members_of(content))
    return {name: array for name, array in arrays.items() if array.dtype.kind in "fiu"}


def members_of(archive: bytes) -> Files:
    """The files in a zip or tar file by the last parts of their names."""
    content, inside = io.BytesIO(archive), dict[str, bytes]()
    if archive.startswith(b"PK"):
        with zipfile.ZipFile(content) as file:
            inside |= {name: file.read(name) for name in file.namelist()}
    else:
        with tarfile.open(fileobj=content) as tar:
            inside |= {member.name: file.read() if (file := tar.extractfile(member)) else b"" for member in tar}
    hostile = [name for name in inside if HOSTILE.search(name)]
    if hostile:
        raise ValueError(f"{hostile[0]!r} is no name of a file inside")
    return {name.rpartition("/")[2]: data for name, data in inside.items()}


class Places:
    """Where each number of a valid checkpoint goes."""

    def __init__(self, source: Arrays, tensors: Arrays) -> None:
        """Takes what a plain reader finds in the checkpoint, and the converted tensors."""
        assert source, "the plain reader finds no array: `read_arrays` must know the suffix of the file"
        found = numbers_of(tensors)
        sizes, self.names = np.abs(found), [*tensors]
        is_carried = {name: np.isin(np.abs(array), sizes[sizes > 0]).any() for name, array in source.items()}
        self.shapes = {name: array.shape for name, array in source.items() if is_carried[name]}
        numbers = numbers_of({name: source[name] for name in self.shapes})
        known, first, counts = np.unique(np.abs(numbers), return_index=True, return_counts=True)
        at = known.searchsorted(sizes)
        assert (known[at] == sizes)[sizes > 0].all(), "tensors hold numbers that the valid checkpoint lacks"
        # For each number of the tensors its place in the checkpoint, 1 or -1, and whether this is its only place.
        # A zero has no place, and 0.
        self.places, self.signs = first[at], np.sign(found) * np.sign(numbers[first[at]])
        self.is_certain = (counts[at] == 1) | (found == 0)

    def compare(self, source: Arrays, tensors: Arrays) -> None:
        """Raises `Wrong` if tensors are not what the arrays say."""
        if any(name not in source or source[name].shape != shape for name, shape in self.shapes.items()):
            sizes = np.abs(numbers_of(tensors))
            if not np.isin(sizes[sizes > 0], np.abs(numbers_of(source))).all():
                raise Wrong("tensors hold numbers that the checkpoint lacks")
            return
        numbers = numbers_of({name: source[name] for name in self.shapes})
        expected = np.where(self.signs == 0, 0, numbers[self.places] * self.signs)[self.is_certain]
        found = numbers_of({name: tensors[name] for name in self.names})[self.is_certain]
        if not np.array_equal(found, expected, equal_nan=True):
            raise Wrong("tensors are not what the checkpoint holds")


def numbers_of(arrays: Arrays) -> np.ndarray:
    """All numbers of arrays one after the other, as float32 rounds them."""
    with np.errstate(all="ignore"):
        return np.concatenate([array.reshape(-1).astype(np.float32) for array in arrays.values()] or [np.empty(0)])


def options_of(files: Files, table: Sequence[Option]) -> dict[str, Any]:
    """What the options say about fields that are not at their defaults, if they are in a file outside archives."""
    for content in files.values():
        try:
            options = json.loads(content)
        except (ValueError, RecursionError):
            continue
        if isinstance(options, dict) and any(option.path[0] in options for option in table):
            found = {option.field: value_at(options, option.path) for option in table}
            # A clip is switched off by any falsy value.
            return {key: each for key, each in found.items() if each is not None and (each or "clip" not in key)}
    return {}


def value_at(options: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys, None if there is none."""
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


def sentences_of(kind: str, content: bytes) -> list[Sentence]:
    """The sentences of a text whose name ends with `kind`; raises `Wrong` if it is no such text."""
    try:
        unpacked = gzip.decompress(content) if kind.endswith(".gz") or content.startswith(GZIP) else content
        text = re.sub("^\ufeff+|(?<=\n)\ufeff+", "", decoded(unpacked))
        if "\n" not in text:
            text = text.replace("\r", "\n")
        lines = text.removesuffix("\n").split("\n") if text else []
        if kind.startswith("txt"):
            return [line.rstrip("\r") for line in lines]
        if kind.startswith("csv"):
            return list(_cells(f"{line}\n" for line in lines))
        if kind.startswith("fasta"):
            return list(_proteins("\n".join(lines)))
        return list(_json_lines(lines) if kind.startswith("jsonl") else _conllu(lines))
    except (csv.Error, ValueError, KeyError, TypeError, OSError, EOFError, RecursionError) as error:
        raise Wrong(f"read although it is no {kind}: {error!s:.80}") from error


def decoded(content: bytes) -> str:
    """The text of bytes in the encoding of their mark, or in UTF-8."""
    for mark, codec in MARKS:
        if content.startswith(mark):
            return content.decode(codec)
    return content.decode("utf-8")


def _json_lines(lines: list[str]) -> Iterator[Sentence]:
    for line in lines:
        value: Any = json.loads(line) if line.strip() else ""
        if isinstance(value, dict):
            found = [value[key] for key in ("words", "tokens", "text", "sentence") if key in value]
            value = next((each for each in found if each is not None), "" if found else None)
        if not isinstance(value, str) and not all(isinstance(word, str) for word in value):
            raise ValueError
        yield value if isinstance(value, str) else list(value)


def _cells(lines: Iterator[str]) -> Iterator[Sentence]:
    names, *rows = csv.reader(lines, strict=True)
    for row in filter(None, rows):
        cells = dict(zip(names, row, strict=True))
        yield next(cells[key] for key in ("words", "tokens", "text", "sentence") if key in cells)


def _proteins(text: str) -> Iterator[Sentence]:
    for number, record in enumerate(re.split("(?m)^>", text)):
        head, _, residues = record.partition("\n") if number else ("", "", record)
        residues = "".join(residues.split()).upper()
        if not re.fullmatch("[A-Z*-]*", residues):
            raise ValueError
        if head.split() or residues:
            yield list(residues)


def _conllu(lines: list[str]) -> Iterator[Sentence]:
    words: list[str] = []
    for line in [*lines, ""]:
        line = line.rstrip("\r")
        if line.strip() and not line.startswith("#"):
            number, word, *others = line.split("\t")
            if len(others) != 8:
                raise ValueError
            words += [word] if number.isdigit() else []
        elif not line.strip() and words:
            yield words
            words = []
