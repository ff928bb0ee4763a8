"""The SOURCE of a conversion: a folder, a file or an archive, each presented as files by name.

Archives (`.zip`, `.tar.gz`, `.tar.bz2`) are unpacked into a temporary folder that is removed afterwards. An archive is
refused if it holds anything but plain files (links, devices), or a name that points outside, such as `../x`, on any
system. Unpacking reads in blocks, verifies every checksum, and stops at a size that depends on the archive's own and at
a number of entries (`limits.py`).
"""

import bz2
import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from elmo_hf.disk.whole_files import NO_ROOM, temporary_folder

from .errors import ConversionError, listed, quoted, shortened
from .files import check_names, files_in, is_utf8
from .limits import MAX_FILES, MAX_FOLDERS, at_most, refuse_bomb
from .zips import MAGIC as ZIP_MAGIC
from .zips import open_zip

BLOCK = 1 << 17  # as large as the buffers that Python's own files read into
MAX_HEADER = BLOCK
# What formats keep in folders inside theirs; a folder may hold anything else besides.
BELOW = (
    *("fta/*", "variables/*", "*/variables/*", "*/saved_model.pb", "*/options.json", "*/*.index", "*/*.data-*"),
    *("*/checkpoint", "metadata/part-*"),
)
MAX_HEADER_FIELDS = 100
TAR_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}
# Errors of zipfile, tarfile, gzip and bz2 on damaged bytes.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    IndexError,
    KeyError,
)


@dataclass(frozen=True)
class Source:
    """The files of a SOURCE.

    Attributes:
        path: the path that the user gave.
        files: path of each file by its name, with `/` between folders.
        is_archive: whether the files were unpacked; the archive's digest then replaces theirs.
    """

    path: Path
    files: dict[str, Path]
    is_archive: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it is one file that is no archive."""
        return not self.is_archive and self.path.is_file()

    @property
    def top(self) -> dict[str, Path]:
        """The files outside any folder."""
        return {name: path for name, path in self.files.items() if "/" not in name}

    @property
    def listing(self) -> str:
        """The names of the files, for messages."""
        return listed(sorted(self.files)) or "nothing"

    def to_digest(self, *paths: Path) -> dict[str, Path]:
        """Names the files to digest: the given ones, or the archive in place of files inside it."""
        inside = set(self.files.values()) if self.is_archive else set()
        return {path.name: path for path in (self.path if path in inside else path for path in paths)}


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Opens a folder, a file or an archive.

    Raises:
        ConversionError: if it is not there, or is an archive that is damaged or hostile.
    """
    check_names(path)
    if path.is_dir():
        yield Source(path, files_in(path) | _files_below(path))
    elif not path.is_file():
        raise ConversionError(f"there is no file or folder {path}.")
    elif _is_archive(path):
        with temporary_folder() as temporary:
            # This puts the archive's name into every path, and so into every message.
            folder = temporary / path.name
            folder.mkdir()
            yield Source(path, unpack(path, folder), is_archive=True)
    else:
        yield Source(path, {path.name: path})


def unpack(archive: Path, folder: Path) -> dict[str, Path]:
    """Unpacks an archive.

    Args:
        archive: a zip or a compressed tar file.
        folder: an empty folder.

    Returns:
        paths by name; the names leave out folders that hold everything.

    Raises:
        ConversionError: if the archive is damaged, would unpack to too much, holds anything but plain files, or holds
            a name that points outside the folder.
    """
    try:
        names = _unpack_zip(archive, folder) if _magic(archive) == ZIP_MAGIC else _unpack_tar(archive, folder)
    except DAMAGE as error:
        if getattr(error, "errno", None) in NO_ROOM:
            raise
        raise ConversionError(
            f"{archive} cannot be unpacked, it may be truncated: {shortened(str(error))}. Get it again."
        ) from error
    prefix = os.path.commonpath([PurePosixPath(name).parent for name in names]) if names else ""
    return {str(PurePosixPath(name).relative_to(prefix)): folder / name for name in names}


def _files_below(folder: Path) -> dict[str, Path]:
    """The files that `BELOW` names, by name."""
    paths = [path for pattern in BELOW for path in at_most(MAX_FILES, folder.glob(pattern), str(folder), "files")]
    paths = [path for path in paths if path.is_file()]
    check_names(*paths)
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(ZIP_MAGIC))


def _is_archive(path: Path) -> bool:
    magic = _magic(path)
    if magic == ZIP_MAGIC:
        # torch's own files are zip files too; `readers/state_dicts.py` reads them.
        try:
            with open_zip(path) as archive:
                return not any(name.endswith("/data.pkl") for name in archive.namelist())
        except DAMAGE as error:
            raise ConversionError(
                f"{path} is a damaged zip file, it may be truncated: {shortened(str(error))}."
            ) from error
    return magic.startswith(tuple(TAR_OPENERS))


def _unpack_zip(path: Path, folder: Path) -> list[str]:
    with open_zip(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            mode = member.external_attr >> 16
            _check_member(path, member.filename, is_plain=stat.S_IFMT(mode) in (0, stat.S_IFREG))
        for member in members:
            with archive.open(member) as packed:
                _copy(packed, folder / member.filename)
        return [member.filename for member in members]


def _unpack_tar(path: Path, folder: Path) -> list[str]:
    size = path.stat().st_size
    opener = next(opener for start, opener in TAR_OPENERS.items() if _magic(path).startswith(start))
    names = []
    with opener(path, "rb") as packed:
        stream = _Bounded(packed, size, str(path))
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in at_most(MAX_FILES, archive, str(path), "files"):
                # Every entry inherits the fields of the headers before it.
                if len(member.pax_headers) > MAX_HEADER_FIELDS:
                    raise ConversionError(
                        f"{path} has an entry with more than {MAX_HEADER_FIELDS} header fields; it is not unpacked."
                    )
                if member.isdir():
                    continue
                _check_member(path, member.name, is_plain=member.isreg() and not member.issparse())
                refuse_bomb(member.size, size, str(path))
                content = archive.extractfile(member)
                assert content is not None
                _copy(content, folder / member.name)
                names.append(member.name)
        # The checksum is at the end of the stream.
        while stream.read(BLOCK):
            pass
    return names


class _Bounded(io.RawIOBase):
    """A stream read from its start; refuses to be read further than a checkpoint would be long."""

    def __init__(self, stream: Any, packed: int, where: str) -> None:
        super().__init__()
        self.stream, self.packed, self.where = stream, packed, where

    def read(self, size: int = -1) -> bytes:
        # tarfile reads an extended header in one piece, however long the header claims to be.
        if size > MAX_HEADER:
            raise ConversionError(f"{self.where} has an entry with a header of {size:,} bytes; it is not unpacked.")
        refuse_bomb(self.stream.tell(), self.packed, self.where)
        return self.stream.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        refuse_bomb(offset, self.packed, self.where)
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def _check_member(archive: Path, name: str, is_plain: bool) -> None:
    parts = PurePosixPath(name).parts
    is_inside = bool(parts) and ".." not in parts and "\\" not in name and "\0" not in name
    where = f"{archive} holds an entry {quoted(name)}"
    if not is_inside or name.startswith("/") or PureWindowsPath(name).drive:
        raise ConversionError(f"{where} that points outside the archive; it is not unpacked.")
    if not is_utf8(name):
        raise ConversionError(f"{where} that is not UTF-8; it is not unpacked.")
    if len(parts) > MAX_FOLDERS:
        raise ConversionError(f"{where} in more than {MAX_FOLDERS} folders; it is not unpacked.")
    if not is_plain:
        raise ConversionError(f"{where} that is no plain file; it is not unpacked.")


def _copy(packed: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        while block := packed.read(BLOCK):
            file.write(block)
