"""Small files that ask a converter for much memory or time, each with the error that must answer it.

Every maker writes a SOURCE into an empty folder and returns it. Files that stand for options, or come beside them, are
those of the golden case `base_2l_relu`.
"""

import bz2
import gzip
import io
import json
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from archives import archive_files, manylangs_files, nlpl_files, state_bytes, write_files
from checkpoints import BASE, SAVES, read_datasets
from tensor_bundles import block, field, header_message, index_file, masked_crc, tensor_message, varint

CASE = "base_2l_relu"
MILLION = 1_000_000
Maker = Callable[[Path], Path]


def with_hdf5(write: Callable[[h5py.File], None], keep: bool = False) -> Maker:
    """A folder whose weights the function writes, or adds to the real ones."""

    def make(folder: Path) -> Path:
        with h5py.File(folder / "weights.hdf5", "w") as file:
            for name, array in (read_datasets(BASE / "weights.hdf5") if keep else {}).items():
                file[name] = array
            write(file)
        return write_files(folder, {"options.json": (BASE / "options.json").read_bytes()})

    return make


def zeros_deflated(size: int) -> bytes:
    """A zlib stream of `size` zeros, a multiple of 1 MiB, made without packing all of them."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = pack.compress(b"") + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\xda" + head + block * (size >> 20) + pack.flush() + struct.pack(">2H", size % 65521, 1)


def chunk(file: h5py.File, shape: tuple[int, ...], chunks: tuple[int, ...], content: bytes, **kwargs: Any) -> None:
    table = file.create_dataset("char_embed", shape, np.float32, chunks=chunks, **kwargs)
    table.id.write_direct_chunk((0,) * len(shape), content)


def one_large_chunk(file: h5py.File) -> None:
    content = zeros_deflated(30_720 * 30_720 * 4)
    chunk(file, (261, 4), (30_720, 30_720), content, maxshape=(None, None), compression="gzip")


def long_chunk(file: h5py.File) -> None:
    file["noise"] = np.ones(1 << 20)
    chunk(file, (261, 4), ((8 << 20) + 1, 4), b"x", maxshape=(None, None), compression="gzip")


def chunk_longer_than_said(file: h5py.File) -> None:
    chunk(file, (261, 4), (261, 4), zeros_deflated(4 << 30), compression="gzip")


def filters_in_a_row(file: h5py.File) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((261, 4))
    for _ in range(3):
        plist.set_deflate(9)
    space = h5py.h5s.create_simple((261, 4))
    table = h5py.h5d.create(file.id, b"char_embed", h5py.h5t.IEEE_F32LE, space, plist)
    table.write_direct_chunk((0, 0), zlib.compress(zlib.compress(zeros_deflated(4 << 30))))


def many_chunks(file: h5py.File) -> None:
    file.create_dataset("char_embed", (4 << 20,), np.int8, chunks=(1,))


def nested_groups(file: h5py.File) -> None:
    group = file
    for _ in range(2000):
        group = group.create_group("g")


def many_links(file: h5py.File) -> None:
    file["x"] = np.ones(1, np.float32)
    for number in range(10_001):
        file[f"y{number}"] = file["x"]


def many_groups(file: h5py.File) -> None:
    for number in range(10_001):
        file.create_group(str(number))


def overflowing_shape(file: h5py.File) -> None:
    file.create_dataset("char_embed", (1 << 32, 1 << 32), np.int8, chunks=(1 << 10, 1 << 10))


def with_options(path: str, value: str) -> Maker:
    """The golden case, with one value of its options replaced by JSON text."""

    def make(folder: Path) -> Path:
        options = json.loads((BASE / "options.json").read_bytes())
        *parents, key = path.split(".")
        place = options
        for parent in parents:
            place = place[parent]
        place[key] = "HERE"
        text = json.dumps(options).replace('"HERE"', value)
        return write_files(folder, nlpl_files(CASE) | {"options.json": text.encode()})

    return make


def with_file(name: str, content: Callable[[], bytes], files: Callable[[], dict[str, bytes]]) -> Maker:
    return lambda folder: write_files(folder, files() | {name: content()})


def alone(name: str, content: Callable[[], bytes]) -> Maker:
    return lambda folder: write_files(folder, {name: content()}) / name


def nlpl() -> dict[str, bytes]:
    return nlpl_files(CASE)


def trained() -> dict[str, bytes]:
    return archive_files(CASE)


def tar_of_folders(compress: Callable[[bytes], bytes]) -> bytes:
    member = tarfile.TarInfo("d/")
    member.type = tarfile.DIRTYPE
    block = compress(member.tobuf() * 1000)
    return block * (MILLION // 1000)


def tar_of_headers(num_fields: int) -> bytes:
    """A first entry whose extended header every later entry inherits."""
    records = b"".join(b"%d k%05d=\n" % (11, number) for number in range(num_fields))
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XGLTYPE, len(records)
    own = tarfile.TarInfo("x")
    own.type, own.size = tarfile.XHDTYPE, len(b"9 a=bcde\n")
    header = own.tobuf() + b"9 a=bcde\n".ljust(512, b"\0")
    members = [header + tarfile.TarInfo(f"n{number}").tobuf() for number in range(2000)]
    return gzip.compress(head.tobuf() + records + bytes(-len(records) % 512) + b"".join(members))


def tar_of_deep_names() -> bytes:
    members = [tarfile.TarInfo(f"{number}/" + "a/" * 1500 + "b") for number in range(9)]
    return gzip.compress(b"".join(member.tobuf(tarfile.GNU_FORMAT) for member in members), 1)


def zip_of_folders(name: bytes = b"d/") -> bytes:
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0) + name
    entry = struct.pack("<4s4B4H3L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    directory = (entry + name) * MILLION
    return local + directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, len(directory), len(local), 0)


def many_files(folder: Path) -> Path:
    for number in range(10_001):
        (folder / f"{number}.txt").touch()
    return folder


def legacy(obj: bytes) -> bytes:
    """A file of torch's older form whose third pickle is the given one."""
    start = state_bytes({})
    whole = io.BytesIO(start)
    for _ in range(3):
        pickle.load(whole)
    return start[: whole.tell()] + obj


def hex_of_hex() -> bytes:
    return b"\x80\x02c_codecs\nencode\nq\0U\x08abcdefghq\1" + b"h\0h\1U\x03hex\x86Rq\1" * 30 + b"."


def many_mixes() -> bytes:
    return state_bytes({str(number): torch.ones(1) for number in range(10_001)})


def one_storage_many_times() -> bytes:
    state = torch.load(io.BytesIO(trained()["weights.th"]), weights_only=True)
    table = torch.ones(1 << 20)
    lstms = {name: table[: value.numel()].view(value.shape) for name, value in state.items() if "_layer_" in name}
    return state_bytes(dict(state) | lstms | {f"copy{number}": table for number in range(5000)})


def save_directory() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (SAVES / "bi_char_1layer").iterdir()}


def with_bundle(index: Callable[[], bytes], size: int = 0) -> Maker:
    def make(folder: Path) -> Path:
        write_files(folder, save_directory() | {"model.ckpt-6.index": index()})
        with (folder / "model.ckpt-6.data-00000-of-00001").open("wb") as data:
            data.truncate(size)
        return folder

    return make


def tensors_of_one_place() -> bytes:
    size = 64 << 20
    message = tensor_message(dtype=1, shape=(size // 4,), offset=0, size=size, checksum=masked_crc(bytes(size)))
    return index_file({"": header_message()} | {f"lm/x{number:04}": message for number in range(400)})


def tensor_of_many_axes() -> bytes:
    axes = field(2, field(1, (1 << 62) - 1)) * 80_000
    message = field(1, 1) + field(2, axes) + field(6, 0, is_fixed=True)
    return index_file({"": header_message(), "lm/x": message})


def blocks_of_one_place() -> bytes:
    restarts = 120_000
    content = bytes(4 * restarts) + struct.pack("<I", restarts) + b"\0"
    large = content + struct.pack("<I", masked_crc(content))
    handle = varint(0) + varint(len(large) - 5)
    index = block([(b"%06d" % number, handle) for number in range(30_000)])
    meta = block([])
    footer = varint(len(large)) + varint(len(meta) - 5) + varint(len(large + meta)) + varint(len(index) - 5)
    return large + meta + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


NO_CHECKPOINT = "as no checkpoint does; it is not"
HOSTILE_CHECKPOINTS: dict[str, tuple[Maker, str]] = {
    "hdf5, one large chunk": (with_hdf5(one_large_chunk), f"would unpack to 3,774,873,600, {NO_CHECKPOINT} unpacked."),
    "hdf5, chunk longer than said": (
        with_hdf5(chunk_longer_than_said),
        "`char_embed` has a chunk that does not unpack to its 4,176 bytes; get the file again.",
    ),
    "hdf5, long chunk": (
        with_hdf5(long_chunk),
        "`char_embed` has chunks of 134,217,744 bytes; at most 134,217,728 are",
    ),
    "hdf5, filters in a row": (
        with_hdf5(filters_in_a_row),
        "`char_embed` must be stored plain or packed by gzip; run `h5repack -f NONE` on the file.",
    ),
    "hdf5, many chunks": (with_hdf5(many_chunks), "holds arrays in more than 50,000 chunks; it is not read."),
    "hdf5, nested groups": (with_hdf5(nested_groups), "has more than 32 groups in each other; it is not read."),
    "hdf5, many links": (with_hdf5(many_links), "holds more than 10,000 groups and arrays; it is not read."),
    "hdf5, many groups": (with_hdf5(many_groups), "holds more than 10,000 groups and arrays; it is not read."),
    "hdf5, overflowing shape": (with_hdf5(overflowing_shape), f"{NO_CHECKPOINT} unpacked."),
    "options, max_characters_per_token": (
        with_options("char_cnn.max_characters_per_token", "50000000"),
        "`char_cnn.max_characters_per_token` must be a whole number from 3 to 1,000, found 50000000.",
    ),
    "options, n_layers": (
        with_options("lstm.n_layers", "1000000000"),
        "`lstm.n_layers` must be a whole number from 1 to 100, found 1000000000.",
    ),
    "options, n_highway": (
        with_options("char_cnn.n_highway", "1000000000"),
        "`char_cnn.n_highway` must be a whole number up to 100, found 1000000000.",
    ),
    "options, many filters": (
        with_options("char_cnn.filters", "[" + "[1, 4]," * 400_000 + "[1, 4]]"),
        "must be a list of at most 100 pairs [width, count] of whole numbers from 1 to 1,000,000, found [[1, 4], ",
    ),
    "options, large filter": (
        with_options("char_cnn.filters", "[[1, 1000000000000]]"),
        "whole numbers from 1 to 1,000,000, found [[1, 1000000000000]].",
    ),
    "options, long number": (
        with_options("lstm.dim", "1" + "0" * 4000),
        "`lstm.dim` must be a whole number from 1 to 1,000,000, found a number of 13,288 bits.",
    ),
    "options, nested": (
        with_options("lstm.cell_clip", "[" * 100_000 + "]" * 100_000),
        "has lists and objects in each other more than 50 deep; it is not read.",
    ),
    "options, long": (
        with_options("unused", "[" + "[]," * (2 << 20) + "[]]"),
        "options.json has 6,291,767 bytes; at most 4,194,304 are read.",
    ),
    "training, long": (
        with_file("config.json", lambda: b"[" + b"[]," * (2 << 20) + b"[]]", trained),
        "config.json has 6,291,460 bytes; at most 4,194,304 are read.",
    ),
    "tar.gz, many folders": (
        alone("x.tar.gz", lambda: tar_of_folders(gzip.compress)),
        f"x.tar.gz holds more than 10,000 files, {NO_CHECKPOINT} read.",
    ),
    "tar.bz2, many folders": (
        alone("x.tar.bz2", lambda: tar_of_folders(bz2.compress)),
        f"x.tar.bz2 holds more than 10,000 files, {NO_CHECKPOINT} read.",
    ),
    "tar.gz, long header": (
        alone("x.tar.gz", lambda: tar_of_headers(80_000)),
        "x.tar.gz has an entry with a header of 880,128 bytes; it is not unpacked.",
    ),
    "tar.gz, many header fields": (
        alone("x.tar.gz", lambda: tar_of_headers(9_000)),
        "x.tar.gz has an entry with more than 100 header fields; it is not unpacked.",
    ),
    "tar.gz, deep name": (alone("x.tar.gz", tar_of_deep_names), "in more than 8 folders; it is not unpacked."),
    "zip, many folders": (alone("x.zip", zip_of_folders), f"x.zip holds more than 10,000 files, {NO_CHECKPOINT} read."),
    "torch zip, many members": (
        alone("x.th", lambda: zip_of_folders(b"a/data.pkl")),
        f"x.th holds more than 10,000 files, {NO_CHECKPOINT} read.",
    ),
    "folder, many files": (many_files, f"holds more than 10,000 files, {NO_CHECKPOINT} read."),
    "torch, doubling strings": (
        alone("x.th", lambda: legacy(hex_of_hex())),
        "x.th is not a state dict that torch.save wrote",
    ),
    "torch, many operations": (
        alone("x.th", lambda: legacy(b"\x80\x02" + b"}" * (3 << 20) + b".")),
        "x.th is not a state dict that torch.save wrote",
    ),
    "torch, many tensors": (with_file("weights.th", many_mixes, trained), "weights.th holds more than 10,000 tensors"),
    "torch, one storage": (
        with_file("weights.th", one_storage_many_times, trained),
        "in the same place; an ELMo shares no weights.",
    ),
    "checkpoint, blank record": (
        with_file("checkpoint", lambda: b"\n" * (1 << 20), save_directory),
        "checkpoint must name the checkpoint as `model_checkpoint_path: ",
    ),
    "checkpoint, long record": (
        with_file("checkpoint", lambda: b"\n" * (2 << 20), save_directory),
        "checkpoint has 2,097,152 bytes; at most 1,048,576 are read.",
    ),
    "checkpoint, tensors in one place": (
        with_bundle(tensors_of_one_place, 64 << 20),
        "lie in the same bytes; TensorFlow writes every tensor to a place of its own.",
    ),
    "checkpoint, many axes": (with_bundle(tensor_of_many_axes), "has 80,000 axes; at most 8 are read."),
    "checkpoint, blocks in one place": (
        with_bundle(blocks_of_one_place),
        "its blocks must follow each other, found one at byte 0 after byte 480004.",
    ),
    "lexicon, many lines": (
        with_file("char.dic", lambda: b"a\t0\n" * 2_000_001, manylangs_files),
        f"char.dic holds more than 2,000,000 lines, {NO_CHECKPOINT} read.",
    ),
    "lexicon, long line": (
        with_file("char.dic", lambda: b"x" * 100_000, manylangs_files),
        "char.dic, line 1 has more than 10,000 bytes, as no word has.",
    ),
    "lexicon, long": (
        with_file("char.dic", lambda: b"x" * (65 << 20), manylangs_files),
        "char.dic has 68,157,440 bytes; at most 67,108,864 are read.",
    ),
}
