"""A new file for libraries in C that crash the process when a disk is full.

When HDF5 or torch's archives close a file whose last write failed, they write once more, and crash if that fails too.
These libraries write to a `GuardedFile` instead: after the first failure it drops all further bytes, so the library
closes normally; `close` then raises the failure.
"""

import io
from pathlib import Path
from typing import Any


class GuardedFile(io.FileIO):
    """A binary file, open for writing and reading; only `close` fails."""

    def __init__(self, path: Path) -> None:
        """Makes the file, or empties it."""
        super().__init__(path, "w+")
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes all bytes, or drops them after a failure."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self.failure is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failure = error
        return size

    def truncate(self, size: int | None = None) -> int:
        """Sets the size, or does nothing after a failure."""
        try:
            if self.failure is None:
                return super().truncate(size)
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
            self.check()
