"""Makers of sources that a conversion must refuse: each writes one into an empty folder, and returns it.

A maker returns the SOURCE alone, or with what is given beside it.
"""

import gzip
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from archives import (
    archive_files,
    golden_state,
    manylangs_files,
    nlpl_files,
    state_bytes,
    write_files,
    write_tar,
    write_zip,
)
from checkpoints import BASE, Arrays, base_checkpoint, write_datasets
from hub_modules import variables_of, write_module
from language_models import random_language_model, words_file
from tensor_bundles import (
    header_message,
    index_file,
    masked_crc,
    table,
    tensor_message,
    write_bundle,
)

from elmo_hf.conversion.contract import Given

CASE, ARCHITECTURE = "base_2l_relu", "cnn_50_100_512_4096_sample.json"
TRAINED, NLPL, MANY, GOOGLE = archive_files(CASE), nlpl_files(CASE), manylangs_files(), variables_of("google")
HDF5, ONES, ABSENT = NLPL["model.hdf5"], torch.ones(2), object()
B, W = np.ones(11, np.float32), np.ones((11, 7), np.float32)
RESTART = struct.pack("<2I", 0, 1)
Made = Path | tuple[Path, Given]
Maker = Callable[[Path], Made]
Files = dict[str, bytes]


def files(changes: Mapping[str, bytes | None], whole: Files | None = None, given: str = "") -> Maker:
    """A folder of files with changes, of which None removes one; the SOURCE is the folder, or the file `given`."""

    def make(folder: Path) -> Made:
        write_files(folder, {name: data for name, data in ((whole or {}) | changes).items() if data is not None})
        return (folder / given, Given(BASE / "options.json")) if given else folder

    return make


def packed(
    changes: Mapping[str, bytes | None], whole: Files = TRAINED, write: Callable[[Path, Files], Path] = write_tar
) -> Maker:
    """The archive of files with changes, a trained model's or others."""
    kept = {name: data for name, data in (whole | changes).items() if data is not None}
    return lambda folder: write(folder / ("model.zip" if write is write_zip else "model.tar.gz"), kept)


def changed_options(path: str, value: Any, options: Any = None) -> bytes:
    """Options, those of the golden case if none are given, with one value replaced or removed."""
    options = base_checkpoint()[0] if options is None else options
    *parents, key = path.split(".")
    place = options
    for parent in parents:
        place = place[parent]
    place[key] = value
    if value is ABSENT:
        del place[key]
    return json.dumps(options).encode()


def options(path: str, value: Any) -> Maker:
    return files({"options.json": changed_options(path, value)}, NLPL)


def array(name: str, change: Callable[[Any], Any], add: Callable[[h5py.File], object] = lambda file: None) -> Maker:
    """The golden case with one array changed, or removed if None; a function may add what h5py can write."""

    def make(folder: Path) -> Path:
        arrays = base_checkpoint()[1]
        changed = change(arrays.pop(name))
        path = write_datasets(folder / "weights.hdf5", arrays | ({} if changed is None else {name: changed}))
        with h5py.File(path, "a") as file:
            add(file)
        return write_files(folder, {"options.json": NLPL["options.json"]})

    return make


def hdf5(write: Callable[[h5py.File], object]) -> Maker:
    return array("char_embed", lambda _: None, write)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(BASE / "weights.hdf5", "char_embed", shape=(261, 4))
    file.create_virtual_dataset("char_embed", layout)


def external(file: h5py.File) -> None:
    file.create_dataset("char_embed", (261, 4), "f4", external=[(str(BASE / "weights.hdf5"), 0, 4176)])


def large_chunk(file: h5py.File) -> None:
    options = {"chunks": (4096, 4096), "maxshape": (None, None), "compression": "gzip"}
    file.create_dataset("char_embed", data=np.zeros((261, 4), np.float32), **options)


def words(source: Path, vocabulary: list[str] | None, dump: Arrays | None = None) -> Maker:
    """A model with a vocabulary, and a dump of token vectors."""

    def make(folder: Path) -> Made:
        path = None if vocabulary is None else words_file(folder, vocabulary)
        vectors = None if dump is None else write_datasets(folder / "dump.hdf5", dump)
        return source, Given(vocabulary=path, token_embeddings=vectors)

    return make


def language_model(change: Callable[[Path], object] = lambda _: None, **options: Any) -> Maker:
    """A language model in a folder, with other options or changed."""

    def make(folder: Path) -> Path:
        random_language_model(0, folder / "lm", **options)
        change(folder / "lm")
        return folder / "lm"

    return make


def softmax(**arrays: Any) -> Maker:
    own = {f"softmax/{name}": array for name, array in arrays.items()}
    return language_model(lambda folder: write_datasets(folder / "softmax.hdf5", own))


def bundle(index: bytes | None = None, header: bytes | None = None, more: bytes = b"", **changes: Any) -> Maker:
    """bilm-tf's save directory, whose tensor's message is changed or has `more`; or with such an index or header."""
    data = np.arange(4, dtype=np.float32)
    facts = {"dtype": 1, "shape": (4,), "offset": 0, "size": 16, "checksum": masked_crc(data.tobytes())} | changes
    messages = {"": header_message() if header is None else header, "lm/x": tensor_message(**facts) + more}

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": NLPL["options.json"]})
        write_bundle(folder / "model.ckpt-1", {"lm/x": data})
        (folder / "model.ckpt-1.index").write_bytes(index_file(messages) if index is None else index)
        return folder

    return make


def raw_block(content: bytes) -> bytes:
    """An index whose only block has such bytes, with the right checksum."""
    content += b"\0"
    return table([content + struct.pack("<I", masked_crc(content))], [b"x"])


def record(text: str) -> Maker:
    return files({"options.json": b"{}", "checkpoint": text.encode(), "model.ckpt-3.index": b""})


def state(change: Callable[[Any], object]) -> Maker:
    """The archive of a trained model with a changed state dict."""
    changed = golden_state(CASE)
    change(changed)
    return packed({"weights.th": state_bytes(changed)})


def many(name: str, data: bytes | None) -> Maker:
    return files({name: data}, MANY)


def architecture(path: str, value: Any, whole: Files = MANY) -> Maker:
    return files({ARCHITECTURE: changed_options(path, value, json.loads(whole[ARCHITECTURE]))}, whole)


def module(variables: Mapping[str, Any], **changes: Any) -> Maker:
    """A TF-Hub module with other variables, or without them; `__` stands for `/`."""
    changed = dict(variables) | {name.replace("__", "/"): array for name, array in changes.items()}
    kept = {name: array for name, array in changed.items() if array is not None}
    return lambda folder: write_module(folder / "elmo", kept)


def several(folder: Path) -> Path:
    write_module(folder / "x" / "b2", GOOGLE)
    return write_module(folder / "x" / "a1", GOOGLE).parent


def checksum(folder: Path) -> Path:
    """An archive whose checksum is that of other bytes."""
    path = write_tar(folder / "model.tar.gz", TRAINED)
    content = path.read_bytes()
    path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
    return path


def member(kind: bytes) -> Maker:
    """An archive with an entry that is no plain file."""
    info = tarfile.TarInfo("weights.th")
    info.type, info.linkname = kind, "/etc/passwd"
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if kind == tarfile.GNUTYPE_SPARSE:
        block[386:410] = b"%011o\0%011o\0" % (0, 0)
        block[483:495] = b"%011o\0" % (1 << 32)
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return files({"model.tar.gz": gzip.compress(bytes(block) + bytes(1024))}, given="model.tar.gz")


def zip_of_a_link() -> bytes:
    content, info = io.BytesIO(), zipfile.ZipInfo("options.json")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return content.getvalue()
