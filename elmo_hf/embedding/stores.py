"""Files and folders on a disk, or in a store such as `s3://bucket/folder`: all through fsspec; a light module.

On a disk a new file is written in its folder, under another name; for a store it is written among the system's
temporary files, then put, because a store puts a file whole or not at all.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from ..disk.whole_files import publish, temporary_folder


def is_url(name: str) -> bool:
    """Whether a name is that of a store's file or folder."""
    return "://" in name


class InputFile:
    """A file for `read_sentences`, which needs the name and the bytes of a path."""

    def __init__(self, address: str, stream: Any = None) -> None:
        """Opens nothing yet; `stream` is standard input, which has no version."""
        self._address, self._stream = address, stream
        self.name = PurePosixPath(address).name

    def __str__(self) -> str:
        return self._address if self._stream is None else "standard input"

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Opens the file to read its bytes."""
        if self._stream is not None:
            return io.BufferedReader(self._stream)
        with _reached(self._address):
            store, path = _store(self._address)
            return io.BufferedReader(store.open(path, mode))

    def version(self) -> str:
        """What is another string once the file has been changed or replaced."""
        if self._stream is not None:
            return ""
        with _reached(self._address):
            store, path = _store(self._address)
            store.invalidate_cache()
            return store.ukey(path)


class Folder:
    """A folder of finished files."""

    def __init__(self, name: str) -> None:
        """Names a folder, which need not be there.

        Raises:
            ValueError: if there is no such kind of store.
        """
        self.name = name.rstrip("/") or "/"
        with _reached(self.name):
            self._store, self._root = _store(self.name)
        self.disk = Path(self._root) if "file" in self._store.protocol else None

    def sizes(self) -> dict[str, int]:
        """The bytes of each file, those one folder below too, by its name in the folder; none if there is no folder.

        Files whose names begin with a dot are left out: those that another process is writing may be gone any moment.

        Raises:
            ValueError: if a store cannot be reached.
        """
        with _reached(self.name):
            self._store.invalidate_cache()
            found = self._store.find(self._root, maxdepth=2, detail=True)
        sizes = {path[len(self._root) :].lstrip("/"): facts["size"] for path, facts in found.items()}
        return {name: size for name, size in sizes.items() if PurePosixPath(name).name[:1] not in ("", ".")}

    def read(self, names: list[str]) -> list[bytes]:
        """The contents of files, in the order of their names."""
        with _reached(self.name):
            found = self._store.cat([f"{self._root}/{name}" for name in names]) if names else {}
            return [found[f"{self._root}/{name}"] for name in names]

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        """Gives a temporary path to write to; then the file is put under its name, in place of an older one.

        Raises:
            ValueError: if a store refuses it.
        """
        if self.disk is not None:
            path = self.disk / name
            path.parent.mkdir(parents=True, exist_ok=True)
            written = path.with_name(f".{path.name}.new-{os.getpid()}")
            try:
                yield written
                publish(written, path)
            finally:
                written.unlink(missing_ok=True)
        else:
            with temporary_folder() as folder:
                written = folder / PurePosixPath(name).name
                yield written
                with _reached(self.name, "written"):
                    self._store.put_file(str(written), f"{self._root}/{name}")

    def remove_leftovers(self) -> None:
        """Removes what killed processes left half written on a disk; no other process may be writing."""
        for path in () if self.disk is None else [*self.disk.glob(".*.new-*"), *self.disk.glob("_*/.*.new-*")]:
            path.unlink()


def find_files(source: str) -> list[str]:
    """The files that a name stands for: itself, those that match a pattern, or all in a folder, sorted.

    Files and folders whose names begin with a dot, and in a folder with an underscore, are left out.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if a store cannot be reached.
    """
    with _reached(source):
        store, path = _store(source)
        if store.isfile(path):
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
        raise FileNotFoundError(f"there is no file {source}; as a folder or a pattern it gives none either.")
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


def _store(name: str) -> tuple[Any, str]:
    """The file system that has a file or folder, and its path there."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if not is_url(name):
        return LocalFileSystem(), os.path.abspath(name)
    # A bare protocol, such as `memory://`, is the root of its store.
    return url_to_fs(name.rstrip("/") if name.rstrip("/").rpartition("://")[2] else name)


@contextmanager
def _reached(name: str, what: str = "reached") -> Iterator[None]:
    """Replaces what a store raises by one line; a disk's own errors name the file.

    Raises:
        ValueError: if the store cannot be reached, or refuses.
    """
    try:
        yield
    # Each store's library has errors of its own, such as botocore's, which are plain Exceptions.
    except Exception as error:
        if not is_url(name):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"{name} cannot be {what}: {reason}.") from error
