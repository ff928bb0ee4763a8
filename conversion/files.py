"""Reading and writing the files of a checkpoint, all or nothing.

A folder or a file is written beside its place under a temporary name and renamed when it is complete, so that what
stands under the name that a user gave is never half of something.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .errors import ConversionError


def read_options(path: Path) -> dict[str, Any]:
    """Reads an options file.

    Raises:
        ConversionError: if it is not there, is not JSON, or lacks the object `lstm`.
    """
    if not path.is_file():
        raise ConversionError(f"there is no options file {path}.")
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConversionError(f"{path} is not JSON: {error}.") from error
    if not isinstance(options, dict) or not isinstance(options.get("lstm"), dict):
        raise ConversionError(f"{path} must hold a JSON object with an object `lstm` in it, as ELMo's options do.")
    return options


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of an hdf5 file by its full name.

    Raises:
        ConversionError: if the file is not there, is no hdf5 file, is truncated, or refers to other files.
    """
    if not path.is_file():
        raise ConversionError(f"there is no weights file {path}.")
    if not h5py.is_hdf5(path):
        raise ConversionError(
            f"{path} is not an hdf5 file; ELMo weights are `*.hdf5` (an HTML page saved by mistake?)."
        )
    arrays: dict[str, np.ndarray] = {}

    def read(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise ConversionError(f"{path}: `{name}` refers to another file, which is not followed.")
            arrays[name] = np.asarray(item[()])

    try:
        with h5py.File(path, "r") as file:
            file.visititems(read)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:  # what h5py makes of damaged bytes
        raise ConversionError(f"{path} cannot be read, it may be truncated: {error}. Download it again.") from error
    return arrays


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
