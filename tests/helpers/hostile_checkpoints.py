"""Small files that ask a converter for much memory or time, each with the file that the error must name.

Every maker writes a SOURCE into an empty folder and returns it. Files that stand for options, or come beside them, are
those of the golden case `base_2l_relu`.
"""

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from archives import archive_files, state_bytes, write_files
from checkpoints import BASE, SAVES, read_datasets
from tensor_bundles import block, header_message, index_file, masked_crc, tensor_message, varint

CASE = "base_2l_relu"
MILLION = 1_000_000
TEN = 10 << 30
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


def zeros_deflated(size: int, start: bytes = b"") -> bytes:
    """A zlib stream of `size` zeros, a multiple of 1 MiB, made without packing all of them."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\xda" + head + block * (size >> 20) + pack.flush() + struct.pack(">2H", size % 65521, 1)


def chunk(file: h5py.File, shape: tuple[int, ...], chunks: tuple[int, ...], content: bytes, **kwargs: Any) -> None:
    table = file.create_dataset("char_embed", shape, np.float32, chunks=chunks, **kwargs)
    table.id.write_direct_chunk((0,) * len(shape), content)


def one_large_chunk(file: h5py.File) -> None:
    content = zeros_deflated(30_720 * 30_720 * 4)
    chunk(file, (261, 4), (30_720, 30_720), content, maxshape=(None, None), compression="gzip")


def chunk_longer_than_said(file: h5py.File) -> None:
    chunk(file, (261, 4), (261, 4), zeros_deflated(4 << 30), compression="gzip")


def many_chunks(file: h5py.File) -> None:
    file.create_dataset("char_embed", (4 << 20,), np.int8, chunks=(1,))


def nested_groups(file: h5py.File) -> None:
    group = file
    for _ in range(2000):
        group = group.create_group("g")


def overflowing_shape(file: h5py.File) -> None:
    file.create_dataset("char_embed", (1 << 32, 1 << 32), np.int8, chunks=(1 << 10, 1 << 10))


def with_file(name: str, content: Callable[[], bytes], files: Callable[[], dict[str, bytes]]) -> Maker:
    return lambda folder: write_files(folder, files() | {name: content()})


def alone(name: str, content: Callable[[], bytes]) -> Maker:
    return lambda folder: write_files(folder, {name: content()}) / name


def trained() -> dict[str, bytes]:
    return archive_files(CASE)


def tar_of_folders() -> bytes:
    member = tarfile.TarInfo("d/")
    member.type = tarfile.DIRTYPE
    return gzip.compress(member.tobuf() * 1000) * (MILLION // 1000)


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


def zip_of_folders(name: bytes = b"d/") -> bytes:
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0) + name
    entry = struct.pack("<4s4B4H3L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    directory = (entry + name) * (MILLION // 10)
    return local + directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 9, 9, len(directory), len(local), 0)


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


def blocks_of_one_place() -> bytes:
    restarts = 120_000
    content = bytes(4 * restarts) + struct.pack("<I", restarts) + b"\0"
    large = content + struct.pack("<I", masked_crc(content))
    handle = varint(0) + varint(len(large) - 5)
    index = block([(b"%06d" % number, handle) for number in range(30_000)])
    meta = block([])
    footer = varint(len(large)) + varint(len(meta) - 5) + varint(len(large + meta)) + varint(len(index) - 5)
    return large + meta + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def bomb_of_zip(name: str, declared: int = TEN) -> Maker:
    """A zip file whose large entry declares a size of its own."""

    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_STORED) as archive:
            for file in ("options.json", "model.hdf5") if name.endswith(".zip") else ("a/version", "a/data.pkl"):
                archive.writestr(file, zeros_deflated(TEN if file in ("model.hdf5", "a/data.pkl") else 1 << 20)[2:-4])
                archive.filelist[-1].compress_type = zipfile.ZIP_DEFLATED
                archive.filelist[-1].file_size = declared
        return folder / name

    return make


def bomb_of_tar(member: bytes, size: int) -> Callable[[], bytes]:
    header = bytes([31, 139, 8, 0, 0, 0, 0, 0, 2, 255])
    return lambda: header + zeros_deflated(size, member)[2:-4] + bytes(8)


def member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def packed_chunks(file: h5py.File) -> None:
    table = file.create_dataset("char_embed", (640, 4 << 20), np.float32, chunks=(1, 4 << 20), compression="gzip")
    packed = zlib.compress(bytes(16 << 20))
    for row in range(640):
        table.id.write_direct_chunk((row, 0), packed)


def never_written(file: h5py.File) -> None:
    file.create_dataset("char_embed", (1 << 31,), np.float32)


def claimed_storage() -> bytes:
    content = state_bytes({"w": torch.ones(70000)})
    return content.replace(struct.pack("<cI", b"J", 70000), struct.pack("<cI", b"J", 2**31 - 1))


# Each with the file that the error must name.
HOSTILE_CHECKPOINTS: dict[str, tuple[Maker, str]] = {
    "hdf5, one large chunk": (with_hdf5(one_large_chunk), "weights.hdf5"),
    "hdf5, chunk longer than said": (with_hdf5(chunk_longer_than_said), "weights.hdf5"),
    "hdf5, many chunks": (with_hdf5(many_chunks), "weights.hdf5"),
    "hdf5, packed chunks": (with_hdf5(packed_chunks), "weights.hdf5"),
    "hdf5, nested groups": (with_hdf5(nested_groups), "weights.hdf5"),
    "hdf5, overflowing shape": (with_hdf5(overflowing_shape), "weights.hdf5"),
    "hdf5, never written": (with_hdf5(never_written), "weights.hdf5"),
    "tar.gz, declared": (alone("x.tar.gz", bomb_of_tar(member("weights.th", TEN), TEN)), "x.tar.gz"),
    "tar.gz, behind its end": (alone("x.tar.gz", bomb_of_tar(member("weights.th", 0), 2 << 30)), "x.tar.gz"),
    "tar.gz, long header": (
        alone("x.tar.gz", bomb_of_tar(member("x", 4 << 30, tarfile.XHDTYPE), 4 << 30)),
        "x.tar.gz",
    ),
    "tar.gz, many folders": (alone("x.tar.gz", tar_of_folders), "x.tar.gz"),
    "tar.gz, many header fields": (alone("x.tar.gz", lambda: tar_of_headers(2_000)), "x.tar.gz"),
    "zip, declared": (bomb_of_zip("x.zip"), "x.zip"),
    "zip, not declared": (bomb_of_zip("x.zip", 1 << 20), "x.zip"),
    "zip, many folders": (alone("x.zip", zip_of_folders), "x.zip"),
    "torch zip, declared": (bomb_of_zip("x.th"), "x.th"),
    "torch zip, many members": (alone("x.th", lambda: zip_of_folders(b"a/data.pkl")), "x.th"),
    "torch, a claim": (alone("x.th", claimed_storage), "x.th"),
    "torch, one storage": (with_file("weights.th", one_storage_many_times, trained), "weights.th"),
    "checkpoint, blank record": (with_file("checkpoint", lambda: b"\n" * (1 << 26), save_directory), "checkpoint"),
    "checkpoint, tensors in one place": (with_bundle(tensors_of_one_place, 64 << 20), "model.ckpt-6.data"),
    "checkpoint, blocks in one place": (with_bundle(blocks_of_one_place), "options.json"),
}
