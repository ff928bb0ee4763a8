"""Reading and writing the files of a checkpoint, all or nothing.

A folder or a file is written beside its place under a temporary name and renamed when it is complete, so that what
stands under the name that a user gave is never half of something.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .errors import ConversionError
from .limits import MAX_TEXT, refuse_bomb


def read_options(path: Path) -> dict[str, Any]:
    """Reads an options file.

    Raises:
        ConversionError: if it is not there, is not JSON, or lacks the object `lstm`.
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
        ConversionError: if it is no JSON, or longer than any options are.
    """
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path} is not JSON: {error}.") from error


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8, lines ending as they do in the file.

    Raises:
        ConversionError: if it is longer than any options or list of words are.
        UnicodeDecodeError: if it is not UTF-8.
    """
    if path.stat().st_size > MAX_TEXT:
        raise ConversionError(f"{path} has {path.stat().st_size:,} bytes; at most {MAX_TEXT:,} are read.")
    return path.read_bytes().decode("utf-8")


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of an hdf5 file by its full name.

    Raises:
        ConversionError: if the file is not there, is no hdf5 file, is truncated, refers to other files, or holds more
            numbers than it stores.
    """
    arrays: dict[str, np.ndarray] = {}

    def read(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise ConversionError(f"{path}: `{name}` refers to another file, which is not followed.")
            so_far = sum(array.nbytes for array in arrays.values())
            refuse_bomb(so_far + item.nbytes, path.stat().st_size, str(path))
            # What is not numbers is named later on, and need not be read for that.
            arrays[name] = np.asarray(item[()]) if item.dtype.kind in "fiu" else np.empty(item.shape, item.dtype)

    _visit_hdf5(path, read)
    return arrays


def hdf5_names(path: Path) -> set[str]:
    """The full names of the arrays of an hdf5 file, none of which is read.

    Raises:
        ConversionError: as `read_hdf5`.
    """
    names: set[str] = set()
    _visit_hdf5(path, lambda name, item: names.add(name) if isinstance(item, h5py.Dataset) else None)
    return names


def _visit_hdf5(path: Path, visit: Callable[[str, h5py.Dataset | h5py.Group], None]) -> None:
    if not path.is_file():
        raise ConversionError(f"there is no weights file {path}.")
    if not h5py.is_hdf5(path):
        raise ConversionError(
            f"{path} is not an hdf5 file; ELMo weights are `*.hdf5` (an HTML page saved by mistake?)."
        )

    def visit_named(name: str | bytes, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(name, bytes):
            raise ValueError(f"a name is not UTF-8: {name!r}")
        visit(name, item)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit_named)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # what h5py makes of damaged bytes
        raise ConversionError(f"{path} cannot be read, it may be truncated: {error}. Download it again.") from error


def write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by their full names, contiguous and uncompressed as bilm-tf does."""
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


def refuse_existing(path: Path) -> None:
    """Checks that a folder can be made.

    Raises:
        ConversionError: if `path` exists and is not an empty folder.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ConversionError(f"{path} exists already; remove it or choose another place. Nothing was written.")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Gives a temporary folder that takes the name `path` when the block ends well, and vanishes when it does not.

    Raises:
        ConversionError: if `path` exists and is not an empty folder.
    """
    refuse_existing(path)
    path = path.resolve()
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
