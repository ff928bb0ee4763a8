"""A new file for libraries in C that end the whole process when a disk is full.

HDF5 and torch's archives write once more while they close a file whose last write failed, and crash if that fails too.
They write to a `GuardedFile` instead: after the first failure it accepts all further bytes and drops them, so that the
library closes in peace; `close` then raises the failure.
"""

import io
from pathlib import Path
from typing import Any


class GuardedFile(io.RawIOBase):
    """A binary file, open for writing and reading; only `close` fails."""

    def __init__(self, path: Path) -> None:
        """Makes the file, or empties it."""
        self._file = path.open("w+b", buffering=0)
        self.failure: OSError | None = None

    def readable(self) -> bool:
        """Always True: HDF5 reads what it wrote."""
        return True

    def writable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads; as every raw file, perhaps less than fits into the buffer."""
        return self._file.readinto(buffer) or 0

    def write(self, data: Any) -> int:
        """Writes all bytes, or drops them after a failure."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self.failure is None:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.failure = error
        return size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def truncate(self, size: int | None = None) -> int:
        """Sets the size, or does nothing after a failure."""
        try:
            if self.failure is None:
                return self._file.truncate(size)
        except OSError as error:
            self.failure = error
        return self.tell() if size is None else size

    def check(self) -> None:
        """Raises the failure, if there was one."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Closes the file; raises the failure, if there was one."""
        if not self.closed:
            super().close()
            self._file.close()
            self.check()
