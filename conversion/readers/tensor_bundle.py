"""TensorFlow's checkpoints (V2, "tensor bundles") without TensorFlow: an index of names, and shards of raw numbers.

The index is a sorted string table in LevelDB's format:

    PREFIX.index                      block ... block, metaindex block, index block, footer
    PREFIX.data-00000-of-00002, ...   raw arrays, little-endian, in row order

    footer = handle of the metaindex block, handle of the index block, zeros up to 40 bytes, 8 bytes of magic
    handle = offset, size                                                  (varints)
    block  = entry ..., restarts (4 bytes each), count of restarts (4 bytes) | compression (1 byte) | checksum (4 bytes)
    entry  = shared, unshared, size of the value (varints), key[shared:], value; key[:shared] repeats the last key's

The index block's values are the handles of the blocks. A block's values are protobuf messages: under the key "" the
bundle's `BundleHeaderProto`, under every other key a tensor's `BundleEntryProto`. A checksum is the CRC-32C c of the
bytes, stored as rotate(c, 15 bits to the right) + 0xa282ead8. Sources: tensorflow/core/util/tensor_bundle, and
LevelDB's `doc/table_format.md`.

Each tensor is read on demand, so the slots of an optimiser cost nothing. Checkpoints may come from anywhere: every
checksum is verified, and every size is compared with the file before memory is allocated.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import google_crc32c
import numpy as np

from ..errors import ConversionError, listed, quoted, shortened
from ..files import files_in, read_bytes
from ..limits import MAX_AXES
from .protobuf import Message, Reader

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
# An ELMo's index has about 5 kB. The bounds limit the cost of a malicious one.
MAX_INDEX_SIZE = 1 << 20
MAX_NAME_SIZE = 1 << 10
MAX_RECORD_SIZE = 1 << 20
MAX_STRING_SIZE = 8 << 20
STRING = 7  # the value of the enum for strings
# Keys are values of TensorFlow's enum `DataType`.
DTYPES: dict[int, np.dtype] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    9: np.dtype("<i8"),
    19: np.dtype("<f2"),
}


@dataclass(frozen=True)
class TensorEntry:
    """The index's entry for one tensor; it is checked only when the tensor is read.

    Attributes:
        dtype: value of its `DataType`.
        shape: its shape.
        shard: index of its data file.
        offset: position of its first byte there.
        size: bytes.
        checksum: masked CRC-32C of its bytes.
        is_sliced: whether it was saved in parts, each under a key of its own.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    is_sliced: bool


class TensorBundle:
    """A checkpoint opened for reading.

    Attributes:
        prefix: path of the checkpoint without `.index`.
        entries: the index's entries by name.
    """

    def __init__(self, prefix: Path) -> None:
        """Reads the index.

        Raises:
            ConversionError: if it is missing, damaged, or of an unsupported kind.
        """
        self.prefix = prefix
        path = prefix.with_name(f"{prefix.name}.index")
        if not path.is_file():
            raise ConversionError(f"there is no checkpoint index {path}.")
        try:
            values = dict(_table_entries(read_bytes(path, MAX_INDEX_SIZE)))
            header = Message(values.pop(b"", b""))
            self._num_shards = header.number(1)
            is_big_endian = header.number(2) != 0
            self.entries = {key.decode("utf-8"): _tensor_entry(value) for key, value in values.items()}
        except ValueError as error:
            raise ConversionError(
                f"{path} cannot be read as the index of a TensorFlow checkpoint: {error}. Copy the file again; "
                "save checkpoints of TensorFlow's older V1 format again with TensorFlow."
            ) from error
        if is_big_endian:
            raise ConversionError(f"{path} comes from a big-endian machine, whose checkpoints are not supported.")

    def check_places(self, names: Iterable[str]) -> None:
        """Checks that no two tensors lie in the same bytes, which would let a few bytes become many tensors.

        Raises:
            ConversionError: if two do.
        """
        entries = sorted(
            (entry.shard, entry.offset, entry.offset + entry.size, name)
            for name in names
            if (entry := self.entries[name]).size
        )
        for (shard, _, end, name), (next_shard, start, _, other) in pairwise(entries):
            if shard == next_shard and start < end:
                raise ConversionError(
                    f"`{shortened(name)}` and `{shortened(other)}` of {self.prefix} lie in the same bytes; "
                    "TensorFlow writes every tensor to a place of its own."
                )

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor.

        Raises:
            KeyError: if the index has no such name.
            ConversionError: if its type is not supported, or its bytes are missing or damaged.
        """
        entry = self.entries[name]
        what = self._what(name)
        if entry.is_sliced:
            raise ConversionError(f"{what} was saved in parts by a partitioner, which is not supported.")
        if len(entry.shape) > MAX_AXES:
            raise ConversionError(f"{what} has {len(entry.shape):,} axes; at most {MAX_AXES} are read.")
        if entry.dtype not in DTYPES:
            raise ConversionError(f"{what} has TensorFlow's type {entry.dtype}; supported: {sorted(DTYPES)}.")
        dtype = DTYPES[entry.dtype]
        if math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise ConversionError(f"{what} has shape {entry.shape} of {dtype}, which are not {entry.size} bytes.")
        path = self._shard(name)
        array = np.fromfile(path, dtype, count=entry.size // dtype.itemsize, offset=entry.offset)
        if _masked_crc(array) != entry.checksum:
            raise self._damaged(name)
        try:
            return array.reshape(entry.shape)
        except (ValueError, OverflowError) as error:  # an empty array may declare axes that NumPy cannot hold
            raise ConversionError(f"{what} has an illegal shape: {error}.") from error

    def read_string(self, name: str) -> bytes:
        """Reads a tensor that is one string.

            value    = length (varint), checksum c of the length (4 bytes), the string
            checksum = of the length in 4 bytes, the 4 bytes of c, and the string

        Raises:
            KeyError: if the index has no such name.
            ConversionError: if it is something else, is longer than `MAX_STRING_SIZE`, or is missing or damaged.
        """
        entry = self.entries[name]
        if entry.dtype != STRING or entry.shape != () or entry.is_sliced or entry.size > MAX_STRING_SIZE:
            raise ConversionError(f"{self._what(name)} must be one string of at most {MAX_STRING_SIZE:,} bytes.")
        with self._shard(name).open("rb") as file:
            file.seek(entry.offset)
            reader = Reader(file.read(entry.size))
        try:
            length = reader.varint()
            checksum, string = reader.take(4), reader.take(length)
            checked = length.to_bytes(4, "little") + checksum + string
        except (ValueError, OverflowError) as error:
            raise self._damaged(name) from error
        if _masked_crc(checked) != entry.checksum:
            raise self._damaged(name)
        return string

    def shards(self) -> list[Path]:
        """The paths of its data files, in order."""
        stem = f"{self.prefix.name}.data-"
        return sorted(path for path in self.prefix.parent.iterdir() if path.name.startswith(stem))

    def _what(self, name: str) -> str:
        return f"`{shortened(name)}` of {self.prefix}"

    def _shard(self, name: str) -> Path:
        """The data file of a tensor, which reaches to its end."""
        entry = self.entries[name]
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self._num_shards:05d}")
        if not path.is_file():
            raise ConversionError(
                f"{self._what(name)} is in {path}, which is not there; copy all files of the checkpoint."
            )
        if entry.offset + entry.size > path.stat().st_size:
            raise ConversionError(
                f"{path} is truncated: {self._what(name)} ends at byte {entry.offset + entry.size}, the file at "
                f"{path.stat().st_size}. Copy it again."
            )
        return path

    def _damaged(self, name: str) -> ConversionError:
        shard = self._shard(name)
        return ConversionError(f"{shard} is damaged: the checksum of {self._what(name)} is wrong. Copy it again.")


def find_checkpoint(folder: Path) -> Path:
    """Finds the checkpoint that TensorFlow would restore from a save directory.

    The file `checkpoint` names it by its path on the machine that wrote it; only the file name counts. Without that
    file, it is the `model.ckpt-N` with the highest N.

    Returns:
        the checkpoint's prefix, a path in `folder`.

    Raises:
        ConversionError: if there is none.
    """
    indexes = [path for name, path in files_in(folder).items() if name.endswith(".index")]
    found = sorted(indexes, key=lambda path: (_step(path), path.name))
    names = listed(path.name for path in found) or "none"
    record = folder / "checkpoint"
    if not record.is_file():
        if not found:
            raise ConversionError(f"{folder} holds no index of a TensorFlow checkpoint, such as `model.ckpt-1.index`.")
        return found[-1].with_suffix("")
    text = read_bytes(record, MAX_RECORD_SIZE).decode("utf-8", "replace")
    match = re.search(r'^[ \t]*model_checkpoint_path:[ \t]*"([^"\n]*)"', text, re.MULTILINE)
    if match is None:
        raise ConversionError(f'{record} must name the checkpoint as `model_checkpoint_path: "model.ckpt-N"`.')
    name = re.split(r"[/\\]", match[1])[-1]
    if f"{name}.index" not in {path.name for path in found}:
        raise ConversionError(
            f"{record} names {quoted(name)}, but {folder} holds no {shortened(name)}.index; indexes found: {names}. "
            f"Copy the missing files, or delete {record} to take the highest step."
        )
    return folder / name


def _step(path: Path) -> int:
    match = re.search(r"-(\d+)\.index$", path.name)
    return int(match[1]) if match else -1


def _masked_crc(data: bytes | np.ndarray) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _tensor_entry(value: bytes) -> TensorEntry:
    """Reads a `BundleEntryProto`."""
    entry = Message(value)
    return TensorEntry(
        dtype=entry.number(1),
        shape=tuple(axis.number(1) for shape in entry.messages(2) for axis in shape.messages(2)),
        shard=entry.number(3),
        offset=entry.number(4),
        size=entry.number(5),
        checksum=entry.number(6),
        is_sliced=bool(entry.messages(7)),
    )


def _table_entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a sorted string table; its keys must rise."""
    if len(table) < FOOTER_SIZE or int.from_bytes(table[-8:], "little") != MAGIC:
        raise ValueError(f"it does not end with the magic number {MAGIC:#x}")
    footer = Reader(table[-FOOTER_SIZE:])
    _block(table, footer)
    last: bytes | None = None
    start = 0
    for _, handle in _block_entries(_block(table, footer)):
        offset = Reader(handle).varint()
        if offset < start:
            raise ValueError(f"its blocks must follow each other, found one at byte {offset} after byte {start}")
        block = _block(table, Reader(handle))
        start = offset + len(block)
        for key, value in _block_entries(block):
            if last is not None and key <= last:
                raise ValueError(f"its keys must rise, found {key!r} after {last!r}")
            yield key, value
            last = key


def _block(table: bytes, handle: Reader) -> bytes:
    """The content of the block at a handle."""
    offset, size = handle.varint(), handle.varint()
    end = offset + size
    if end + 5 > len(table) - FOOTER_SIZE:
        raise ValueError(f"a block from byte {offset} to {end} does not fit into {len(table)} bytes")
    if _masked_crc(table[offset : end + 1]) != int.from_bytes(table[end + 1 : end + 5], "little"):
        raise ValueError(f"the checksum of the block at byte {offset} is wrong")
    if table[end] != 0:
        raise ValueError(f"the block at byte {offset} is compressed (type {table[end]}), which TensorFlow never does")
    return table[offset:end]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    reader = Reader(Reader(block).take(len(block) - 4 - 4 * num_restarts))
    key = b""
    while not reader.is_at_end:
        shared, unshared, value_size = reader.varint(), reader.varint(), reader.varint()
        if shared > len(key) or shared + unshared > MAX_NAME_SIZE:
            raise ValueError(f"a key of {shared} + {unshared} bytes is longer than it can be")
        key = key[:shared] + reader.take(unshared)
        yield key, reader.take(value_size)
