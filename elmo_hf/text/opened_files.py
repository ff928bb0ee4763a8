"""Opens a file, unpacked if it is gzipped, and knows its first bytes before it is read.

A file is opened once and read once, from its beginning to its end. So a pipe, standard input or a file in a store is
read like a file on a disk, and what a file holds can be told from its first bytes.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# How many bytes are known before a file is read.
HEAD_BYTES = 1 << 18
GZIP_MAGIC = b"\x1f\x8b\x08"
# Errors of a damaged file or disk.
DAMAGE = (EOFError, OSError, zlib.error)


class OpenedFile(NamedTuple):
    """The bytes of a file.

    Attributes:
        path: the file, for messages.
        name: the last part of its name.
        head: its first bytes, unpacked, at most `HEAD_BYTES`.
        is_whole: whether `head` is all that it holds.
        content: all bytes, `head` among them.
        original: the file itself if it can be read at any place and is not gzipped, else None.
    """

    path: Path
    name: str
    head: bytes
    is_whole: bool
    content: io.BufferedReader
    original: Any


def suffix_of(path: Path) -> str:
    """The suffix of a file's name that decides its format, such as `.conllu`, before any `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


@contextmanager
def opened(path: Path) -> Iterator[OpenedFile]:
    """Opens a file, which is unpacked if its name ends with `.gz` or it begins as gzipped files do.

    A damaged file fails where its content is read, after the bytes before the damage.

    Args:
        path: a path, or an object with its `name` and `open`.

    Raises:
        OSError: if the file cannot be opened.
    """
    with path.open("rb") as file:
        head, is_whole, content = _with_head(file)
        is_gzipped = head.startswith(GZIP_MAGIC) or path.name.lower().endswith(".gz")
        original = None
        if is_gzipped:
            head, is_whole, content = _with_head(gzip.GzipFile(fileobj=content))
        elif file.seekable():
            original = file
        yield OpenedFile(path, path.name, head, is_whole, content, original)


def _with_head(file: Any) -> tuple[bytes, bool, io.BufferedReader]:
    """The first bytes of a file, whether they are all, and a reader of all bytes."""
    parts: list[bytes] = []
    missing = HEAD_BYTES
    damage: Exception | None = None
    try:
        while missing > 0:
            part = file.read1(missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
    except DAMAGE as error:
        damage = error
    head = b"".join(parts)
    is_whole = missing > 0 and damage is None
    return head, is_whole, io.BufferedReader(_Rejoined(head, file, damage))


class _Rejoined(io.RawIOBase):
    """The first bytes of a file, then the damage that was met behind them, or the rest of the file."""

    def __init__(self, head: bytes, rest: Any, damage: Exception | None) -> None:
        self._head = memoryview(head)
        self._rest = rest
        self._damage = damage

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if len(self._head) > 0:
            part = self._head[: len(buffer)]
            self._head = self._head[len(part) :]
        elif self._damage is not None:
            raise self._damage
        else:
            part = memoryview(self._rest.read1(len(buffer)))
        buffer[: len(part)] = part
        return len(part)
