"""The SOURCE of a conversion: a folder, a file or an archive, each presented as files by name.

Archives (`.zip`, `.tar.gz`, `.tar.bz2`) are unpacked into a folder in the unfinished output, which is removed
afterwards, up to a limit that depends on the size of the archive. An archive that holds links, devices, or names such
as `../x` is refused.
"""

import bz2
import gzip
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from .refusals import check_unpacked, reading, require

BLOCK = 1 << 17
HEAD = 1 << 16
MAX_FILES, MAX_FOLDERS = 10_000, 8  # files in an archive; folders inside one another
# The places of formats' files in a folder, which may hold any other files too.
LEVELS = ("*", "*/*", "*/variables/*")
ZIP_MAGIC = b"PK\x03\x04"
TAR_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


@dataclass(frozen=True)
class Source:
    """The files of a SOURCE."""

    path: Path  # the path that the user gave
    files: dict[str, Path]  # path of each file by its name, with `/` between folders
    is_archive: bool = False  # whether the files were unpacked; the archive's digest then replaces theirs

    @property
    def is_file(self) -> bool:
        """Whether it is one file and not an archive."""
        return not self.is_archive and self.path.is_file()

    @property
    def top(self) -> dict[str, Path]:
        """The files outside any folder."""
        return {name: path for name, path in self.files.items() if "/" not in name}

    def to_digest(self, *paths: Path) -> dict[str, Path]:
        """Names the files to digest: the given files, or the archive in place of files inside it."""
        inside = set(self.files.values()) if self.is_archive else set()
        return {path.name: path for path in (self.path if path in inside else path for path in paths)}


@contextmanager
def open_source(path: Path, place: Path | None = None) -> Iterator[Source]:
    """Opens a folder, a file or an archive, which is unpacked in the folder `place` or among the temporary files."""
    if path.is_dir():
        yield Source(path, files_in(path, *LEVELS))
        return
    require(path.is_file(), path, "", "a folder or a file", "nothing")
    if _is_archive(path):
        temporary = tempfile.mkdtemp(prefix="elmo-hf-", dir=place)
        try:
            # So every path, and every message, contains the archive's name.
            folder = Path(temporary, path.name)
            folder.mkdir()
            with reading(path):
                _unpack(path, folder)
            while len(entries := [*folder.iterdir()]) == 1 and entries[0].is_dir():
                folder = entries[0]
            yield Source(path, files_in(folder, "**/*"), is_archive=True)
        except BaseException:
            # The user sees the first error. TemporaryDirectory recurses without end where nothing can be removed.
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        shutil.rmtree(temporary)  # an output folder is not published with the unpacked files in it
    else:
        yield Source(path, {path.name: path})


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file after checking the unpacked size of its entries; a damaged one raises zipfile's own errors."""
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
    with reading(path):
        if not beginning(path).startswith(ZIP_MAGIC):
            return beginning(path).startswith(tuple(TAR_OPENERS))
        # torch's own files are zip files too; `readers/torch_files.py` reads them.
        with open_zip(path) as archive:
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
    with opener(path, "rb") as packed, tempfile.TemporaryFile(dir=folder.parent) as unpacked:
        while block := packed.read(BLOCK):  # to the end, so that the checksum is verified
            check_unpacked(packed.tell(), path)
            unpacked.write(block)
        unpacked.seek(0)
        with tarfile.open(fileobj=unpacked) as entries:
            for number, entry in enumerate(entries):
                is_plain = entry.isreg() and not entry.issparse()
                _check_member(path, number, entry.name, is_plain or entry.isdir())
                if is_plain:
                    entries.extract(entry, folder, filter="data")


def _check_member(archive: Path, number: int, name: str, is_plain: bool) -> None:
    path = PureWindowsPath(name)  # names can be absolute in several ways
    is_inside = not path.anchor and ".." not in path.parts and "\\" not in name and len(path.parts) <= MAX_FOLDERS
    expected = f"one of at most {MAX_FILES:,} plain files inside the archive, at most {MAX_FOLDERS} folders deep"
    found = "another path or more" if is_plain else "another kind of entry"
    require(is_plain and is_inside and number < MAX_FILES, archive, name, expected, found)
