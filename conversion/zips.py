"""Zip files with limits: Python's zipfile reads the list of entries whole, however long it is."""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ConversionError
from .limits import MAX_DIRECTORY, MAX_FILES, refuse_bomb

MAGIC = b"PK\x03\x04"


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file.

    Raises:
        ConversionError: if it holds too many entries, or they would unpack to too much.
        zipfile.BadZipFile: and other errors, if it is damaged.
    """
    with _File(io.FileIO(path)) as file, zipfile.ZipFile(file) as archive:
        file.longest_read = -1
        if len(archive.filelist) > MAX_FILES:
            raise _too_many(path)
        refuse_bomb(sum(member.file_size for member in archive.filelist), path.stat().st_size, str(path))
        yield archive


class _File(io.BufferedReader):
    """A file that refuses to be read in pieces longer than a list of entries may be, while zipfile opens it."""

    longest_read = MAX_DIRECTORY

    def read(self, size: int | None = -1) -> bytes:
        if 0 <= self.longest_read < (size or 0):
            raise _too_many(Path(self.raw.name))  # type: ignore[attr-defined]
        return super().read(size)


def _too_many(path: Path) -> ConversionError:
    return ConversionError(f"{path} holds more than {MAX_FILES:,} files, as no checkpoint does; it is not read.")
