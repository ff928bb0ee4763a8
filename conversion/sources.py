"""The SOURCE of a conversion: a folder, a file or an archive, each presented as files by name.

Archives (`.zip`, `.tar.gz`, `.tar.bz2`) are unpacked into a temporary folder that is removed afterwards, up to a size
that depends on the archive's own. An archive that holds links, devices, or names such as `../x` is refused.
"""

import bz2
import gzip
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from elmo_hf.disk.whole_files import temporary_folder

from .refusals import ConversionError, check_unpacked, listed, mismatch, reading, require

BLOCK = 1 << 17
HEAD = 1 << 16
MAX_FILES = 10_000  # entries of an archive
MAX_FOLDERS = 8  # in each other, in an archive
# What formats keep in folders inside theirs; a folder may hold anything else besides.
BELOW = (
    *("fta/*", "variables/*", "*/variables/*", "*/saved_model.pb", "*/options.json", "*/*.index", "*/*.data-*"),
    *("*/checkpoint", "metadata/part-*"),
)
ZIP_MAGIC = b"PK\x03\x04"
TAR_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


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
    if path.is_dir():
        yield Source(path, files_in(path, "*", *BELOW))
    elif not path.is_file():
        raise ConversionError(f"there is no file or folder {path}.")
    elif _is_archive(path):
        with temporary_folder() as temporary:
            # This puts the archive's name into every path, and so into every message.
            folder = temporary / path.name
            folder.mkdir()
            with reading(path):
                _unpack(path, folder)
            while len(entries := [*folder.iterdir()]) == 1 and entries[0].is_dir():
                folder = entries[0]
            yield Source(path, files_in(folder, "**/*"), is_archive=True)
    else:
        yield Source(path, {path.name: path})


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file whose entries may be unpacked.

    Raises:
        ConversionError: if they would unpack to too much.
        zipfile.BadZipFile: and other errors, if it is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        check_unpacked(sum(member.file_size for member in archive.filelist), path)
        yield archive


def files_in(folder: Path, *patterns: str) -> dict[str, Path]:
    """The files of a folder whose names match, by their names with `/` between folders."""
    paths = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


def beginning(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(HEAD)


def _is_archive(path: Path) -> bool:
    if not beginning(path).startswith(ZIP_MAGIC):
        return beginning(path).startswith(tuple(TAR_OPENERS))
    # torch's own files are zip files too; `readers/torch_files.py` reads them.
    with reading(path), open_zip(path) as archive:
        return not any(name.endswith("/data.pkl") for name in archive.namelist())


def _unpack(path: Path, folder: Path) -> None:
    """Unpacks the files of an archive into an empty folder."""
    if beginning(path).startswith(ZIP_MAGIC):
        with open_zip(path) as archive:
            for number, member in enumerate(archive.infolist()):
                is_plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
                _check_member(path, number, member.filename, is_plain or member.is_dir())
                if not member.is_dir():
                    archive.extract(member, folder)
        return
    opener = next(opener for magic, opener in TAR_OPENERS.items() if beginning(path).startswith(magic))
    with opener(path, "rb") as packed:
        stream = _Bounded(packed, path)
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as entries:  # type: ignore[call-overload]
            for number, entry in enumerate(entries):
                is_plain = entry.isreg() and not entry.issparse()
                _check_member(path, number, entry.name, is_plain or entry.isdir())
                if is_plain:
                    entries.extract(entry, folder, filter="data")
        # The checksum is at the end of the stream.
        while stream.read(BLOCK):
            pass


class _Bounded:
    """The unpacked stream of an archive, which is not read further than an archive of this size may reach."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path = stream, path

    def read(self, size: int) -> bytes:
        block = self.stream.read(size)
        check_unpacked(self.stream.tell(), self.path)
        return block


def _check_member(archive: Path, number: int, name: str, is_plain: bool) -> None:
    path = PureWindowsPath(name)  # whose names may be absolute in every way
    is_inside = not path.anchor and ".." not in path.parts and "\\" not in name and len(path.parts) <= MAX_FOLDERS
    if not is_plain or not is_inside:
        expected = f"a plain file inside the archive, at most {MAX_FOLDERS} folders deep"
        raise mismatch(archive, name, expected, "another path" if is_plain else "another kind of entry")
    require(number < MAX_FILES, archive, "", f"an archive of at most {MAX_FILES:,} files", "more")
