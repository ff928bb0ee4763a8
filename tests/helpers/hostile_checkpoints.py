"""Datasets of hdf5 files that ask for much memory or time, and what zlib makes of many zeros."""

import struct
import zlib
from collections.abc import Callable

import h5py
import numpy as np


def zeros_deflated(size: int) -> bytes:
    """A zlib stream of `size` zeros, a multiple of 1 MiB, made without packing all of them."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\xda" + block * (size >> 20) + pack.flush() + struct.pack(">2H", size % 65521, 1)


def one_large_chunk(file: h5py.File) -> None:
    shape, maxshape, chunks = (261, 4), (None, None), (30_720, 30_720)
    table = file.create_dataset("char_embed", shape, "f4", maxshape=maxshape, chunks=chunks, compression="gzip")
    table.id.write_direct_chunk((0, 0), zeros_deflated(30_720 * 30_720 * 4))


def chunk_longer_than_said(file: h5py.File) -> None:
    table = file.create_dataset("char_embed", (261, 4), "f4", chunks=(261, 4), compression="gzip")
    table.id.write_direct_chunk((0, 0), zeros_deflated(4 << 30))


HOSTILE_DATASETS: dict[str, Callable[[h5py.File], object]] = {
    "one_large_chunk": one_large_chunk,
    "chunk_longer_than_said": chunk_longer_than_said,
    "many_chunks": lambda file: file.create_dataset("char_embed", (4 << 20,), np.int8, chunks=(1,)),
    "nested_groups": lambda file: file.create_group("/g" * 2000),
    "never_written": lambda file: file.create_dataset("char_embed", (1 << 31,), np.float32),
    "overflowing_shape": lambda file: file.create_dataset("char_embed", (1 << 32,) * 2, np.int8, chunks=(1 << 10,) * 2),
}
