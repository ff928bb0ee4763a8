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

Only the requested tensors are read; an optimiser's slots are skipped. The files are not trusted: every checksum is
verified, and sizes are compared with the file before memory is allocated.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from ..refusals import check_unpacked, listed, reading, require
from ..sources import beginning

MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
MAX_INDEX_SIZE = 1 << 20  # the index of an ELMo has about 5 kB
# Keys are values of TensorFlow's enum `DataType`.
DTYPES = {number: np.dtype(name) for number, name in ((1, "<f4"), (2, "<f8"), (3, "<i4"), (9, "<i8"), (19, "<f2"))}


class Reader:
    """Reads bytes from the beginning; raises ValueError if too few are left."""

    def __init__(self, data: bytes) -> None:
        """Starts at the beginning."""
        self.data = data
        self.place = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if not 0 <= size <= len(self.data) - self.place:
            raise ValueError(f"{size} bytes must follow, found {len(self.data) - self.place}")
        self.place += size
        return self.data[self.place - size : self.place]

    def varint(self) -> int:
        """A number in groups of seven bits, lowest first; a byte's highest bit is 1 if more follow."""
        number = 0
        for shift in range(0, 64, 7):
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number has more than 64 bits")


class Message(dict[int, list[Any]]):
    """The fields of a protobuf message: numbers, and the bytes of strings and messages, by field number."""

    def __init__(self, data: bytes) -> None:
        """Parses the fields; raises one of `DAMAGE` if they are damaged."""
        reader = Reader(data)
        takers: dict[int, Callable[[], int | bytes]] = {
            0: reader.varint,
            2: lambda: reader.take(reader.varint()),
            5: lambda: int.from_bytes(reader.take(4), "little"),
        }
        while reader.place < len(data):
            field, wire_type = divmod(reader.varint(), 8)
            self.setdefault(field, []).append(takers[wire_type]())

    def last(self, field: int) -> Any:
        """The last value of a field; an absent number is 0."""
        return self.get(field, [0])[-1]

    def messages(self, field: int) -> list["Message"]:
        """The messages of a repeated field."""
        return [Message(part) for part in self.get(field, [])]


class TensorBundle:
    """A checkpoint opened for reading.

    Attributes:
        prefix: path of the checkpoint without `.index`.
        entries: each tensor's `BundleEntryProto` by name; it is checked only when the tensor is read.
    """

    def __init__(self, prefix: Path) -> None:
        """Reads the index."""
        self.prefix = prefix
        path = prefix.with_name(f"{prefix.name}.index")
        with reading(path):
            require(path.stat().st_size <= MAX_INDEX_SIZE, path, "", f"an index of {MAX_INDEX_SIZE:,} bytes", "more")
            values = {key.decode("utf-8"): Message(value) for key, value in _table_entries(path.read_bytes(), path)}
            header = values.pop("", Message(b""))
            require(header.last(2) == 0, path, "endianness", "little", "big")
            self._num_shards = header.last(1)
            self.entries = values

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Reads tensors by name.

        Raises:
            KeyError: if the index has no such name.
            ConversionError: if a type is not supported, if bytes are missing or damaged, or if the tensors are much
                larger than their file, because many share its bytes.
        """
        unpacked: Counter[Path] = Counter()
        arrays = {}
        for name in names:
            entry, path = self.entries[name], self._shard(name)
            with reading(path):
                dtype = DTYPES.get(entry.last(1), np.dtype(object))
                shape = tuple(axis.last(1) for shape in entry.messages(2) for axis in shape.messages(2))
                is_whole = 7 not in entry and math.prod(shape) * dtype.itemsize == entry.last(5)
                kinds = ", ".join(map(str, DTYPES.values()))
                require(not dtype.hasobject and is_whole, path, name, f"one whole array of {kinds}", dict(entry))
                unpacked[path] += entry.last(5)
                check_unpacked(unpacked[path], path)
                array = np.fromfile(path, dtype, count=math.prod(shape), offset=entry.last(4))
                require(_masked_crc(array) == entry.last(6), path, name, "as its checksum says", "other bytes")
                arrays[name] = array.reshape(shape)
        return arrays

    def read_string(self, name: str) -> bytes:
        """Reads a tensor that is one string.

            value    = length (varint), checksum c of the length (4 bytes), the string
            checksum = of the length in 4 bytes, the 4 bytes of c, and the string

        Raises:
            KeyError: if the index has no such name.
            ConversionError: if the tensor is not a string, or is missing or damaged.
        """
        entry, path = self.entries[name], self._shard(name)
        with reading(path), path.open("rb") as file:
            file.seek(entry.last(4))
            reader = Reader(file.read(entry.last(5)))
            length = reader.varint()
            rest = reader.take(4 + length)
            is_whole = _masked_crc(length.to_bytes(4, "little") + rest) == entry.last(6)
            require(is_whole, path, name, "one string, as its checksum says", "other bytes")
        return rest[4:]

    def _shard(self, name: str) -> Path:
        """The data file of a tensor."""
        with reading(self.prefix):
            shard = f"{self.entries[name].last(3):05d}-of-{self._num_shards:05d}"
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard}")


def shards_of(prefix: Path) -> list[Path]:
    """The paths of a checkpoint's data files, in order."""
    return sorted(path for path in prefix.parent.iterdir() if path.name.startswith(f"{prefix.name}.data-"))


def find_index(files: Mapping[str, Path]) -> Path:
    """Finds the index of the checkpoint that TensorFlow would restore from a save directory.

    The file `checkpoint` has the index's path on the machine that wrote it; only the file name is used. Without this
    file, the index is the `model.ckpt-N` with the highest N.

    Args:
        files: paths by name, all in one folder; at least one is an index.
    """
    found = sorted((path for name, path in files.items() if name.endswith(".index")), key=_step)
    if "checkpoint" not in files:
        return found[-1]
    text = beginning(files["checkpoint"]).decode("utf-8", "replace")
    match = re.search(r'^[ \t]*model_checkpoint_path:[ \t]*"([^"\n]*)"', text, re.MULTILINE)
    name = re.split(r"[/\\]", match[1])[-1] if match else ""
    advice = "Copy the missing files, or delete that file to take the highest step."
    expected = f"the name of an index that is there ({listed(path.name for path in found)})"
    require(f"{name}.index" in files, files["checkpoint"], "model_checkpoint_path", expected, repr(name), advice)
    return files[f"{name}.index"]


def _step(path: Path) -> tuple[int, str]:
    match = re.search(r"-(\d+)\.index$", path.name)
    return (int(match[1]) if match else -1, path.name)


def _masked_crc(data: bytes | np.ndarray) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entries(table: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a sorted string table."""
    is_table = len(table) >= FOOTER_SIZE and int.from_bytes(table[-8:], "little") == MAGIC
    require(is_table, path, "", f"TensorFlow's, with the number {MAGIC:#x} at its end, as of V2 checkpoints", "another")
    footer = Reader(table[-FOOTER_SIZE:])
    _block(table, footer, path)
    for _, handle in _block_entries(_block(table, footer, path)):
        yield from _block_entries(_block(table, Reader(handle), path))


def _block(table: bytes, handle: Reader, path: Path) -> bytes:
    """The content of the block at a handle."""
    offset, size = handle.varint(), handle.varint()
    block = Reader(table[offset : offset + size + 5]).take(size + 5)
    is_whole = _masked_crc(block[:-4]) == int.from_bytes(block[-4:], "little")
    require(is_whole, path, f"block at byte {offset}", "as its checksum says", "other bytes")
    return block[:-5]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    reader = Reader(Reader(block).take(len(block) - 4 - 4 * num_restarts))
    key = b""
    while reader.place < len(reader.data):
        shared, unshared, value_size = reader.varint(), reader.varint(), reader.varint()
        key = key[:shared] + reader.take(unshared)
        yield key, reader.take(value_size)
