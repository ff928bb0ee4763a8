"""Reading and writing the hdf5 files of a checkpoint.

An hdf5 file is a file system: groups in groups, links, and arrays in chunks that filters pack. Anybody may have written
it, so only what ELMo's software writes is read: arrays in the file itself, contiguous or in chunks that gzip packed.
Every chunk is unpacked here first, with a limit, because the library unpacks a chunk to whatever it holds.
"""

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from h5py import h5o, h5z

from elmo_hf.disk.guarded_file import GuardedFile

from .errors import ConversionError, shortened
from .limits import MAX_ARRAYS, MAX_CHUNK, MAX_CHUNKS, MAX_GROUPS, refuse_bomb

CHECKSUM_SIZE = 4
# Errors on damaged bytes; a length that a chunk claims may be more than any memory.
DAMAGE = (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError, zlib.error)
FILTERS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32}


def is_hdf5(name: str) -> bool:
    """Whether a file's name is that of an hdf5 file."""
    return name.endswith((".hdf5", ".h5"))


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of an hdf5 file by its full name.

    Raises:
        ConversionError: if the file is missing, is not hdf5, is truncated, refers to other files, declares more bytes
            than it stores, or has too many links, groups or chunks.
    """
    arrays: dict[str, np.ndarray] = {}
    with _open_hdf5(path) as file:
        size, so_far, num_chunks = path.stat().st_size, 0, 0
        for name, item in _datasets(file, path):
            where = f"{path}: `{shortened(name)}`"
            if item.external or item.is_virtual:
                raise ConversionError(f"{where} refers to another file, which is not followed.")
            grid = _chunk_grid(item)
            so_far += math.prod([*grid, *(item.chunks or item.shape), item.dtype.itemsize])
            refuse_bomb(so_far, size, str(path))
            num_chunks += math.prod(grid)
            if num_chunks > MAX_CHUNKS:
                raise ConversionError(f"{path} holds arrays in more than {MAX_CHUNKS:,} chunks; it is not read.")
            _check_chunks(item, where)
            # The rules refuse other types by name and need no values for that.
            is_number = item.dtype.kind in "fiu"
            arrays[name] = np.asarray(item[()]) if is_number else np.broadcast_to(np.zeros((), item.dtype), item.shape)
    return arrays


def hdf5_names(path: Path) -> set[str]:
    """The names of an hdf5 file's groups and arrays outside any group; reads no array.

    Raises:
        ConversionError: as `read_hdf5`.
    """
    with _open_hdf5(path) as file:
        return set(_links(file, 0, path))


def write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by their full names, contiguous and uncompressed as bilm-tf does."""
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
            target.check()


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
    except DAMAGE as error:
        raise ConversionError(
            f"{path} cannot be read, it may be truncated: {shortened(str(error))}. Download it again."
        ) from error


def _datasets(file: h5py.File, path: Path) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every array and its full name, once however many links lead to it; only links inside the file are followed."""
    rest: list[tuple[str, h5py.Group]] = [("", file)]
    seen, num_links = {h5o.get_info(file.id).addr}, 0
    while rest:
        prefix, group = rest.pop()
        if prefix.count("/") > MAX_GROUPS:
            raise ConversionError(f"{path} has more than {MAX_GROUPS} groups in each other; it is not read.")
        names = _links(group, num_links, path)
        num_links += len(names)
        for name in names:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            address = h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                rest.append((f"{prefix}{name}/", item))
            elif isinstance(item, h5py.Dataset):
                yield prefix + name, item


def _links(group: h5py.Group, so_far: int, path: Path) -> list[str]:
    """The sorted names of a group."""
    if so_far + len(group) > MAX_ARRAYS:
        raise ConversionError(f"{path} holds more than {MAX_ARRAYS:,} groups and arrays; it is not read.")
    names = list(group)
    for name in names:
        if isinstance(name, bytes):
            raise ValueError(f"a name is not UTF-8: {name[:100]!r}")
    return sorted(names)


def _chunk_grid(item: h5py.Dataset) -> list[int]:
    """The number of chunks along each axis; 1 for each axis of an array without chunks."""
    if item.shape is None:
        raise ValueError(f"`{shortened(item.name)}` has no shape")
    widths = item.chunks or item.shape
    return [-(-length // width) if width else 0 for length, width in zip(item.shape, widths, strict=True)]


def _check_chunks(item: h5py.Dataset, where: str) -> None:
    """Checks that every chunk unpacks to just the bytes that it has to have."""
    if item.chunks is None:
        return
    settings = item.id.get_create_plist()
    filters = [settings.get_filter(index)[0] for index in range(settings.get_nfilters())]
    if not FILTERS.issuperset(filters) or len(set(filters)) < len(filters):
        raise ConversionError(f"{where} must be stored plain or packed by gzip; run `h5repack -f NONE` on the file.")
    size = math.prod(item.chunks) * item.dtype.itemsize
    if size > MAX_CHUNK:
        raise ConversionError(f"{where} has chunks of {size:,} bytes; at most {MAX_CHUNK:,} are read.")
    stored, needed = item.id.get_num_chunks(), math.prod(_chunk_grid(item))
    if stored != needed:
        raise ConversionError(f"{where} has {stored:,} of its {needed:,} chunks; the file was not written to its end.")
    for place in itertools.product(*_starts(item)):
        mask, packed = item.id.read_direct_chunk(place)
        if _unpacked_size(packed, filters, mask, size) != size:
            raise ConversionError(
                f"{where} has a chunk that does not unpack to its {size:,} bytes; get the file again."
            )


def _starts(item: h5py.Dataset) -> list[range]:
    return [range(0, length, width) for length, width in zip(item.shape, item.chunks, strict=True)]


def _unpacked_size(packed: bytes, filters: list[int], mask: int, limit: int) -> int:
    """How many bytes a chunk unpacks to, or a few more than `limit` if there are more.

    A bit of the mask says that the filter in its place was left out.
    """
    for index, number in reversed([*enumerate(filters)]):
        if mask >> index & 1:
            continue
        if number == h5z.FILTER_FLETCHER32:
            packed = packed[:-CHECKSUM_SIZE]
        elif number == h5z.FILTER_DEFLATE:
            packed = zlib.decompressobj().decompress(packed, limit + CHECKSUM_SIZE + 1)
    return len(packed)
