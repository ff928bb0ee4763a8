"""Torch's files of weights (`.pkl`, `.th`, `.pt`), read without torch and without running any code in them.

torch.save writes two forms. Both have a pickle that describes tensors, which `pickles.py` reads as data, and numbers:

    older  magic number, protocol, sizes of types, state dict, keys (five pickles), then for each key: count, numbers
    newer  an uncompressed zip file with `data.pkl`, and one member `data/KEY` for the numbers of each key

A tensor is a place, a shape and strides in the numbers of one key. Any other form of pickle or zip file is refused.
"""

import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConversionError, quoted, shortened
from ..limits import MAX_ARRAYS, MAX_AXES, MAX_PICKLE
from ..zips import MAGIC as ZIP_MAGIC
from ..zips import open_zip
from .pickles import Call, ForeignName, Name, Stored, read_pickle

# The magic number at the start of torch's older form, pickled in protocol 2.
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
DTYPES: dict[str, np.dtype[Any]] = {
    "Float": np.dtype("<f4"),
    "Double": np.dtype("<f8"),
    "Half": np.dtype("<f2"),
    "BFloat16": np.dtype("<u2"),  # NumPy has no such type; `_arrays` makes float32 of it
    "Long": np.dtype("<i8"),
    "Int": np.dtype("<i4"),
    "Short": np.dtype("<i2"),
    "Char": np.dtype("i1"),
    "Byte": np.dtype("u1"),
    "Bool": np.dtype("?"),
}
DAMAGE = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, NotImplementedError, KeyError)
Read = Callable[["Storage"], np.ndarray]


@dataclass(frozen=True)
class Storage:
    """Numbers of one type in a row.

    Attributes:
        kind: their type, a key of `DTYPES`.
        key: their name in the file.
        count: how many they are.
    """

    kind: str
    key: str
    count: int

    @classmethod
    def of(cls, tensor: Call) -> "Storage":
        """Reads torch's description of a tensor's storage; raises ValueError if it is none."""
        value = tensor.arguments[0]
        parts = value.key if isinstance(value, Stored) and isinstance(value.key, tuple) else ()
        # The last part, of the older form only, is a view of another storage, which torch no longer writes.
        if len(parts) not in (5, 6) or parts[0] != "storage" or parts[5:] not in ((), (None,)):
            raise ValueError("it describes a tensor without its storage")
        _, name, key, _, count = parts[:5]
        kind = name.dotted.rpartition(".")[2].removesuffix("Storage") if isinstance(name, Name) else ""
        if kind not in DTYPES or not isinstance(key, str) or not _is_count(count):
            raise ValueError(f"it describes a storage of the type {shortened(kind) or 'unknown'}")
        return cls(kind, key, count)

    @property
    def num_bytes(self) -> int:
        """The length of the numbers in the file."""
        return self.count * DTYPES[self.kind].itemsize


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays, some of which may share numbers; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        ConversionError: if the file is not a state dict of torch, is damaged, or holds anything but tensors.
    """
    with path.open("rb") as file:
        magic = file.read(len(LEGACY_MAGIC))
    try:
        if magic.startswith(ZIP_MAGIC):
            with open_zip(path) as archive:
                return _arrays(*_read_zip(archive, path), path)
        if magic == LEGACY_MAGIC:
            return _arrays(*_read_legacy(path), path)
    except ForeignName as error:
        raise ConversionError(
            f"{path} holds {error}, which is not a tensor. A pickle can run code, so it is not read."
        ) from error
    except DAMAGE as error:
        raise ConversionError(
            f"{path} cannot be read, it may be truncated: {shortened(str(error))}. Get it again."
        ) from error
    raise ConversionError(
        f"{path} is not a file that torch.save wrote: it begins with {magic[:4]!r}. (Other pickles can run code "
        "and are not read.)"
    )


def _read_zip(archive: zipfile.ZipFile, path: Path) -> tuple[dict[str, Call], Read]:
    """The tensors of the newer form, and what reads a storage."""
    names = archive.namelist()
    if any(name.endswith("/constants.pkl") for name in names):
        raise ConversionError(f"{path} is a TorchScript program, which is code; give its state dict.")
    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.filelist):
        raise ConversionError(f"{path} is a compressed zip file; torch.save writes uncompressed ones.")
    pickles = [name for name in names if name.endswith("/data.pkl")]
    if len(pickles) != 1 or len(set(names)) < len(names):
        raise ValueError("it must hold one `data.pkl`, and every name once")
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}byteorder" in names and archive.read(f"{prefix}byteorder") != b"little":
        raise ConversionError(f"{path} comes from a big-endian machine; save it on another.")
    if archive.getinfo(pickles[0]).file_size > MAX_PICKLE:
        raise _too_many(path)

    def read(storage: Storage) -> np.ndarray:
        name = f"{prefix}data/{storage.key}"
        if archive.getinfo(name).file_size != storage.num_bytes:
            raise ValueError(f"{shortened(name)} must have {storage.num_bytes:,} bytes")
        return np.frombuffer(archive.read(name), DTYPES[storage.kind])

    return _tensors(read_pickle(io.BytesIO(archive.read(pickles[0]))), path), read


def _read_legacy(path: Path) -> tuple[dict[str, Call], Read]:
    """The tensors of the older form, and what reads a storage."""
    with path.open("rb") as file:
        stream = io.BytesIO(file.read(MAX_PICKLE))
    try:
        _, _, system, state, keys = [read_pickle(stream) for _ in range(5)]
    except ValueError:
        if stream.tell() == MAX_PICKLE:
            raise _too_many(path) from None
        raise
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise ConversionError(f"{path} comes from a big-endian machine; save it on another.")
    tensors = _tensors(state, path)
    storages = {storage.key: storage for storage in map(Storage.of, tensors.values())}
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in storages for key in keys):
        raise ValueError("it lists numbers that belong to no tensor")
    places, place, size = {}, stream.tell(), path.stat().st_size
    for key in keys:
        places[key] = place + 8
        place += 8 + storages[key].num_bytes
    if place > size:
        raise ValueError(f"its numbers end at byte {place:,}, the file at {size:,}")

    def read(storage: Storage) -> np.ndarray:
        if storages[storage.key] != storage:
            raise ValueError("it describes one storage in two ways")
        start = places[storage.key]
        if np.fromfile(path, "<i8", count=1, offset=start - 8) != storage.count:
            raise ValueError(f"{storage.count:,} numbers must follow at byte {start:,}")
        return np.fromfile(path, DTYPES[storage.kind], count=storage.count, offset=start)

    return tensors, read


def _tensors(state: Any, path: Path) -> dict[str, Call]:
    """The calls that make the tensors, those inside parameters too, by name."""
    if not isinstance(state, dict) or not state or not all(isinstance(name, str) for name in state):
        raise ConversionError(f"{path} must hold tensors by name, found {type(state).__name__}.")
    if len(state) > MAX_ARRAYS:
        raise _too_many(path)
    tensors = {}
    for name, value in state.items():
        if isinstance(value, Call) and value.function.endswith("_parameter") and value.arguments:
            value = value.arguments[0]
        if not isinstance(value, Call) or "_tensor" not in value.function or len(value.arguments) < 4:
            found = type(value).__name__
            raise ConversionError(f"{path}: `{shortened(name)}` must be a dense tensor, found {found}.")
        tensors[name] = value
    return tensors


def _arrays(tensors: dict[str, Call], read: Read, path: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    numbers: dict[Storage, np.ndarray] = {}
    for name, tensor in tensors.items():
        storage = Storage.of(tensor)
        if storage not in numbers:
            stored = read(storage)
            is_bfloat16 = storage.kind == "BFloat16"
            numbers[storage] = (stored.astype(np.uint32) << 16).view(np.float32) if is_bfloat16 else stored
        arrays[name] = _array(tensor, numbers[storage], f"{path}: `{shortened(name)}`")
    return arrays


def _array(tensor: Call, numbers: np.ndarray, where: str) -> np.ndarray:
    _, start, shape, strides, *others = tensor.arguments
    if others and not isinstance(others[0], bool):
        raise ValueError(f"{where} must say by true or false whether it learns, found {quoted(others[0])}")
    if len(others) > 2 and others[2]:  # signs to be turned when the numbers are read
        raise ValueError(f"{where} is a view with the metadata {quoted(others[2])}")
    lengths_are_equal = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)
    if not lengths_are_equal or len(shape) > MAX_AXES or not all(map(_is_count, (start, *shape, *strides))):
        raise ValueError(f"{where} has the shape {quoted(shape)} and the strides {quoted(strides)}")
    # Strides of 0 let a tensor of any size repeat a few stored numbers.
    if math.prod(shape) > len(numbers):
        raise ConversionError(f"{where} has shape {shape}, more numbers than the file holds.")
    size = numbers.itemsize
    try:
        return np.ndarray(shape, numbers.dtype, numbers.data, size * start, [size * stride for stride in strides])
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{where} lies outside of its numbers") from error


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _too_many(path: Path) -> ConversionError:
    return ConversionError(
        f"{path} holds more than {MAX_ARRAYS:,} tensors, or names that take more than {MAX_PICKLE:,} bytes; "
        "it is not read."
    )
