"""Files and folders on a disk, or in a store such as `s3://bucket/folder`, all through fsspec. Imports no torch.

On a disk a new file is written in its folder under another name, then renamed. For a store it is written to the
system's temporary files, then uploaded whole or not at all. Errors are those of the store's library.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ..disk.whole_files import leftover, publish


def is_url(name: str) -> bool:
    """Whether a name is an address with `://`, as in `s3://bucket/folder`, and not a plain path."""
    return "://" in name


def is_file(name: str) -> bool:
    """Whether a file of this name exists, or a pipe on this disk."""
    store, path = _store(name)
    if _is_pipe(store, path):
        return True
    return store.isfile(path)


class InputFile(NamedTuple):
    """A file for `read_sentences`, with the name and the bytes that this function reads; `stream` is standard input."""

    address: str
    stream: Any = None

    def __str__(self) -> str:
        return self.address if self.stream is None else "standard input"

    @property
    def name(self) -> str:
        """The last part of the file's address, with the suffix that shows the format."""
        return PurePosixPath(self.address).name

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Opens the file to read its bytes."""
        store, path = _store(self.address)
        if self.stream is not None:
            return io.BufferedReader(self.stream)
        if _is_pipe(store, path):
            return open(path, "rb")
        return io.BufferedReader(store.open(path, mode))

    def version(self) -> str:
        """A string that changes when the file is changed or replaced; empty for standard input and pipes."""
        store, path = _store(self.address)
        if self.stream is not None or _is_pipe(store, path):
            return ""
        store.invalidate_cache()
        return store.ukey(path)


class Folder:
    """A folder of finished files."""

    def __init__(self, name: str) -> None:
        """Names a folder, which need not exist."""
        self.name = name.rstrip("/") or "/"
        self._store, self._root = _store(self.name)
        self.disk = Path(self._root) if "file" in self._store.protocol else None

    def sizes(self) -> dict[str, int]:
        """The size in bytes of each file, also one folder below, by its name; empty if there is no folder.

        Files whose names begin with a dot are left out: another process is writing them and may rename them.
        """
        self._store.invalidate_cache()
        found = self._store.find(self._root, maxdepth=2, detail=True)
        sizes = {path[len(self._root) :].lstrip("/"): facts["size"] for path, facts in found.items()}
        return {name: size for name, size in sizes.items() if PurePosixPath(name).name[:1] not in ("", ".")}

    def read(self, names: list[str]) -> list[bytes]:
        """The contents of files, in the order of their names."""
        found = self._store.cat([f"{self._root}/{name}" for name in names]) if names else {}
        return [found[f"{self._root}/{name}"] for name in names]

    def open(self, name: str) -> BinaryIO:
        """Opens a file to read its bytes."""
        return self._store.open(f"{self._root}/{name}", "rb")

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Yields a temporary path to write to; afterwards the file gets its name and replaces an older one."""
        if self.disk is None:
            with TemporaryDirectory(prefix="elmo-hf-", ignore_cleanup_errors=True) as folder:
                written = Path(folder, PurePosixPath(name).name)
                yield written
                self._store.put_file(str(written), f"{self._root}/{name}")
            return
        path = self.disk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.new-{os.getpid()}")
        try:
            yield written
            publish(written, path)
        finally:
            with leftover(written):
                written.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Removes the files that killed processes left half written on a disk; no other process may be writing."""
        for path in () if self.disk is None else self.disk.rglob(".*.new-*"):
            path.unlink()


def find_files(source: str) -> list[str]:
    """The files of a name, sorted: the file itself, those that match a pattern, or all in a folder.

    Files and folders whose names begin with a dot, and in a folder with an underscore, are left out.

    Raises:
        FileNotFoundError: if there is none.
    """
    store, path = _store(source)
    if is_file(source):
        return [source]
    is_folder = store.isdir(path)
    found = store.find(path) if is_folder else store.glob(path) if has_magic(path) else []
    parts = PurePosixPath(path).parts
    depth = len(parts) if is_folder else len([*takewhile(lambda part: not has_magic(part), parts)])
    hidden = "._" if is_folder else "."
    names = [
        _like(source, each, store)
        for each in found
        if not any(part[0] in hidden for part in PurePosixPath(each).parts[depth:]) and store.isfile(each)
    ]
    if not names:
        raise FileNotFoundError(f"there is no file {source}; no folder or pattern of this name has files either.")
    return sorted(names)


def place_of(name: str) -> str:
    """The one name of a file or folder: without links, `..` and doubled slashes."""
    if not is_url(name):
        return os.path.realpath(name)
    protocol, _, path = name.partition("://")
    return f"{protocol}://{'/'.join(part for part in path.split('/') if part)}"


def _like(source: str, path: str, store: Any) -> str:
    """A path that was found, written as the source is: with its protocol, or relative to the working folder."""
    if is_url(source):
        return store.unstrip_protocol(path)
    return path if os.path.isabs(source) else os.path.relpath(path)


def _is_pipe(store: Any, path: str) -> bool:
    """Whether a path on this disk is neither a file nor a folder, but can be read, such as `/dev/fd/63`."""
    is_local = isinstance(store, LocalFileSystem)
    return is_local and os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _store(name: str) -> tuple[Any, str]:
    """The file system that has a file or folder, and its path there."""
    if not is_url(name):
        return LocalFileSystem(), os.path.abspath(name)
    # A bare protocol, such as `memory://`, is the root of its store.
    return url_to_fs(name.rstrip("/") if name.rstrip("/").rpartition("://")[2] else name)
