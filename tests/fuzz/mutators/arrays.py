"""Changes files of arrays in their structure: hdf5, safetensors, torch's state dicts."""

import io
import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import torch

from .dice import Dice
from .json_values import change_json, replacement
from .raw import change_bytes, overwrite_number

Arrays = dict[str, np.ndarray]
NAMES = ("unknown", "", "a\0b", "é日本", "../x", "a/b/c", "\x1b[31m", "x" * 300)
# One chunk of an hdf5 file: 2.5 GB of zeros in 2.5 MB, even if the dataset needs a few bytes of it.
BOMB_SHAPE = (25_000, 25_000)
NESTED, DEPTH = "nested", 2_500


def change_array(array: np.ndarray, dice: Dice) -> np.ndarray:
    """Another shape, dtype or content."""
    kind = dice.choose("longer", "shorter", "transposed", "dtype", "scalar", "empty", "axis", "flat", "numbers")
    if kind == "longer":
        return np.concatenate([array, array[:1]]) if array.ndim else np.stack([array, array])
    if kind == "shorter":
        return array[:-1] if array.ndim else array
    if kind == "dtype":
        name = dice.choose("float64", "float16", "int64", "uint8", "bool", "complex64", ">f4", "S4", "O")
        return np.array(["a", b"b"], dtype="O") if name == "O" else array.astype(name)
    if kind == "numbers":
        array = np.array(array)
        odd = dice.choice([np.nan, np.inf, -np.inf, 0, 1e38, -1e38, 1e-42, 3])
        array.reshape(-1)[: dice.choice([1, array.size])] = odd
        return array
    changed = {"transposed": array.T, "empty": array[:0] if array.ndim else array, "axis": array[None]}
    return (changed | {"scalar": np.float32(1), "flat": array.reshape(-1)})[kind]  # type: ignore[return-value]


def change_hdf5(content: bytes, dice: Dice) -> bytes:
    """Changes one dataset, or what hdf5 can hold beside plain ones."""
    file_bytes = io.BytesIO(content)
    try:
        with h5py.File(file_bytes, "r+") as file:
            if NESTED in file:  # visiting it takes long
                raise KeyError
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
            change_datasets(file, dice.choice(names), dice)
    except (OSError, RuntimeError, KeyError, IndexError):  # a change before damaged the file
        return change_bytes(content, dice)
    return file_bytes.getvalue()


def change_datasets(file: h5py.File, name: str, dice: Dice) -> None:
    """Changes the dataset `name`, or adds something."""
    dice.notes.append(name)
    kinds = ("array", "array", "missing", "renamed", "stored", "extra", "extra group", "attribute")
    kind = dice.choose(*kinds, "external link", "soft link", "external data", "virtual", "bomb", "nested")
    array = file[name][()]
    if kind in ("array", "missing", "renamed", "stored", "external data", "virtual", "bomb"):
        del file[name]
    if kind == "array":
        changed = change_array(array, dice)
        file.create_dataset(name, data=changed, dtype=h5py.string_dtype() if changed.dtype == "O" else None)
    elif kind == "renamed":
        file[dice.choose("unknown", name.upper(), f"{name}0", "é")] = array
    elif kind == "stored" and array.ndim:
        options: dict[str, Any] = dice.choice([{"compression": "gzip"}, {"shuffle": True}, {"fletcher32": True}])
        file.create_dataset(name, data=array, chunks=True, **options)
    elif kind == "extra":
        file[dice.choose("unknown", "CNN/W_cnn_99", "softmax/W", "embedding", "a/b/c")] = array
    elif kind == "extra group":
        file.create_group(dice.choose("unknown", "CNN_high_7", "a/b/c"))
    elif kind == "attribute":
        file.attrs["x" * dice.choice([1, 1000])] = dice.choice([1, "text", np.arange(1000)])
    elif kind in ("external link", "soft link"):
        target = dice.choice(["/", "/nowhere", name, "/loop"])
        link = h5py.ExternalLink(dice.choice(["/etc/passwd", "outside.hdf5"]), target)
        file["loop"] = link if kind == "external link" else h5py.SoftLink(target)
    elif kind == "external data":
        file.create_dataset(name, array.shape, array.dtype, external=[("/etc/passwd", 0, array.nbytes)])
    elif kind == "virtual":
        layout = h5py.VirtualLayout(array.shape, array.dtype)
        layout[...] = h5py.VirtualSource("outside.hdf5", name, array.shape)
        file.create_virtual_dataset(name, layout)
    elif kind == "bomb":
        shape = dice.choice([array.shape, BOMB_SHAPE]) if array.ndim else BOMB_SHAPE
        add_bomb(file, name, shape, is_written=dice.random() < 0.7)
    elif kind == "nested":
        file.create_group(NESTED + "/g" * DEPTH)


def add_bomb(file: h5py.File, name: str, shape: tuple[int, ...], is_written: bool) -> None:
    """A dataset of one chunk of zeros, of many bytes when it is read; or one that has no bytes at all."""
    rank = len(shape)
    chunk = (1,) * (rank - 2) + BOMB_SHAPE if rank > 1 else (BOMB_SHAPE[0] * BOMB_SHAPE[1],)
    dataset = file.create_dataset(name, shape, "f4", maxshape=(None,) * rank, chunks=chunk, compression="gzip")
    if is_written:
        dataset.id.write_direct_chunk((0,) * rank, deflated_zeros(4 * BOMB_SHAPE[0] * BOMB_SHAPE[1]))


def deflated_zeros(size: int) -> bytes:
    """What zlib makes of so many zeros, composed of one block again and again."""
    block = 10_000_000
    assert size % block == 0
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = compressor.compress(bytes(block)) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = ((size % 65521) << 16) | 1
    return b"\x78\x9c" + piece * (size // block) + b"\x03\x00" + struct.pack(">I", checksum)


def change_safetensors(content: bytes, dice: Dice) -> bytes:
    """Changes the header, its length, or the data."""
    if len(content) < 8:
        return change_bytes(content, dice)
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    kind = dice.choose("header", "header", "facts", "facts", "length", "data", "metadata", "tensor twice")
    try:
        entries = json.loads(header)
        name = dice.choice([name for name in entries if name != "__metadata__"])
        entry = entries[name]
        start, end = entry["data_offsets"]
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return change_bytes(content, dice)
    if kind == "length":
        head = bytearray(content[:8])
        overwrite_number(head, dice)
        return bytes(head) + header + data
    if kind == "data":
        return content[: 8 + size] + change_bytes(data, dice)
    dice.notes.append(name)
    if kind == "header":
        return _with_header(change_json(header, dice), data)
    if kind == "facts":
        change_facts(entry, start, end, dice)
    elif kind == "metadata":
        entries["__metadata__"] = dice.choice([{}, {"format": "tf"}, {"format": 1}, None, {"x": "y" * 100_000}])
    else:
        entries[dice.choose(*NAMES)] = dict(entry)
    return _with_header(json.dumps(entries).encode(), data)


def change_facts(entry: dict[str, Any], start: int, end: int, dice: Dice) -> None:
    """Makes a tensor's entry say something else about it."""
    kind = dice.choose("dtype", "shape", "offsets", "reshaped")
    if kind == "dtype":
        entry["dtype"] = dice.choose("F64", "F16", "BF16", "I32", "BOOL", "U8", "F8_E4M3", "F4", "XX", "")
        if dice.random() < 0.5:  # so that the sizes fit
            entry["shape"] = [max(1, (end - start) // 2)]
    elif kind == "shape":
        entry["shape"] = replacement(entry["shape"], dice)
    elif kind == "reshaped":
        entry["shape"] = dice.choice([entry["shape"][::-1], [1, *entry["shape"]], [(end - start) // 4]])
    else:
        change = dice.choice([-4, 4, 2**31, 2**63, -start])
        entry["data_offsets"] = dice.choice([[start + change, end + change], [start, end + change], [end, start]])


def _with_header(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


class Evil:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("unpickled",)


def change_state_dict(content: bytes, dice: Dice) -> bytes:
    """Changes one tensor, or what a pickle can hold beside tensors."""
    try:
        state = dict(torch.load(io.BytesIO(content), weights_only=True))
        name = dice.choice([name for name, value in state.items() if isinstance(value, torch.Tensor)])
    except Exception:  # a change before damaged the file, in any way
        return change_bytes(content, dice)
    dice.notes.append(name)
    tensor = state[name]
    kind = dice.choose("array", "array", "missing", "renamed", "extra", "object", "torch's", "evil", "whole")
    if kind == "array":
        changed = change_array(tensor.numpy(), dice)
        kept = changed if changed.dtype.kind in "fiubc" and changed.dtype.byteorder != ">" else np.zeros(3)
        state[name] = torch.from_numpy(np.ascontiguousarray(kept))
    elif kind == "missing":
        del state[name]
    elif kind == "renamed":
        state[dice.choose(*NAMES)] = state.pop(name)
    elif kind == "extra":
        state[dice.choose(*NAMES, f"{name}.0")] = tensor
    elif kind == "object":
        state[dice.choice([name, "x", 1, None])] = dice.choice([None, 1, "text", [tensor], {"a": tensor}, (1, 2)])
    elif kind == "torch's":
        state[name] = odd_tensor(tensor, dice)
    elif kind == "evil":
        state["evil"] = Evil()
    else:
        odd = dice.choice([[], {}, tensor, None, "text", [state], {"state_dict": state}, Evil()])
        return pickle.dumps(odd) if dice.random() < 0.3 else saved(odd, dice)
    return saved(state, dice)


def odd_tensor(tensor: torch.Tensor, dice: Dice) -> torch.Tensor:
    """A tensor that no state dict of an ELMo holds: sparse, repeated without end, of another dtype or device."""
    kind = dice.choose("sparse", "expanded", "bfloat16", "half", "meta", "parameter", "view", "negative view")
    if kind == "expanded":
        return torch.zeros(1).expand(2**40)
    return {
        "sparse": lambda: tensor.to_sparse(),
        "bfloat16": lambda: tensor.bfloat16(),
        "half": lambda: tensor.half(),
        "meta": lambda: tensor.to("meta"),
        "parameter": lambda: torch.nn.Parameter(tensor),
        "view": lambda: torch.cat([tensor, tensor]).flip(0)[: len(tensor)],
        "negative view": lambda: torch._neg_view(tensor),
    }[kind]()


def saved(state: Any, dice: Dice) -> bytes:
    """What torch.save writes, in its older or newer form."""
    content = io.BytesIO()
    torch.save(state, content, _use_new_zipfile_serialization=dice.choice([True, False]))
    return content.getvalue()
