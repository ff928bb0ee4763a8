"""Makers of damaged and foreign checkpoints.

Each writes a SOURCE into an empty folder, and returns it, alone or with what is given beside it.
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
from checkpoints import (
    BASE,
    EDGES,
    SAVES,
    VOCABULARY,
    Arrays,
    base_checkpoint,
    write_datasets,
)
from hub_modules import variables_of, write_module
from language_models import random_language_model, words_file
from tensor_bundles import header_message, index_file, masked_crc, table, tensor_message, write_bundle

from elmo_hf.conversion.contract import Given

CASE = "base_2l_relu"
ABSENT = object()
Made = Path | tuple[Path, Given]
Maker = Callable[[Path], Made]
Rows = dict[str, tuple[Maker, tuple[str, ...]]]
Files = dict[str, bytes]


def files(changes: Mapping[str, bytes | None], whole: Files | None = None, given: str = "") -> Maker:
    """A folder of files with changes, of which None removes one; the SOURCE is the folder, or the file `given`."""

    def make(folder: Path) -> Made:
        kept = {name: data for name, data in ((whole or {}) | changes).items() if data is not None}
        write_files(folder, kept)
        return (folder / given, Given(BASE / "options.json")) if given else folder

    return make


def packed(
    changes: Mapping[str, bytes | None], whole: Files, write: Callable[[Path, Files], Path] = write_tar
) -> Maker:
    """The archive of files with changes, a trained model's or others."""
    kept = {name: data for name, data in (whole | changes).items() if data is not None}
    return lambda folder: write(folder / ("model.zip" if write is write_zip else "model.tar.gz"), kept)


def arrays(change: Callable[[Arrays], object], options: Any = None) -> Maker:
    """The golden case with changed arrays, and other options."""

    def make(folder: Path) -> Path:
        own_options, own = base_checkpoint()
        change(own)
        write_datasets(folder / "weights.hdf5", own)
        return write_files(folder, {"options.json": json.dumps(own_options if options is None else options).encode()})

    return make


def changed_options(path: str, value: Any, options: Any = None) -> Any:
    """Options, those of the golden case if none are given, with one value replaced or removed."""
    options = base_checkpoint()[0] if options is None else options
    *parents, key = path.split(".")
    place = options
    for parent in parents:
        place = place[parent]
    place[key] = value
    if value is ABSENT:
        del place[key]
    return options


def hdf5(write: Callable[[h5py.File], object]) -> Maker:
    """The golden case, whose table a function writes."""

    def make(folder: Path) -> Path:
        made = arrays(lambda own: own.pop("char_embed"))(folder)
        with h5py.File(folder / "weights.hdf5", "a") as file:
            write(file)
        assert isinstance(made, Path)
        return made

    return make


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(BASE / "weights.hdf5", "char_embed", shape=(261, 4))
    file.create_virtual_dataset("char_embed", layout)


def state(change: Callable[[Any], object]) -> Maker:
    """The archive of a trained model with a changed state dict."""
    changed = golden_state(CASE)
    change(changed)
    return packed({"weights.th": state_bytes(changed)}, TRAINED)


def module(variables: Mapping[str, Any], **changes: np.ndarray | None) -> Maker:
    """A TF-Hub module with other variables, or without them; `__` stands for `/`."""
    changed = dict(variables) | {name.replace("__", "/"): array for name, array in changes.items()}
    kept = {name: array for name, array in changed.items() if array is not None}
    return lambda folder: write_module(folder / "elmo", kept)


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


def language_model(change: Callable[[Path], object], **options: Any) -> Maker:
    """A language model in a folder, changed; what `change` returns may be `Given`."""

    def make(folder: Path) -> Made:
        random_language_model(0, folder / "lm", **options)
        given = change(folder / "lm")
        return folder / "lm", given if isinstance(given, Given) else Given()

    return make


def shared_softmax(matrix: np.ndarray | None) -> Maker:
    """A model whose softmax is its word table, with another matrix beside it, or without the option."""

    def make(folder: Path) -> Made:
        for path in (SAVES / "bi_word_shared").iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        if matrix is None:
            options = json.loads((folder / "options.json").read_text())
            del options["share_embedding_softmax"]
            (folder / "options.json").write_text(json.dumps(options))
        bias = {"softmax/b": np.ones(32, np.float32)}
        softmax = {} if matrix is None else {"softmax": write_datasets(folder / "x.h5", bias | {"softmax/W": matrix})}
        return folder / "model.ckpt-6.index", Given(folder / "options.json", words_file(folder, VOCABULARY), **softmax)

    return make


def words(source: Path, vocabulary: list[str] | None, dump: Arrays | None = None) -> Maker:
    """A model with a vocabulary, and a dump of token vectors."""

    def make(folder: Path) -> Made:
        path = None if vocabulary is None else words_file(folder, vocabulary)
        table = None if dump is None else write_datasets(folder / "dump.hdf5", dump)
        return source, Given(vocabulary=path, token_embeddings=table)

    return make


def bundle(message: bytes | None = None, index: bytes | None = None, header: bytes | None = None) -> Maker:
    """bilm-tf's save directory whose one tensor has such a message, or with such an index."""

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": (BASE / "options.json").read_bytes()})
        write_bundle(folder / "model.ckpt-1", {"lm/x": np.arange(4, dtype=np.float32)})
        messages = {"": header_message() if header is None else header, "lm/x": message or tensor()}
        (folder / "model.ckpt-1.index").write_bytes(index_file(messages) if index is None else index)
        return folder

    return make


def tensor(**changes: Any) -> bytes:
    """The message of a tensor, four numbers in the first 16 bytes, with changes."""
    data = np.arange(4, dtype=np.float32).tobytes()
    return tensor_message(
        **{"dtype": 1, "shape": (4,), "offset": 0, "size": 16, "checksum": masked_crc(data)} | changes
    )


def raw_block(content: bytes) -> bytes:
    """An index whose only block has such bytes, with the right checksum."""
    content += b"\0"
    return table([content + struct.pack("<I", masked_crc(content))], [b"x"])


def record(text: str) -> Maker:
    return files({"options.json": b"{}", "checkpoint": text.encode(), "model.ckpt-3.index": b""})


TRAINED, NLPL, MANY = archive_files(CASE), nlpl_files(CASE), manylangs_files()
HDF5 = (BASE / "weights.hdf5").read_bytes()
GOOGLE, GRAPH = variables_of("google"), "_CHECKPOINTABLE_OBJECT_GRAPH"
ARCHITECTURE = "cnn_50_100_512_4096_sample.json"
ONES, RESTART = torch.ones(2), struct.pack("<2I", 0, 1)
B, W = np.ones(11, np.float32), np.ones((11, 7), np.float32)
WORD_MODEL = EDGES / "bi_word_2"


def many(name: str, data: bytes | None) -> Maker:
    return files({name: data}, MANY)


def architecture(path: str, value: Any, whole: Files = MANY) -> Maker:
    options = changed_options(path, value, json.loads(whole[ARCHITECTURE]))
    return files({ARCHITECTURE: json.dumps(options).encode()}, whole)


def options(path: str, value: Any) -> Maker:
    return arrays(lambda _: None, changed_options(path, value))


def array(name: str, change: Callable[[Any], Any]) -> Maker:
    """The golden case with one array changed, added, or removed if None."""

    def edit(own: Arrays) -> None:
        changed = change(own.pop(name, None))
        own.update({} if changed is None else {name: changed})

    return arrays(edit)
