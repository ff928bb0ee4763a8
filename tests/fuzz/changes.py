"""How a valid input is changed: arrays, and the containers of arrays and of files; `text_changes.py` has the rest.

All decisions are those of one input's dice. A change of one format is a function of the content and the dice, chosen
by the end of the file's name; where it cannot read the content, because a change before damaged it, bytes are changed.
"""

import bz2
import gzip
import io
import os
import pickle
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import h5py
import numpy as np
import torch

from tests.helpers.archives import state_bytes
from tests.helpers.checkpoints import Arrays, read_datasets, write_datasets
from tests.helpers.hostile_checkpoints import HOSTILE_DATASETS

from .text_changes import TEXTS, Dice, change_bytes, change_card, change_json, change_json_lines, change_text

# The content of each file by its path in the input.
Files = dict[str, bytes]


def change_array(array: np.ndarray, dice: Dice) -> np.ndarray:
    odd = np.array(array)
    number = dice.choice([np.nan, np.inf, -np.inf, 0, 1e38, -1e38, 1e-42, 3])
    odd.reshape(-1)[: dice.choice([1, array.size])] = number
    dtype = dice.choice(["float64", "float16", "int64", "uint8", "bool", "complex64", ">f4", "S4"])
    changed = {
        "longer": lambda: np.concatenate([array, array[:1]]) if array.ndim else np.stack([array, array]),
        "shorter": lambda: array[:-1] if array.ndim else array,
        "empty": lambda: array[:0] if array.ndim else array,
        "transposed": lambda: array.T,
        "an axis more": lambda: array[None],
        "flat": lambda: array.reshape(-1),
        "scalar": lambda: np.float32(1),
        dtype: lambda: array.astype(dtype),
        str(number): lambda: odd,
    }
    return np.asarray(changed[dice.choose(*changed)]())


# --- containers of arrays ---------------------------------------------------------------------------------------------


def change_arrays(arrays: Arrays, dice: Dice) -> Arrays:
    changed, name = dict(arrays), dice.choose(*arrays)
    array, kind = changed.pop(name), dice.choose("array", "array", "missing", "renamed", "extra")
    if kind in ("array", "extra"):
        changed[name] = change_array(array, dice) if kind == "array" else array
    if kind in ("renamed", "extra"):
        changed[dice.choose("CNN/W_cnn_99", "global_step", f"{name}/Adagrad", name[3:], name.upper(), *TEXTS)] = array
    return changed


def change_hdf5(content: bytes, dice: Dice) -> bytes:
    """Changes one dataset, or what hdf5 can hold beside plain ones."""
    arrays, file_bytes = read_datasets(io.BytesIO(content)), io.BytesIO()
    if dice.random() < 0.5:
        write_datasets(file_bytes, change_arrays(arrays, dice))
        return file_bytes.getvalue()
    write_datasets(file_bytes, arrays)
    name = dice.choose(*arrays)
    array = arrays[name]
    with h5py.File(file_bytes, "r+") as file:
        kind = dice.choose(
            *("stored", "text", "group", "attribute", "link", "external", "virtual", "unwritten", "hostile", "hostile")
        )
        if kind in ("stored", "text", "external", "virtual", "unwritten"):
            del file[name]
        if kind == "stored":
            options: dict[str, Any] = dice.choice([{"compression": "gzip"}, {"shuffle": True}, {"fletcher32": True}])
            file.create_dataset(name, data=array, chunks=True, **options)
        elif kind == "text":
            file.create_dataset(name, data=["a", b"b"], dtype=h5py.string_dtype())
        elif kind == "group":
            file.create_group(dice.choose("unknown", "CNN_high_7", "a/b/c"))
        elif kind == "attribute":
            file.attrs["x" * dice.choice([1, 1000])] = dice.choice([1, "text", np.arange(1000)])
        elif kind == "link":
            target = dice.choice(["/", "/nowhere", name, "/loop"])
            file["loop"] = dice.choice([h5py.SoftLink(target), h5py.ExternalLink("/etc/passwd", target)])
        elif kind == "external":
            file.create_dataset(name, array.shape, array.dtype, external=[("/etc/passwd", 0, array.nbytes)])
        elif kind == "unwritten":
            file.create_dataset(name, array.shape, array.dtype)
        elif kind == "virtual":
            layout = h5py.VirtualLayout(array.shape, array.dtype)
            layout[...] = h5py.VirtualSource("outside.hdf5", name, array.shape)
            file.create_virtual_dataset(name, layout)
        else:
            file.pop("char_embed", None)
            # A chunk that unpacks to more than it declares is ended by a limit on memory alone, which this lacks.
            HOSTILE_DATASETS[dice.choose(*sorted(HOSTILE_DATASETS.keys() - {"chunk_longer_than_said"}))](file)
    return file_bytes.getvalue()


def change_safetensors(content: bytes, dice: Dice) -> bytes:
    """Changes the header, its length, or a dtype."""
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    kind = dice.choose("header", "header", "dtype", "length")
    if kind == "length":
        return change_bytes(content[:8], dice)[:8] + header + data
    if kind == "header":
        header = change_json(header, dice)
    else:
        dtype = dice.choose("F64", "F16", "BF16", "I32", "U8", "F8_E4M3", "XX")
        header = header.replace(b'"F32"', f'"{dtype}"'.encode(), dice.choice([1, -1]))
    return len(header).to_bytes(8, "little") + header + data


class Evil:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("unpickled",)


def change_state_dict(content: bytes, dice: Dice) -> bytes:
    """Changes one tensor, or what a pickle can hold beside plain tensors."""
    state = dict(torch.load(io.BytesIO(content), weights_only=True))
    name = dice.choose(*state)
    tensor = state[name]
    odd: dict[str, Callable[[], Any]] = {
        "object": lambda: dice.choice([1, "text", None, [1, 2], {"a": tensor}, b"x" * 100, Evil()]),
        "sparse": tensor.to_sparse,
        "expanded": lambda: torch.zeros(1).expand(2**40),
        "bfloat16": tensor.bfloat16,
        "meta": lambda: tensor.to("meta"),
        "parameter": lambda: torch.nn.Parameter(tensor),
        "view": lambda: torch.cat([tensor, tensor]).flip(0)[: len(tensor)],
        "negative view": lambda: torch._neg_view(tensor),
    }
    kind = dice.choose(*["arrays"] * 8, "object", *odd, "whole")
    if kind == "arrays":
        arrays = change_arrays({key: each.numpy() for key, each in state.items()}, dice)
        state = {key: torch.from_numpy(array.copy()) for key, array in arrays.items()}
    elif kind == "whole":
        state = dice.choice([[], {}, tensor, None, "text", [state], {"state_dict": state}, Evil()])
        if dice.random() < 0.3:
            return pickle.dumps(state)
    else:
        state[name] = odd[kind]()
    return state_bytes(state, as_zip=dice.choice([True, False]))


# --- containers of files ----------------------------------------------------------------------------------------------


def change_members(members: list[tuple[str, bytes]], dice: Dice) -> list[tuple[str, bytes]]:
    """Changes one member of an archive, or the list."""
    place = dice.randrange(len(members))
    name, content = members[place]
    before, after = members[:place], members[place + 1 :]
    kind = dice.choose(*["content"] * 5, "renamed", "extra", "lost", "twice", "in a folder", "large", "many")
    if kind == "content":
        dice.notes.append(name)
        return [*before, (name, change_by_name(name, content, dice)), *after]
    if kind == "many":
        return members + [(f"{index}.txt", b"") for index in range(dice.choice([20, 20, 20_000]))]
    changed = {
        "renamed": [*before, (dice.choose(*TEXTS), content), *after],
        "extra": [*members, (dice.choose(*TEXTS), b"evil")],
        "lost": before + after,
        "twice": [*members, (name, dice.choice([content, b"{}"]))],
        "in a folder": [(f"{dice.choice(['a', 'a/b', 'é'])}/{each}", data) for each, data in members],
        "large": [*members, (dice.choice(["x", name]), bytes(dice.choice([1 << 20, 40 << 20])))],
    }
    return changed[kind]


def change_zip(content: bytes, dice: Dice) -> bytes:
    """Changes a zip file; its list may lie about a member."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = change_members([(name, archive.read(name)) for name in archive.namelist()], dice)
    with zipfile.ZipFile(packed, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in members:
            member = zipfile.ZipInfo("x")
            member.filename, member.compress_type = name, dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
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
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(compression.decompress(content))) as archive:
        files = [member for member in archive if member.isreg()]
        members = [(member.name, archive.extractfile(member).read()) for member in files]
    with tarfile.open(None, "w", packed, format=dice.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as archive:
        for name, data in change_members(members, dice):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if dice.random() < 0.01:
                member.type = dice.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
                member.linkname = dice.choice(["../outside", "/etc/passwd", name, "config.json"])
                dice.notes.append("link or device")
            archive.addfile(member, io.BytesIO(data))
    plain = packed.getvalue()
    return compression.compress(change_bytes(plain, dice) if dice.random() < 0.15 else plain)


# Texts that repeat up to a hundred million bytes, most without an end of line or record.
BOMBS = {
    ".txt": (b"a ", b"ab\t", b"\xe2\x80\xa8", b"x" * 99),
    ".jsonl": (b"[],", b"{}, ", b"["),
    ".csv": (b",", b'"\n",', b'"a,"'),
    ".fasta": (b"A", b"A\n", b"A" * 70 + b"\n"),
}
MOST_LINE = 120_000_000


def change_gzip(content: bytes, dice: Dice, name: str) -> bytes:
    """Changes the compressed text `name`, or how it is compressed."""
    plain = gzip.decompress(content)
    inside = gzip.compress(change_by_name(name, plain, dice))
    if dice.random() < 0.1:
        pack = zlib.compressobj(1, wbits=31)
        block = BOMBS[name][dice.randrange(len(BOMBS[name]))] * 1000
        dice.notes.append("bomb")
        return (
            pack.compress(plain) + b"".join(pack.compress(block) for _ in range(MOST_LINE // len(block))) + pack.flush()
        )
    changed = {
        "inside": inside,
        "inside again": inside,
        "two members": content + inside,
        "rubbish behind": content + dice.choice([b"\0" * 100, b"rubbish", content[:50]]),
        "not compressed": plain,
        "twice compressed": gzip.compress(content),
    }
    return changed[dice.choose(*changed)]


# By the end of a file's name; the first that fits counts.
CHANGES: dict[str, Callable[[bytes, Dice], bytes]] = {
    ".zip": change_zip,
    ".tar.gz": lambda content, dice: change_tar(content, dice, gzip),
    ".tar.bz2": lambda content, dice: change_tar(content, dice, bz2),
    **{f"{end}.gz": lambda content, dice, end=end: change_gzip(content, dice, end) for end in BOMBS},
    ".jsonl": change_json_lines,
    ".md": change_card,
    **dict.fromkeys((".csv", ".fasta"), change_text),
    ".json": change_json,
    **dict.fromkeys((".hdf5", ".dump"), change_hdf5),
    ".safetensors": change_safetensors,
    **dict.fromkeys((".th", ".pkl"), change_state_dict),
    **dict.fromkeys((".txt", ".conllu"), change_text),
}


def change_by_name(name: str, content: bytes, dice: Dice) -> bytes:
    """Changes a file's content as its format allows, or its bytes."""
    change = next((change for end, change in CHANGES.items() if name.endswith(end)), change_bytes)
    try:
        return (change if dice.random() < 0.7 else change_bytes)(content, dice)
    except Exception:  # of any library: a change before damaged the file
        return change_bytes(content, dice)


# HDF5's library itself crashes on some damaged files, so only whole ones are changed as their format allows.
HOLDS_HDF5 = (".hdf5", ".dump", ".zip", ".gz", ".bz2")


def mutate(files: Files, dice: Dice) -> Files:
    """Changes one file, seldom several, of a valid input, which stays as it is."""
    changed = dict(files)
    for _ in range(dice.choices([1, 2, 3], [7, 2, 1])[0]):
        name = dice.choice(sorted(changed))
        content = changed.pop(name)
        dice.notes.append(name)
        if dice.random() < 0.08:
            others = [*changed.values()] or [b"x"]
            whole = {
                "removed": {},
                "empty": {name: b""},
                "a folder": {f"{name}/x": b""},
                "another's bytes": {name: dice.choice(others)},
                "renamed": {dice.choice([f"{name}.bak", name.upper(), f"x{name}"]): content},
            }
            changed |= whole[dice.choose(*whole)] if changed else {name: b""}
        else:
            is_damaged = name.endswith(HOLDS_HDF5) and content != files.get(name)
            changed[name] = (change_bytes if is_damaged else partial(change_by_name, name))(content, dice)
    return changed
