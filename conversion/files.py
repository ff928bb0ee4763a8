"""Reading and writing the files of a checkpoint: JSON, text, hdf5."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmo_hf import files
from elmo_hf.guarded_file import GuardedFile

from .errors import ConversionError
from .limits import MAX_TEXT, refuse_bomb


def read_options(path: Path) -> dict[str, Any]:
    """Reads an options file.

    Raises:
        ConversionError: if it is missing, is not JSON, or lacks the object `lstm`.
    """
    if not path.is_file():
        raise ConversionError(f"there is no options file {path}.")
    options = read_json(path)
    if not isinstance(options, dict) or not isinstance(options.get("lstm"), dict):
        raise ConversionError(f"{path} must hold a JSON object with an object `lstm` in it, as ELMo's options do.")
    return options


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        ConversionError: if it is not JSON, or has more than `MAX_TEXT` bytes.
    """
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path} is not JSON: {error}.") from error


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8 and keeps its line endings.

    Raises:
        ConversionError: if it has more than `MAX_TEXT` bytes.
        UnicodeDecodeError: if it is not UTF-8.
    """
    if path.stat().st_size > MAX_TEXT:
        raise ConversionError(f"{path} has {path.stat().st_size:,} bytes; at most {MAX_TEXT:,} are read.")
    return path.read_bytes().decode("utf-8")


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of an hdf5 file by its full name.

    Raises:
        ConversionError: if the file is missing, is not hdf5, is truncated, refers to other files, or declares more
            bytes than it stores.
    """
    arrays: dict[str, np.ndarray] = {}
    size, so_far = path.stat().st_size if path.is_file() else 0, 0

    def read(name: str | bytes, item: h5py.Dataset | h5py.Group) -> None:
        nonlocal so_far
        if isinstance(name, bytes):
            raise ValueError(f"a name is not UTF-8: {name!r}")
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:
            raise ConversionError(f"{path}: `{name}` refers to another file, which is not followed.")
        refuse_bomb(so_far + item.nbytes, size, str(path))
        # The rules refuse other types by name and need no values for that.
        arrays[name] = np.asarray(item[()]) if item.dtype.kind in "fiu" else np.empty(item.shape, item.dtype)
        so_far += arrays[name].nbytes

    with _open_hdf5(path) as file:
        file.visititems(read)
    return arrays


def hdf5_names(path: Path) -> set[str]:
    """The names of an hdf5 file's groups and arrays outside any group; reads no array.

    Raises:
        ConversionError: as `read_hdf5`.
    """
    with _open_hdf5(path) as file:
        return set(file)


@contextmanager
def _open_hdf5(path: Path) -> Iterator[h5py.File]:
    if not path.is_file():
        raise ConversionError(f"there is no weights file {path}.")
    if not h5py.is_hdf5(path):
        raise ConversionError(
            f"{path} is not an hdf5 file; ELMo weights are `*.hdf5` (an HTML page saved by mistake?)."
        )
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # h5py's errors on damaged bytes
        raise ConversionError(f"{path} cannot be read, it may be truncated: {error}. Download it again.") from error


def write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by their full names, contiguous and uncompressed as bilm-tf does."""
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
            target.check()


def refuse_existing(path: Path) -> None:
    """Checks that a folder can be made.

    Raises:
        ConversionError: if `path` exists and is not an empty folder.
    """
    try:
        files.refuse_existing(path)
    except FileExistsError as error:
        raise ConversionError(str(error)) from error
