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

from .refusals import check_unpacked, reading, require


def is_hdf5(name: str) -> bool:
    """Whether a file's name has the suffix of an hdf5 file."""
    return name.endswith((".hdf5", ".h5"))


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of an hdf5 file by its full name."""
    with reading(path), h5py.File(path, "r") as file:
        items = dict(_datasets(file, "", {h5py.h5o.get_info(file.id).addr}))
        check_unpacked(sum(_stored_bytes(item, path, name) for name, item in items.items()), path)
        return {name: np.asarray(item[()]) for name, item in items.items()}


def _stored_bytes(item: h5py.Dataset, path: Path, name: str) -> int:
    """Checks that all numbers of an array are in the file, and returns the bytes that they take in memory."""
    require(item.dtype.kind in "fiu", path, name, "an array of float32 numbers", item.dtype)
    require(item.shape is not None, path, name, "an array of float32 numbers", "no shape")
    require(not (item.external or item.is_virtual), path, name, "in the file itself", "a place in another")
    advice = "Its numbers were never written or are lost, and would be read as zeros: get the file again."
    if item.chunks is None:
        size = item.size * item.id.get_type().get_size()
        stored = item.id.get_storage_size()
        require(stored == size, path, name, f"written, in {size:,} bytes", f"{stored:,}", advice)
        return item.nbytes
    stored = item.id.get_num_chunks()
    needed = math.prod(-(-length // width) for length, width in zip(item.shape, item.chunks, strict=True))
    require(stored == needed, path, name, f"in {needed:,} chunks", f"{stored:,}", advice)
    return stored * math.prod(item.chunks) * item.dtype.itemsize


def write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by their full names, contiguous and uncompressed as bilm-tf does."""
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
            target.check()


def _datasets(group: h5py.Group, prefix: str, seen: set[int]) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every array and its full name, once even if several links lead to it; links to other files are not followed."""
    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address not in seen:
                seen.add(address)
                if isinstance(item, h5py.Group):
                    yield from _datasets(item, f"{prefix}{name}/", seen)
                elif isinstance(item, h5py.Dataset):
                    yield f"{prefix}{name}", item
