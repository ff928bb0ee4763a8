"""Changes of files that hold arrays or files, by their structure: hdf5, safetensors, torch's, archives; `mutate`."""

import bz2
import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import torch

from .values import Dice, change_bytes, change_json, change_lines, change_text, overwrite_number, replacement

# The content of each file by its name, None for an empty folder of that name.
Files = dict[str, bytes | None]
Members = list[tuple[str, bytes]]
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
    with h5py.File(file_bytes, "r+") as file:
        if NESTED in file:  # visiting it takes long
            raise ValueError
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        change_datasets(file, dice.choice(names), dice)
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
        add_bomb(file, name, dice.choice([array.shape, BOMB_SHAPE]) if array.ndim else BOMB_SHAPE, dice)
    elif kind == "nested":
        file.create_group(NESTED + "/g" * DEPTH)


def add_bomb(file: h5py.File, name: str, shape: tuple[int, ...], dice: Dice) -> None:
    """A dataset of one chunk of zeros, of many bytes when it is read; or one that has no bytes at all."""
    rank, size, block = len(shape), 4 * BOMB_SHAPE[0] * BOMB_SHAPE[1], 10_000_000
    chunk = (1,) * (rank - 2) + BOMB_SHAPE if rank > 1 else (BOMB_SHAPE[0] * BOMB_SHAPE[1],)
    dataset = file.create_dataset(name, shape, "f4", maxshape=(None,) * rank, chunks=chunk, compression="gzip")
    if dice.random() < 0.7:
        # What zlib makes of so many zeros, composed of one block again and again.
        compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
        piece = compressor.compress(bytes(block)) + compressor.flush(zlib.Z_FULL_FLUSH)
        zeros = b"\x78\x9c" + piece * (size // block) + b"\x03\x00" + struct.pack(">I", ((size % 65521) << 16) | 1)
        dataset.id.write_direct_chunk((0,) * rank, zeros)


def change_safetensors(content: bytes, dice: Dice) -> bytes:
    """Changes the header, its length, or the data."""
    size = int.from_bytes(content[:8], "little")
    head, header, data = bytearray(content[:8]), content[8 : 8 + size], content[8 + size :]
    kind = dice.choose("header", "header", "facts", "facts", "length", "data", "metadata", "tensor twice")
    entries = json.loads(header)
    name = dice.choice([name for name in entries if name != "__metadata__"])
    dice.notes.append(name)
    if kind == "length":
        overwrite_number(head, dice)
        return bytes(head) + header + data
    if kind == "data":
        return content[: 8 + size] + change_bytes(data, dice)
    if kind == "facts":
        change_facts(entries[name], dice)
    elif kind == "metadata":
        entries["__metadata__"] = dice.choice([{}, {"format": "tf"}, {"format": 1}, None, {"x": "y" * 100_000}])
    elif kind == "tensor twice":
        entries[dice.choose(*NAMES)] = dict(entries[name])
    header = change_json(header, dice) if kind == "header" else json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + data


def change_facts(entry: dict[str, Any], dice: Dice) -> None:
    """Makes a tensor's entry say something else about it."""
    start, end = entry["data_offsets"]
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


class Evil:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("unpickled",)


def change_state_dict(content: bytes, dice: Dice) -> bytes:
    """Changes one tensor, or what a pickle can hold beside tensors."""
    state = dict(torch.load(io.BytesIO(content), weights_only=True))
    name = dice.choice([name for name, value in state.items() if isinstance(value, torch.Tensor)])
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
    kinds: dict[str, Callable[[], torch.Tensor]] = {
        "sparse": tensor.to_sparse,
        "expanded": lambda: torch.zeros(1).expand(2**40),
        "bfloat16": tensor.bfloat16,
        "half": tensor.half,
        "meta": lambda: tensor.to("meta"),
        "parameter": lambda: torch.nn.Parameter(tensor),
        "view": lambda: torch.cat([tensor, tensor]).flip(0)[: len(tensor)],
        "negative view": lambda: torch._neg_view(tensor),
    }
    return kinds[dice.choose(*kinds)]()


def saved(state: Any, dice: Dice) -> bytes:
    """What torch.save writes, in its older or newer form."""
    content = io.BytesIO()
    torch.save(state, content, _use_new_zipfile_serialization=dice.choice([True, False]))
    return content.getvalue()


HOSTILE_NAMES = (
    *("../evil", "/evil", "a/../../evil", "..", ".", "", "a\\b", "C:/evil", "C:evil", "\\\\host\\evil", "a//b", "NUL"),
    *("./config.json", "x" * 300, "a/" * 200 + "b", "é日本", "new\nline", "\x1b[31m", "a:b", "config.json/", "~/evil"),
)
MANY = 20_000


def change_members(members: Members, dice: Dice) -> Members:
    """Changes one member, or the list."""
    if not members:
        return [("x", b"")]
    place = dice.randrange(len(members))
    name, content = members[place]
    kind = dice.choice(["content"] * 5 + ["renamed", "hostile", "lost", "twice", "folder", "bomb"])
    if kind == "bomb" and dice.random() < 0.2:
        kind = "many"
    dice.notes.append(kind)
    if kind == "content":
        dice.notes.append(name)
        members[place] = (name, change_by_name(name, content, dice))
    elif kind == "renamed":
        members[place] = (dice.choose(*HOSTILE_NAMES), content)
    elif kind == "hostile":
        members.insert(place, (dice.choose(*HOSTILE_NAMES), b"evil"))
    elif kind == "lost":
        del members[place]
    elif kind == "twice":
        members.insert(dice.randrange(len(members)), (name, dice.choice([content, b"{}"])))
    elif kind == "folder":
        return [(dice.choice(["a/", "a/b/", "é/"]) + name, content) for name, content in members]
    elif kind == "bomb":
        members.append((dice.choice(["x", name]), bytes(dice.choice([1 << 20, 40 << 20]))))
    else:
        members += [(f"{index}.txt", b"") for index in range(MANY)]
    return members


def change_zip(content: bytes, dice: Dice) -> bytes:
    """Changes a zip file; its list may lie about a member."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = change_members([(name, archive.read(name)) for name in archive.namelist()], dice)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in members:
            member = zipfile.ZipInfo("x")
            member.filename = name
            member.compress_type = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED])
            if dice.random() < 0.01:
                member.external_attr = dice.choice([0o120777, 0o010644, 0o020644, 0o040755]) << 16
                dice.notes.append("link or device")
            archive.writestr(member, data)
        if archive.filelist and dice.random() < 0.15:
            member = dice.choice(archive.filelist)
            field = dice.choose("file_size", "compress_size", "CRC", "flag_bits", "header_offset", "compress_type")
            most = 0xFFFF if field in ("flag_bits", "compress_type") else 0xFFFFFFFE  # that the format holds
            setattr(member, field, dice.choice([0, 1, getattr(member, field) ^ 1, most]))
    return packed.getvalue()


def change_tar(content: bytes, dice: Dice, compression: Any) -> bytes:
    """Changes a tar file that the module `compression` compresses."""
    with tarfile.open(fileobj=io.BytesIO(compression.decompress(content))) as archive:
        files = [member for member in archive if member.isreg()]
        members = [(member.name, archive.extractfile(member).read()) for member in files]  # type: ignore[union-attr]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=dice.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as archive:
        for name, data in change_members(members, dice):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if dice.random() < 0.01:
                member.type = dice.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
                member.linkname = dice.choice(["../outside", "/etc/passwd", name, "config.json"])
                dice.notes.append("link or device")
            archive.addfile(member, io.BytesIO(data))
    packed = plain.getvalue()
    return compression.compress(change_bytes(packed, dice) if dice.random() < 0.15 else packed)


def change_gzip(content: bytes, dice: Dice, name: str) -> bytes:
    """Changes the compressed text `name`, or how it is compressed."""
    plain = gzip.decompress(content)
    kind = dice.choose("inside", "inside", "two members", "rubbish behind", "not compressed", "twice compressed")
    if kind in ("inside", "two members"):
        return content * (kind == "two members") + gzip.compress(change_by_name(name, plain, dice))
    if kind == "rubbish behind":
        return content + dice.choice([b"\0" * 100, b"rubbish", content[:50]])
    return plain if kind == "not compressed" else gzip.compress(content)


# By the end of a file's name; the first that fits counts.
CHANGES: dict[str, Callable[[bytes, Dice], bytes]] = {
    ".zip": change_zip,
    ".tar.gz": lambda content, dice: change_tar(content, dice, gzip),
    ".tar.bz2": lambda content, dice: change_tar(content, dice, bz2),
    ".jsonl": change_lines,
    ".json": change_json,
    **dict.fromkeys((".hdf5", ".dump"), change_hdf5),
    ".safetensors": change_safetensors,
    **dict.fromkeys((".th", ".pkl", ".pt"), change_state_dict),
    **dict.fromkeys((".txt", ".conllu"), change_text),
}


def change_by_name(name: str, content: bytes, dice: Dice) -> bytes:
    """Changes a file's content as its format allows, or its bytes."""
    change = next((change for end, change in CHANGES.items() if name.endswith(end)), change_bytes)
    if name.endswith(".gz") and change is change_bytes:
        return change_gzip(content, dice, name.removesuffix(".gz"))
    if dice.random() < 0.3:
        return change_bytes(content, dice)
    try:
        return change(content, dice)
    except Exception:  # of any library: a change before damaged the file
        return change_bytes(content, dice)


# HDF5's library itself crashes on some damaged files, so only whole ones are changed as their format allows.
HOLDS_HDF5 = (".hdf5", ".dump", ".zip", ".gz", ".bz2")


def mutate(files: Files, dice: Dice) -> Files:
    """Changes one file, seldom several, of a valid input, which stays as it is."""
    changed = dict(files)
    for _ in range(dice.choices([1, 2, 3], [7, 2, 1])[0]):
        name = dice.choice(sorted(files))
        content = changed.get(name)
        dice.notes.append(name)
        if content is None or dice.random() < 0.08:
            change_file(changed, name, dice)
        elif name.endswith(HOLDS_HDF5) and content != files[name]:
            changed[name] = change_bytes(content, dice)
        else:
            changed[name] = change_by_name(name, content, dice)
    return changed


def change_file(files: Files, name: str, dice: Dice) -> None:
    """Removes, empties or replaces a whole file."""
    kind = dice.choose("removed", "empty", "a folder", "another's bytes", "renamed")
    if kind == "removed":
        files.pop(name, None)
    elif kind == "renamed":
        files[dice.choice([f"{name}.bak", name.upper(), f"x{name}"])] = files.pop(name, None)
    else:
        others = [content for other, content in sorted(files.items()) if other != name and content is not None]
        files[name] = {"empty": b"", "a folder": None}.get(kind, dice.choice(others or [b"x"]))
