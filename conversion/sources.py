"""The SOURCE of a conversion: a folder, a file or an archive, each presented as files by name.

Archives (`.zip`, `.tar.gz`, `.tar.bz2`) are unpacked into a folder in the unfinished output, which is removed
afterwards, up to a limit that depends on the size of the archive. An archive that holds links, devices, or names such
as `../x` is refused; so are two files of one name, of which programs unpack the one or the other.
"""

import bz2
import gzip
import io
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from .refusals import ConversionError, check_unpacked, naming_file, shortened

BLOCK_SIZE = 1 << 17
HEAD_SIZE = 1 << 16
MAX_FILES = 10_000  # in an archive
MAX_FOLDERS = 8  # inside one another
MAX_DIRECTORY = 8 << 20  # bytes of the list of a zip file's entries, which zipfile reads at once when it opens the file
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

    def to_digest(self, paths: Iterable[Path]) -> dict[str, Path]:
        """Names the files to digest: these paths, or the archive in place of files inside it."""
        unpacked = set(self.files.values()) if self.is_archive else set()
        return by_name(*(self.path if path in unpacked else path for path in paths))


def by_name(*paths: Path) -> dict[str, Path]:
    """Files by their names without folders."""
    return {path.name: path for path in paths}


@contextmanager
def open_source(path: Path, place: Path | None = None) -> Iterator[Source]:
    """Opens a folder, a file or an archive, which is unpacked in the folder `place` or among the temporary files."""
    if path.is_dir():
        yield Source(path, files_in(path, *LEVELS))
    elif not path.is_file():
        raise ConversionError(f"there is no folder or file {path}.")
    elif _is_archive(path):
        with _unpacked(path, place) as folder:
            yield Source(path, files_in(folder, "**/*"), is_archive=True)
    else:
        yield Source(path, {path.name: path})


@contextmanager
def _unpacked(path: Path, place: Path | None) -> Iterator[Path]:
    """The folder with an archive's files, which is removed afterwards."""
    temporary = tempfile.mkdtemp(prefix="elmo-hf-", dir=place)
    try:
        # So every path, and every message, contains the archive's name.
        folder = Path(temporary, path.name)
        folder.mkdir()
        with naming_file(path):
            _unpack(path, folder)
        yield _without_outer_folders(folder)
    except BaseException:
        # The user sees the first error. TemporaryDirectory recurses without end where nothing can be removed.
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(temporary)  # an output folder is not published with the unpacked files in it


def _without_outer_folders(folder: Path) -> Path:
    """The first folder from here down that has something else than one folder in it."""
    entries = [*folder.iterdir()]
    while len(entries) == 1 and entries[0].is_dir():
        folder = entries[0]
        entries = [*folder.iterdir()]
    return folder


class _DirectoryReader(io.BufferedReader):
    """A zip file that refuses to read more than `MAX_DIRECTORY` bytes at once.

    zipfile reads the list of a file's entries in one piece.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.path = path

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY:
            raise ConversionError(
                f"the list of files in {self.path} has {size:,} bytes, more than the {MAX_DIRECTORY:,} that are read; "
                "unpack it yourself, and convert the folder of the model."
            )
        return super().read(size)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file after checking its list of entries, and their unpacked size.

    A damaged one raises zipfile's own errors.
    """
    with _DirectoryReader(path) as file, zipfile.ZipFile(file):
        pass
    with zipfile.ZipFile(path) as archive:
        check_unpacked(sum(member.file_size for member in archive.filelist), path)
        yield archive


def files_in(folder: Path, *patterns: str) -> dict[str, Path]:
    """The files of a folder whose names match, by their names with `/` between folders."""
    files = {}
    for pattern in patterns:
        for path in folder.glob(pattern):
            if path.is_file():
                files[path.relative_to(folder).as_posix()] = path
    return files


def beginning(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(HEAD_SIZE)


def _is_archive(path: Path) -> bool:
    with naming_file(path):
        if not beginning(path).startswith(ZIP_MAGIC):
            return beginning(path).startswith(tuple(TAR_OPENERS))
        # torch's own files are zip files too; `readers/torch_files.py` reads them.
        with open_zip(path) as archive:
            return not any(name.endswith("/data.pkl") for name in archive.namelist())


def _unpack(path: Path, folder: Path) -> None:
    """Unpacks the files of an archive into an empty folder."""
    magic = beginning(path)
    if magic.startswith(ZIP_MAGIC):
        _unpack_zip(path, folder)
        return
    for tar_magic, opener in TAR_OPENERS.items():
        if magic.startswith(tar_magic):
            _unpack_tar(path, opener, folder)


def _unpack_zip(path: Path, folder: Path) -> None:
    names: set[str] = set()
    with open_zip(path) as archive:
        for number, member in enumerate(archive.infolist()):
            is_plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
            _check_member(path, number, member.filename, is_plain or member.is_dir())
            if not member.is_dir():
                _add_name(path, member.filename, names)
                archive.extract(member, folder)


def _unpack_tar(path: Path, opener: Callable[..., Any], folder: Path) -> None:
    with opener(path, "rb") as packed, tempfile.TemporaryFile(dir=folder.parent) as unpacked:
        for block in iter(partial(packed.read, BLOCK_SIZE), b""):  # to the end, so that the checksum is verified
            check_unpacked(packed.tell(), path)
            unpacked.write(block)
        unpacked.seek(0)
        names: set[str] = set()
        with tarfile.open(fileobj=unpacked) as entries:
            for number, entry in enumerate(entries):
                is_plain = entry.isreg() and not entry.issparse()
                _check_member(path, number, entry.name, is_plain or entry.isdir())
                if is_plain:
                    _add_name(path, entry.name, names)
                    entries.extract(entry, folder, filter="data")


def _add_name(archive: Path, name: str, names: set[str]) -> None:
    """Adds the name of a file to those before it in an archive, none of which it may repeat.

    Names that differ in case alone are one file on the disks of Windows and macOS.
    """
    key = PurePosixPath(name).as_posix().casefold()
    if key in names:
        raise ConversionError(
            f"{archive} must have each file once, but `{shortened(name)}` repeats the name of another one, at least "
            "where upper and lower case are the same; unpack it yourself, and convert the folder of the model."
        )
    names.add(key)


def _check_member(archive: Path, number: int, name: str, is_plain: bool) -> None:
    """Checks an entry of an archive: its number from 0, its name, and that it is a file or a folder."""
    path = PureWindowsPath(name)  # names can be absolute in several ways
    shown = shortened(name)
    if number >= MAX_FILES:
        raise ConversionError(
            f"{archive} must have at most {MAX_FILES:,} files and folders, but has more; unpack it yourself, and "
            "convert the folder of the model."
        )
    if not is_plain:
        raise ConversionError(
            f"{archive} must have only plain files and folders, but `{shown}` is a link or another kind of entry; pack "
            "the model's files anew without it."
        )
    if path.anchor or ".." in path.parts or "\\" in name:
        raise ConversionError(
            f"{archive} must have only files inside the archive's own folder, but `{shown}` may lie outside it; get "
            "the archive from another source."
        )
    if len(path.parts) > MAX_FOLDERS:
        raise ConversionError(
            f"{archive} must have folders at most {MAX_FOLDERS} deep, but `{shown}` lies deeper; unpack it yourself, "
            "and convert the folder of the model."
        )
