"""Reading and writing the hdf5 files of a checkpoint.

An hdf5 file is like a file system: it has nested groups, links, and arrays in compressed chunks. Only arrays in the
file itself are read. HDF5 allocates space for numbers when they are written, and reads numbers without space as zeros,
so an array must have space for all of its numbers. What is not seen here is an array whose space was allocated at once
and never filled; `import_arrays` refuses matrices that have only zeros.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np

from elmo_hf.disk.guarded_file import GuardedFile

from .refusals import ConversionError, check_unpacked, naming_file, shortened


def is_hdf5(name: str) -> bool:
    """Whether a file's name has the suffix of an hdf5 file."""
    return name.endswith((".hdf5", ".h5"))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of an hdf5 file by its full name."""
    with naming_file(path), h5py.File(path, "r") as file:
        items = dict(_datasets(file, "", {h5py.h5o.get_info(file.id).addr}))
        check_unpacked(sum(_stored_bytes(item, path, name) for name, item in items.items()), path)
        return {name: np.asarray(item[()]) for name, item in items.items()}


def _stored_bytes(item: h5py.Dataset, path: Path, name: str) -> int:
    """Checks that all numbers of an array are in the file, and returns the bytes that they take in memory."""
    place = f"{path}: the array `{shortened(name)}`"
    if item.dtype.kind not in "fiu":
        raise ConversionError(f"{place} must hold float32 numbers, but holds {shortened(str(item.dtype))}.")
    if item.shape is None:
        raise ConversionError(f"{place} must hold float32 numbers, but has no shape and no numbers.")
    if item.external or item.is_virtual:
        raise ConversionError(
            f"{place} must be in the file itself, but its numbers are in another file; copy them into this one."
        )
    lost = "numbers that were never written or are lost would be read as zeros. Get the file again."
    if item.chunks is None:
        size = item.size * item.id.get_type().get_size()
        stored = item.id.get_storage_size()
        if stored != size:
            raise ConversionError(f"{place} needs {size:,} bytes, but the file has {stored:,} of them; {lost}")
        return item.nbytes
    stored = item.id.get_num_chunks()
    needed = math.prod(-(-length // width) for length, width in zip(item.shape, item.chunks, strict=True))
    if stored != needed:
        raise ConversionError(f"{place} needs {needed:,} chunks, but the file has {stored:,} of them; {lost}")
    return stored * math.prod(item.chunks) * item.dtype.itemsize


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by their full names, contiguous and uncompressed as bilm-tf does."""
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
            target.check()


def _datasets(group: h5py.Group, prefix: str, seen: set[int]) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every array and its full name, once even if several links lead to it; links to other files are not followed."""
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        if isinstance(item, h5py.Group):
            yield from _datasets(item, f"{prefix}{name}/", seen)
        elif isinstance(item, h5py.Dataset):
            yield f"{prefix}{name}", item
