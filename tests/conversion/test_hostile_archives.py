"""Malicious and damaged archives, and endless texts: each raises a clear error and writes nothing."""

import errno
import gzip
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
from archives import archive_files, assert_source_refused, nlpl_files, write_files, write_tar, write_zip

from elmo_hf.conversion import files, sources
from elmo_hf.conversion.checkpoint import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.errors import ConversionError

CASE = "base_2l_relu"
pytestmark = pytest.mark.usefixtures("temporary")


OUTSIDE = ["../evil", "/evil", "a/../../evil", "..", "..\\evil", "a\\b", "C:/x", "C:x", "c:\\x", "//host/share/x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_point_outside_are_refused(name: str, tmp_path: Path) -> None:
    message = f"holds an entry {name!r} that points outside the archive; it is not unpacked."
    assert_source_refused(write_zip(tmp_path / "model.zip", nlpl_files(CASE) | {name: b"evil"}), message)
    assert_source_refused(write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {name: b"evil"}), message)
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
    assert_source_refused(path, "holds an entry 'weights.th' that is no plain file; it is not unpacked.")


def test_a_link_of_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("options.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, str(tmp_path / "secret"))
    assert_source_refused(path, "holds an entry 'options.json' that is no plain file; it is not unpacked.")


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
    assert_source_refused(path, "holds an entry 'weights.th' that is no plain file; it is not unpacked.")


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {"caf\udce9.txt": b""})
    assert_source_refused(path, "holds an entry 'caf\\udce9.txt' that is not UTF-8; it is not unpacked.")


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "model.zip", nlpl_files(CASE))
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("options.json", b"{}")
    assert_source_refused(path, "model.zip cannot be unpacked, it may be truncated: ")


def test_a_long_reason_is_cut(tmp_path: Path) -> None:
    content = write_zip(tmp_path / "model.zip", nlpl_files(CASE)).read_bytes()
    assert content[26:28] == b"\x0a\x00"  # the length of the first entry's name
    (tmp_path / "model.zip").write_bytes(content[:26] + b"\xff\x7f" + content[28:])
    with pytest.raises(ConversionError) as caught:
        convert_source(tmp_path / "model.zip", tmp_path / "DEST", Given())
    assert "model.zip cannot be unpacked, it may be truncated: File name in directory 'model.hdf5'" in str(caught.value)
    assert str(caught.value).endswith("... Get it again.")
    assert len(str(caught.value)) < 500


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("options.json", b"{}")
        archive.filelist[0].flag_bits |= 1
    assert_source_refused(path, "model.zip cannot be unpacked, it may be truncated: ")


def test_a_zip_that_breaks_off_is_refused(tmp_path: Path) -> None:
    content = write_zip(tmp_path / "model.zip", nlpl_files(CASE)).read_bytes()
    (tmp_path / "model.zip").write_bytes(content[:-30])
    assert_source_refused(tmp_path / "model.zip", "model.zip is a damaged zip file, it may be truncated: ")


def test_a_tar_that_breaks_off_is_refused(tmp_path: Path) -> None:
    content = write_tar(tmp_path / "model.tar.gz", archive_files(CASE)).read_bytes()
    (tmp_path / "model.tar.gz").write_bytes(content[:-30])
    assert_source_refused(tmp_path / "model.tar.gz", "model.tar.gz cannot be unpacked, it may be truncated: ")


def test_options_without_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_JSON", 100)
    source = write_files(tmp_path / "source" / "model", nlpl_files(CASE))
    size = len(nlpl_files(CASE)["options.json"])
    assert_source_refused(source, f"options.json has {size} bytes; at most 100 are read.")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    content = nlpl_files(CASE)["model.hdf5"]
    assert content.count(b"char_embed") == 1
    damaged = {"model.hdf5": content.replace(b"char_embed", b"char_\xffmbed")}
    source = write_files(tmp_path / "source" / "model", nlpl_files(CASE) | damaged)
    assert_source_refused(source, "model.hdf5 cannot be read, it may be truncated: a name is not UTF-8: b'char_")


def test_a_full_disk_is_no_fault_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(archive: Path, folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    monkeypatch.setattr(sources, "_unpack_zip", fill)
    with pytest.raises(OSError, match="No space left"):
        sources.unpack(tmp_path / "a.zip", tmp_path)
