"""Small files that ask for much memory or time: a clear error within 1 GiB and 20 seconds, and nothing written."""

import gzip
import io
import resource
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
from archives import nlpl_files, write_files
from checkpoints import BASE, SAVES
from faults.runs import run
from hostile_checkpoints import HOSTILE_DATASETS, zeros_deflated
from tensor_bundles import header_message, index_file, masked_crc, tensor_message

BYTES, SECONDS = 1 << 30, 20
TEN, MILLION = 10 << 30, 1_000_000
Files = dict[str, bytes]
SAVE = {path.name: path.read_bytes() for path in (SAVES / "bi_char_1layer").iterdir()}


def hdf5(write: Callable[[h5py.File], object]) -> Callable[[], Files]:
    """Options, and weights that the function writes."""

    def make() -> Files:
        content = io.BytesIO()
        with h5py.File(content, "w") as file:
            write(file)
        return {"options.json": nlpl_files(BASE.name)["options.json"], "weights.hdf5": content.getvalue()}

    return make


def tar_of_folders() -> bytes:
    entry = tarfile.TarInfo("d/")
    entry.type = tarfile.DIRTYPE
    return gzip.compress(entry.tobuf() * 1000) * (MILLION // 1000)


def tar_of_zeros() -> bytes:
    entry = tarfile.TarInfo("weights.th")
    entry.size = TEN
    header = bytes([31, 139, 8, 0, 0, 0, 0, 0, 2, 255])
    return header + zeros_deflated(TEN, entry.tobuf(tarfile.GNU_FORMAT))[2:-4] + bytes(8)


def zip_of_folders() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(MILLION // 50):
            archive.mkdir(f"d{number}")
    return content.getvalue()


def zip_of_zeros(*names: str) -> bytes:
    """A zip file whose last entry has 10 GiB."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.writestr(name, zeros_deflated(TEN if name == names[-1] else 1 << 20)[2:-4])
            archive.filelist[-1].compress_type = zipfile.ZIP_DEFLATED
            archive.filelist[-1].file_size = TEN
    return content.getvalue()


def tensors_of_one_place() -> Files:
    size = 64 << 20
    message = tensor_message(dtype=1, shape=(size // 4,), offset=0, size=size, checksum=masked_crc(bytes(size)))
    index = index_file({"": header_message()} | {f"lm/x{number:04}": message for number in range(400)})
    return SAVE | {"model.ckpt-6.index": index, "model.ckpt-6.data-00000-of-00001": bytes(size)}


# Each makes the files of a folder, or one that is the SOURCE; with the file that the error must name.
HOSTILE: dict[str, tuple[Callable[[], Files | bytes], str]] = {
    **{f"hdf5, {name}": (hdf5(write), "weights.hdf5") for name, write in HOSTILE_DATASETS.items()},
    "tar, many folders": (tar_of_folders, "x.tar.gz"),
    "tar, zeros": (tar_of_zeros, "x.tar.gz"),
    "zip, many folders": (zip_of_folders, "x.zip"),
    "zip, zeros": (lambda: zip_of_zeros("options.json", "model.hdf5"), "x.zip"),
    "torch zip, zeros": (lambda: zip_of_zeros("a/version", "a/data.pkl"), "x.th"),
    "checkpoint, blank record": (lambda: SAVE | {"checkpoint": b"\n" * (1 << 26)}, "checkpoint"),
    "checkpoint, tensors in one place": (tensors_of_one_place, "model.ckpt-6.data"),
}


def limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS,) * 2)


@pytest.mark.parametrize(("make", "word"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_within_the_limits(
    make: Callable[[], Files | bytes], word: str, tmp_path: Path
) -> None:
    made = make()
    source = write_files(tmp_path / "source", made if isinstance(made, dict) else {word: made})
    source /= "" if isinstance(made, dict) else word
    (tmp_path / "work").mkdir()
    options = ["--options", str(BASE / "options.json")] if source.suffix == ".th" else []
    outcome = run(["convert", str(source), "DEST", *options], tmp_path / "work", limit)
    assert outcome.is_refused, outcome
    assert word in outcome.output
    assert not list((tmp_path / "work").iterdir())
