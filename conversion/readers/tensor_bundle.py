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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np

from ..refusals import check_unpacked, listed, mismatch, reading, require
from ..sources import beginning
from .protobuf import Message, Reader

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
MAX_AXES = 8
MAX_INDEX_SIZE = 1 << 20  # an ELMo's index has about 5 kB
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
        with reading(path):
            require(path.stat().st_size <= MAX_INDEX_SIZE, path, "", f"an index of {MAX_INDEX_SIZE:,} bytes", "more")
            values = dict(_table_entries(path.read_bytes()))
            header = Message(values.pop(b"", b""))
            require(header.number(2) == 0, path, "endianness", "little", "big")
            self._num_shards = header.number(1)
            self.entries = {key.decode("utf-8"): _tensor_entry(value) for key, value in values.items()}

    def check_sizes(self, names: Iterable[str]) -> None:
        """Checks that tensors are not much larger than the files: many of them may lie in the same bytes.

        Raises:
            ConversionError: if they are.
        """
        sizes: dict[Path, int] = {}
        for name in names:
            path = self._shard(name)
            sizes[path] = sizes.get(path, 0) + self.entries[name].size
        for path, size in sizes.items():
            check_unpacked(size, path)

    def read(self, name: str) -> np.ndarray:
        """Reads one tensor.

        Raises:
            KeyError: if the index has no such name.
            ConversionError: if its type is not supported, or its bytes are missing or damaged.
        """
        entry, path = self.entries[name], self._shard(name)
        dtype = DTYPES.get(entry.dtype)
        is_whole = dtype is not None and not entry.is_sliced and len(entry.shape) <= MAX_AXES
        if dtype is None or not is_whole or math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise mismatch(path, name, f"one whole array of {', '.join(map(str, DTYPES.values()))}", entry)
        with reading(path):
            array = np.fromfile(path, dtype, count=entry.size // dtype.itemsize, offset=entry.offset)
            require(_masked_crc(array) == entry.checksum, path, name, "as its checksum says", "other bytes")
            return array.reshape(entry.shape)

    def read_string(self, name: str) -> bytes:
        """Reads a tensor that is one string.

            value    = length (varint), checksum c of the length (4 bytes), the string
            checksum = of the length in 4 bytes, the 4 bytes of c, and the string

        Raises:
            KeyError: if the index has no such name.
            ConversionError: if it is something else, or is missing or damaged.
        """
        entry, path = self.entries[name], self._shard(name)
        with reading(path), path.open("rb") as file:
            require(entry.dtype == STRING and entry.shape == (), path, name, "one string", entry)
            file.seek(entry.offset)
            reader = Reader(file.read(entry.size))
            length = reader.varint()
            checksum, string = reader.take(4), reader.take(length)
            checked = length.to_bytes(4, "little") + checksum + string
            require(_masked_crc(checked) == entry.checksum, path, name, "as its checksum says", "other bytes")
        return string

    def _shard(self, name: str) -> Path:
        """The data file of a tensor, which reaches to its end."""
        entry = self.entries[name]
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self._num_shards:05d}")
        size, end = path.stat().st_size if path.is_file() else 0, entry.offset + entry.size
        require(path.is_file() and end <= size, path, name, f"in the file up to byte {end}", f"a file of {size} bytes")
        return path


def shards_of(prefix: Path) -> list[Path]:
    """The paths of a checkpoint's data files, in order."""
    return sorted(path for path in prefix.parent.iterdir() if path.name.startswith(f"{prefix.name}.data-"))


def find_index(files: Mapping[str, Path], where: Path) -> Path:
    """Finds the index of the checkpoint that TensorFlow would restore from a save directory.

    The file `checkpoint` names it by its path on the machine that wrote it; only the file name counts. Without that
    file, it is the `model.ckpt-N` with the highest N.

    Args:
        files: paths by name, all in one folder.
        where: the folder, for messages.

    Raises:
        ConversionError: if there is none.
    """
    found = sorted((path for name, path in files.items() if name.endswith(".index")), key=_step)
    names = listed(path.name for path in found) or "none"
    if "checkpoint" not in files:
        require(bool(found), where, "", "a folder with the index of a checkpoint, such as `model.ckpt-1.index`", names)
        return found[-1]
    text = beginning(files["checkpoint"]).decode("utf-8", "replace")
    match = re.search(r'^[ \t]*model_checkpoint_path:[ \t]*"([^"\n]*)"', text, re.MULTILINE)
    name = re.split(r"[/\\]", match[1])[-1] if match else ""
    advice = "Copy the missing files, or delete that file to take the highest step."
    expected = f"the name of an index that is there ({names})"
    require(f"{name}.index" in files, files["checkpoint"], "model_checkpoint_path", expected, repr(name), advice)
    return files[f"{name}.index"]


def _step(path: Path) -> tuple[int, str]:
    match = re.search(r"-(\d+)\.index$", path.name)
    return (int(match[1]) if match else -1, path.name)


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
    """Keys and values of a sorted string table."""
    if len(table) < FOOTER_SIZE or int.from_bytes(table[-8:], "little") != MAGIC:
        raise ValueError(f"it does not end with TensorFlow's magic number {MAGIC:#x}, as V2 checkpoints do")
    footer = Reader(table[-FOOTER_SIZE:])
    _block(table, footer)
    for _, handle in _block_entries(_block(table, footer)):
        yield from _block_entries(_block(table, Reader(handle)))


def _block(table: bytes, handle: Reader) -> bytes:
    """The content of the block at a handle."""
    offset, size = handle.varint(), handle.varint()
    end = offset + size
    block = Reader(table[offset : end + 5]).take(size + 5)
    if _masked_crc(block[:-4]) != int.from_bytes(block[-4:], "little"):
        raise ValueError(f"the checksum of the block at byte {offset} is wrong")
    if table[end] != 0:
        raise ValueError(f"the block at byte {offset} is compressed (type {table[end]}), which TensorFlow never does")
    return block[:-5]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    reader = Reader(Reader(block).take(len(block) - 4 - 4 * num_restarts))
    key = b""
    while not reader.is_at_end:
        shared, unshared, value_size = reader.varint(), reader.varint(), reader.varint()
        key = key[:shared] + reader.take(unshared)
        yield key, reader.take(value_size)
