"""Archives, pickles and weights that mean harm: a clear error each, nothing written, no code run."""

import gzip
import io
import os
import pickle
import re
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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
from checkpoints import run_python

from elmo_hf.conversion import files
from elmo_hf.conversion.checkpoint import Given
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.formats import convert_source, recognise
from elmo_hf.conversion.sources import open_source

CASE = "base_2l_relu"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where archives are unpacked; nothing may be left there."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def assert_refused(source: Path, message: str) -> None:
    """The error has the text, and no file was made or changed beside the source."""
    before = {path: path.stat().st_mtime_ns for path in source.parent.rglob("*")}
    with pytest.raises(ConversionError, match=re.escape(message)):
        convert_source(source, source.parent / "DEST", Given())
    after = {path: path.stat().st_mtime_ns for path in source.parent.rglob("*")}
    temporary = source.parent / "temporary"
    assert {**after, temporary: 0} == {**before, temporary: 0}


OUTSIDE = ["../evil", "/evil", "a/../../evil", "..", "..\\evil", "a\\b"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_point_outside_are_refused(name: str, tmp_path: Path) -> None:
    message = f"holds an entry {name!r} that points outside the archive; it is not unpacked."
    assert_refused(write_zip(tmp_path / "model.zip", nlpl_files(CASE) | {name: b"evil"}), message)
    assert_refused(write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {name: b"evil"}), message)
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE],
    ids=["symlink", "link", "device", "fifo"],
)
def test_links_and_devices_of_a_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("weights.th")
        member.type, member.linkname = kind, str(tmp_path / "secret")
        archive.addfile(member)
    assert_refused(path, "holds an entry 'weights.th' that is no plain file; it is not unpacked.")


def test_a_link_of_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("options.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, str(tmp_path / "secret"))
    assert_refused(path, "holds an entry 'options.json' that is no plain file; it is not unpacked.")


def test_a_sparse_file_of_a_tar_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("weights.th")
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[386:410] = b"%011o\0%011o\0" % (0, 0)
    block[483:495] = b"%011o\0" % (1 << 32)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(bytes(block) + bytes(1024)))
    assert_refused(path, "holds an entry 'weights.th' that is no plain file; it is not unpacked.")


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "model.zip", nlpl_files(CASE))
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("options.json", b"{}")
    assert_refused(path, "model.zip cannot be unpacked, it may be truncated: ")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("options.json", b"{}")
        archive.filelist[0].flag_bits |= 1
    assert_refused(path, "model.zip cannot be unpacked, it may be truncated: ")


class Code:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["old", "new", "plain"])
def test_pickles_with_code_are_not_run(form: str, tmp_path: Path) -> None:
    state: Any = golden_state(CASE)
    state["code"] = Code(tmp_path / "marker")
    content = pickle.dumps(dict(state)) if form == "plain" else state_bytes(state, as_zip=form == "new")
    message = {
        "plain": "is not a file that torch.save wrote: it begins with b'\\x80\\x04",
    }.get(form, "holds posix.mkdir, which is not a tensor. A pickle can run code, so it is not read.")
    assert_refused(write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {"weights.th": content}), message)
    (tmp_path / "alone").mkdir()
    assert_refused(write_files(tmp_path / "alone", {"weights.th": content}) / "weights.th", message)
    for name in ("encoder.pkl", "token_embedder.pkl"):
        source = write_files(tmp_path / name / "source", manylangs_files() | {name: content})
        (source.parent / "temporary").mkdir()
        assert_refused(source, message)
    assert not (tmp_path / "marker").exists()


def test_whole_modules_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "task.th").write_bytes(state_bytes(torch.nn.Linear(2, 3)))
    assert_refused(tmp_path / "task.th", "task.th holds torch.nn.modules.linear.Linear, which is not a tensor.")


def torch_tar() -> bytes:
    """The form of files that torch wrote before 0.1.10, which old torch unpacks without care."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:") as archive:
        archive.addfile(tarfile.TarInfo("pickle"))
    return content.getvalue()


def script() -> bytes:
    content = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), content)
    return content.getvalue()


def zip_of(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


NO_STATES = {
    "tar": (torch_tar, "is not a file that torch.save wrote: it begins with b'pick'"),
    "text": (lambda: b"<html>404", "is not a file that torch.save wrote: it begins with b'<htm'"),
    "empty": (lambda: b"", "is not a file that torch.save wrote: it begins with b''"),
    "list": (lambda: state_bytes([torch.ones(2)]), "must hold tensors by name, found list."),
    "nothing": (lambda: state_bytes({}), "must hold tensors by name, found dict."),
    "numbers": (lambda: state_bytes({3: torch.ones(2)}), "must hold tensors by name, found dict."),
    "nested": (lambda: state_bytes({"model": {"w": torch.ones(2)}}), "`model` must be a dense tensor, found dict."),
    "sparse": (lambda: state_bytes({"w": torch.eye(3).to_sparse()}), "`w` must be a dense tensor, found Tensor."),
    "program": (script, "is a TorchScript program, which is code; give its state dict."),
    "compressed": (
        lambda: zip_of({"a/data.pkl": b"x" * 99, "a/version": b"3"}, zipfile.ZIP_DEFLATED),
        "is a compressed zip file; torch.save writes uncompressed ones.",
    ),
    "torn zip": (lambda: zip_of({"a/data.pkl": b"x" * 99})[:-30], "is a damaged zip file, it may be truncated: "),
    "wrong checksum": (
        lambda: zip_of({"a/data.pkl": b"x" * 99}).replace(b"xxx", b"xyx", 1),
        "task.th is damaged: its member a/data.pkl is not what was written. Get it again.",
    ),
    "cut pickle": (lambda: state_bytes({"w": torch.ones(2)})[:18], "task.th cannot be read, it may be truncated: "),
    "no pickle of tensors": (
        lambda: state_bytes({"w": torch.ones(2)})[:21] + b"\x80\x02\xff.",
        "cannot be read, it may be truncated: it is no pickle of tensors alone. Get it again.",
    ),
    "no tensors": (lambda: zip_of({"a/data.pkl": b"x", "a/version": b"3"}), "cannot be read, it may be truncated: "),
    "without end": (
        lambda: state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}),
        "`w` has shape (1048576, 1048576), more numbers than the file holds.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), NO_STATES.values(), ids=NO_STATES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_state_dict_is_refused(content: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "task.th").write_bytes(content())
    assert_refused(tmp_path / "task.th", message)


def test_weights_that_torch_would_take_for_a_directory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.th"
    path.write_bytes(state_bytes({"w": torch.ones(9)}, as_zip=True))
    with zipfile.ZipFile(path, "a") as archive:
        (member,) = [member for member in archive.filelist if member.filename.endswith("/data/0")]
        member.external_attr |= 0x10
        archive.comment = b"written again"
    assert torch.load(path, weights_only=True)["w"].shape == (9,)
    assert_refused(path, f"task.th is damaged: its member {member.filename} is not what was written. Get it again.")


def test_a_zip_that_breaks_off_is_refused(tmp_path: Path) -> None:
    content = write_zip(tmp_path / "model.zip", nlpl_files(CASE)).read_bytes()
    (tmp_path / "model.zip").write_bytes(content[:-30])
    assert_refused(tmp_path / "model.zip", "model.zip is a damaged zip file, it may be truncated: ")


def test_a_tar_that_breaks_off_is_refused(tmp_path: Path) -> None:
    content = write_tar(tmp_path / "model.tar.gz", archive_files(CASE)).read_bytes()
    (tmp_path / "model.tar.gz").write_bytes(content[:-30])
    assert_refused(tmp_path / "model.tar.gz", "model.tar.gz cannot be unpacked, it may be truncated: ")


def test_options_without_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_TEXT", 100)
    source = write_files(tmp_path / "source" / "model", nlpl_files(CASE))
    size = len(nlpl_files(CASE)["options.json"])
    assert_refused(source, f"options.json has {size} bytes; at most 100 are read.")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    content = nlpl_files(CASE)["model.hdf5"]
    assert content.count(b"char_embed") == 1
    damaged = {"model.hdf5": content.replace(b"char_embed", b"char_\xffmbed")}
    source = write_files(tmp_path / "source" / "model", nlpl_files(CASE) | damaged)
    assert_refused(source, "model.hdf5 cannot be read, it may be truncated: a name is not UTF-8: b'char_")


BOMBS = """
import gc, resource, struct, sys, tarfile, tempfile, zipfile, zlib
from pathlib import Path
import h5py, numpy as np, torch
from elmo_hf.conversion.checkpoint import Given
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.formats import convert_source

work, options = Path(sys.argv[1]), Path(sys.argv[2])
SIZE, BLOCK = 10 << 30, 1 << 20


def deflated(start, size):
    # After a full flush every block of zeros has the same bytes.
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    zeros = pack.compress(bytes(BLOCK)) + pack.flush(zlib.Z_FULL_FLUSH)
    return head + zeros * (size // BLOCK) + pack.flush(zlib.Z_FINISH)


def zip_bomb(name, declared=SIZE):
    with zipfile.ZipFile(work / name, "w", zipfile.ZIP_STORED) as archive:
        for file in ("options.json", "model.hdf5") if name.endswith(".zip") else ("a/version", "a/data.pkl"):
            archive.writestr(file, deflated(b"", SIZE if file in ("model.hdf5", "a/data.pkl") else BLOCK))
            archive.filelist[-1].compress_type = zipfile.ZIP_DEFLATED
            archive.filelist[-1].file_size = declared


def tar_bomb(name, start, size):
    header = bytes([31, 139, 8, 0, 0, 0, 0, 0, 2, 255])
    (work / name).write_bytes(header + deflated(start, size) + bytes(8))


def member(name, size, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


zip_bomb("declared.zip")
zip_bomb("lying.zip", BLOCK)
zip_bomb("torch.th")
tar_bomb("declared.tar.gz", member("weights.th", SIZE), SIZE)
tar_bomb("trailing.tar.gz", member("weights.th", 0), 2 << 30)
tar_bomb("header.tar.gz", member("x", 4 << 30, tarfile.XHDTYPE), 4 << 30)
with h5py.File(work / "unwritten.hdf5", "w") as file:
    file.create_dataset("char_embed", (1 << 31,), np.float32)
with h5py.File(work / "packed.hdf5", "w") as file:
    table = file.create_dataset("char_embed", (640, 4 << 20), np.float32, chunks=(1, 4 << 20), compression="gzip")
    packed = zlib.compress(bytes(16 << 20))
    for row in range(640):
        table.id.write_direct_chunk((row, 0), packed)
torch.save({"w": torch.ones(70000)}, work / "storage.th", _use_new_zipfile_serialization=False)
claim = (work / "storage.th").read_bytes().replace(struct.pack("<cI", b"J", 70000), struct.pack("<cI", b"J", 2**31 - 1))
(work / "storage.th").write_bytes(claim)
(work / "long.th").write_bytes(b"x" * 15)
tempfile.tempdir = str(work / "unpacked")
Path(tempfile.tempdir).mkdir()
gc.collect()

for path in sorted(work.glob("*.*")):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        convert_source(path, work / "DEST", Given(options) if path.suffix in (".th", ".hdf5") else Given())
    except ConversionError as error:
        message = str(error)
    left = [p.name for p in work.iterdir() if p.is_dir() and p.name != "unpacked"] + list((work / "unpacked").iterdir())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(path.name, grown, left, message.replace(chr(10), " "), sep="|")
"""
BOMB_MESSAGES = {
    "declared.tar.gz": "and would unpack to 10,737,418,240, as no checkpoint does; it is not unpacked.",
    "declared.zip": "as no checkpoint does; it is not unpacked.",
    "header.tar.gz": "has an entry with a header of 4,294,967,296 bytes; it is not unpacked.",
    "long.th": "is not a file that torch.save wrote",
    "lying.zip": "lying.zip cannot be unpacked, it may be truncated: ",
    "packed.hdf5": "and would unpack to 10,737,418,240, as no checkpoint does; it is not unpacked.",
    "storage.th": "storage.th cannot be read, it may be truncated: ",
    "torch.th": "as no checkpoint does; it is not unpacked.",
    "trailing.tar.gz": "as no checkpoint does; it is not unpacked.",
    "unwritten.hdf5": "and would unpack to 8,589,934,592, as no checkpoint does; it is not unpacked.",
}


def test_bombs_of_ten_gigabytes_take_no_memory_and_leave_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    options = write_files(tmp_path, {"options.json": nlpl_files(CASE)["options.json"]}) / "options.json"
    lines = run_python(BOMBS, tmp_path, work, options).splitlines()
    found = {}
    for line in lines:
        name, grown, left, message = line.split("|", maxsplit=3)
        assert BOMB_MESSAGES[name] in message, line
        assert left == "[]", line
        found[name] = int(grown)
    assert found.keys() == BOMB_MESSAGES.keys()
    assert max(found.values()) < 100, found  # MiB


def in_folder(files: dict[str, bytes]) -> Callable[[Path, str, bytes], Path]:
    """A folder in which one file is damaged."""
    return lambda work, name, content: write_files(work / "source", files | {name: content})


def alone(work: Path, name: str, content: bytes) -> Path:
    return write_files(work, {name: content}) / name


def packed(write: Callable[[Path, dict[str, bytes]], Path], files: dict[str, bytes], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / name, files).read_bytes()


def every_format() -> dict[str, tuple[Callable[[Path, str, bytes], Path], str, bytes]]:
    """How to put it somewhere, the name of the damaged file, and its content."""
    nlpl, many, trained = nlpl_files(CASE), manylangs_files(), archive_files(CASE)
    lean = {name: content for name, content in trained.items() if not name.startswith("vocabulary")}
    formats = {
        "hdf5": (in_folder(nlpl), "model.hdf5", nlpl["model.hdf5"]),
        "zip": (alone, "model.zip", packed(write_zip, nlpl, "model.zip")),
        "many.zip": (alone, "many.zip", packed(write_zip, many, "many.zip")),
        "tar.gz": (alone, "model.tar.gz", packed(write_tar, lean, "model.tar.gz")),
        "th": (in_folder(lean), "weights.th", trained["weights.th"]),
        "th of the newer form": (in_folder(lean), "weights.th", state_bytes(golden_state(CASE), as_zip=True)),
    }
    for name in many:
        if name != "sentences.json":
            formats[name] = (in_folder(many), name, many[name])
    return formats


FORMATS = every_format()
# Their checksums cover all but a few bytes that mean nothing to us, such as dates.
CHECKSUMMED = {"zip", "many.zip", "tar.gz", "th of the newer form"}


def read(source: Path) -> dict[str, bytes] | None:
    """The tensors, or None where there is an error of ours; any other error fails the test."""
    try:
        with open_source(source) as opened:
            tensors = recognise(opened).read(opened, Given()).tensors
    except ConversionError:
        return None
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize(("put", "name", "content"), FORMATS.values(), ids=FORMATS)
def test_a_truncated_file_is_refused(
    put: Callable[[Path, str, bytes], Path], name: str, content: bytes, tmp_path: Path
) -> None:
    original = read(put(tmp_path, name, content))
    assert original is not None
    for eighth in range(8):
        source = put(tmp_path, name, content[: len(content) * eighth // 8])
        # A lexicon may lose its last lines between two of them.
        assert read(source) is None or name.endswith(".dic")
    for lost in (1, 2, 9, 40):
        found = read(put(tmp_path, name, content[:-lost]))
        assert found is None or found == original


@pytest.mark.parametrize(("kind", "form"), FORMATS.items(), ids=FORMATS)
def test_a_file_with_a_flipped_bit_is_refused_or_read_without_another_error(
    kind: str, form: Any, tmp_path: Path
) -> None:
    put, name, content = form
    original = read(put(tmp_path, name, content))
    places = sorted({number * (len(content) - 1) // 119 for number in range(120)})
    found = []
    for number, place in enumerate(places):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (number % 8)
        found.append(read(put(tmp_path, name, bytes(damaged))))
    if kind in CHECKSUMMED:
        assert all(tensors in (None, original) for tensors in found)
        assert found.count(None) > 0.9 * len(places)
