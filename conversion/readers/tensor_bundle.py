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

from ..refusals import ConversionError, check_unpacked, listed, naming_file, shortened
from ..sources import beginning

TABLE_MAGIC = 0xDB4775248B80FB57
FOOTER_SIZE = 48
MAX_INDEX_SIZE = 1 << 20  # the index of an ELMo has about 5 kB
# Keys are values of TensorFlow's enum `DataType`.
TENSOR_DTYPES: dict[int, np.dtype] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    9: np.dtype("<i8"),
    19: np.dtype("<f2"),
}
GET_AGAIN = "It is damaged: get it again."


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
        with naming_file(path):
            size = path.stat().st_size
            if size > MAX_INDEX_SIZE:
                raise ConversionError(
                    f"{path} must be a checkpoint's index, of at most {MAX_INDEX_SIZE:,} bytes, but has {size:,}."
                )
            values = {key.decode("utf-8"): Message(value) for key, value in _table_entries(path.read_bytes(), path)}
            header = values.pop("", Message(b""))
            if header.last(2) != 0:
                raise ConversionError(
                    f"{path} must have little-endian numbers, but its endianness is big; save the checkpoint again on "
                    "a little-endian machine."
                )
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
            entry = self.entries[name]
            path = self._shard(name)
            with naming_file(path):
                dtype, shape = _dtype_and_shape(entry, name, path)
                unpacked[path] += entry.last(5)
                check_unpacked(unpacked[path], path)
                array = np.fromfile(path, dtype, count=math.prod(shape), offset=entry.last(4))
                if _masked_crc(array) != entry.last(6):
                    raise ConversionError(
                        f"{path}: the bytes of `{shortened(name)}` do not fit their checksum. {GET_AGAIN}"
                    )
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
        entry = self.entries[name]
        path = self._shard(name)
        with naming_file(path), path.open("rb") as file:
            file.seek(entry.last(4))
            reader = Reader(file.read(entry.last(5)))
            length = reader.varint()
            checksum_and_string = reader.take(4 + length)
            if _masked_crc(length.to_bytes(4, "little") + checksum_and_string) != entry.last(6):
                raise ConversionError(
                    f"{path}: `{shortened(name)}` must be one string, but its bytes do not fit their checksum. "
                    f"{GET_AGAIN}"
                )
        return checksum_and_string[4:]

    def _shard(self, name: str) -> Path:
        """The data file of a tensor."""
        with naming_file(self.prefix):
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
    indices = sorted((path for name, path in files.items() if name.endswith(".index")), key=_step)
    if "checkpoint" not in files:
        return indices[-1]
    record = files["checkpoint"]
    text = beginning(record).decode("utf-8", "replace")
    match = re.search(r'^[ \t]*model_checkpoint_path:[ \t]*"([^"\n]*)"', text, re.MULTILINE)
    name = re.split(r"[/\\]", match[1])[-1] if match else ""
    if f"{name}.index" not in files:
        raise ConversionError(
            f"{record}: `model_checkpoint_path` must name a checkpoint that is there, of "
            f"{listed(path.name for path in indices)}, but is {shortened(repr(name))}. Copy the missing files, or give "
            "the `.index` to convert in place of the folder."
        )
    return files[f"{name}.index"]


def _dtype_and_shape(entry: Message, name: str, path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """The dtype and the shape of a tensor, which must be a whole array of one of `TENSOR_DTYPES`."""
    dtype = TENSOR_DTYPES.get(entry.last(1))
    axes = [axis for shape in entry.messages(2) for axis in shape.messages(2)]
    shape = tuple(axis.last(1) for axis in axes)
    is_slice = 7 in entry
    if dtype is None or is_slice or math.prod(shape) * dtype.itemsize != entry.last(5):
        dtypes = ", ".join(str(known) for known in TENSOR_DTYPES.values())
        raise ConversionError(
            f"{path}: `{shortened(name)}` must be one whole array of {dtypes}, but its entry in the index is "
            f"{shortened(str(dict(entry)))}."
        )
    return dtype, shape


def _step(path: Path) -> tuple[int, str]:
    """The step of a checkpoint's index, -1 without one, and its name."""
    match = re.search(r"-(\d+)\.index$", path.name)
    step = int(match[1]) if match else -1
    return step, path.name


def _masked_crc(data: bytes | np.ndarray) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table_entries(table: bytes, path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a sorted string table."""
    if len(table) < FOOTER_SIZE or int.from_bytes(table[-8:], "little") != TABLE_MAGIC:
        raise ConversionError(
            f"{path} must be the index of a checkpoint of TensorFlow's format V2, with the number {TABLE_MAGIC:#x} at "
            "its end, but ends otherwise. It may be damaged or another kind of file."
        )
    footer = Reader(table[-FOOTER_SIZE:])
    _block(table, footer, path)
    for _, handle in _block_entries(_block(table, footer, path)):
        yield from _block_entries(_block(table, Reader(handle), path))


def _block(table: bytes, handle: Reader, path: Path) -> bytes:
    """The content of the block at a handle."""
    offset = handle.varint()
    size = handle.varint()
    block = Reader(table[offset : offset + size + 5]).take(size + 5)
    if _masked_crc(block[:-4]) != int.from_bytes(block[-4:], "little"):
        raise ConversionError(f"{path}: the bytes of the block at byte {offset} do not fit their checksum. {GET_AGAIN}")
    return block[:-5]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    reader = Reader(Reader(block).take(len(block) - 4 - 4 * num_restarts))
    key = b""
    while reader.place < len(reader.data):
        shared = reader.varint()
        unshared = reader.varint()
        value_size = reader.varint()
        key = key[:shared] + reader.take(unshared)
        yield key, reader.take(value_size)
