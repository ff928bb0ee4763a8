"""Files and folders on a disk, or in a store such as `s3://bucket/folder`, all through fsspec. Imports no torch.

On a disk a new file is written in its folder under another name, then renamed. For a store it is written to the
system's temporary files, then uploaded whole or not at all. Errors are those of the store's library.
"""

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import has_magic
from itertools import takewhile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ..disk.whole_files import leftover, move_into_place
from ..folder.saved_json import one_line
from ..folder.store_errors import ADVICE


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
        if self.stream is not None:
            return io.BufferedReader(self.stream)
        store, path = _store(self.address)
        if _is_pipe(store, path):
            return open(path, "rb")
        return io.BufferedReader(store.open(path, mode))

    def version(self) -> str:
        """A string that changes when the file is changed or replaced; empty for standard input and pipes."""
        if self.stream is not None:
            return ""
        store, path = _store(self.address)
        if _is_pipe(store, path):
            return ""
        store.invalidate_cache()
        return store.ukey(path)


class Folder:
    """A folder of finished files."""

    def __init__(self, name: str) -> None:
        """Names a folder, which need not exist."""
        self.name = _without_slash(name)
        self._store, self._root = _store(self.name)
        self.disk = Path(self._root) if "file" in self._store.protocol else None

    def sizes(self) -> dict[str, int]:
        """The size in bytes of each file, also one folder below, by its name; empty if there is no folder.

        Files whose names begin with a dot are left out: another process is writing them and may rename them.
        """
        self._store.invalidate_cache()
        sizes = {}
        for path, facts in self._store.find(self._root, maxdepth=2, detail=True).items():
            name = path[len(self._root) :].lstrip("/")
            if name and not PurePosixPath(name).name.startswith("."):
                sizes[name] = facts["size"]
        return sizes

    def read(self, names: list[str]) -> list[bytes]:
        """The contents of files, in the order of their names."""
        if not names:
            return []
        self._store.invalidate_cache()  # other processes may have written since the last list of names
        paths = [f"{self._root}/{name}" for name in names]
        contents = self._store.cat(paths)
        return [contents[path] for path in paths]

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
                self._upload(written, name)
            return
        path = self.disk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".{path.name}.new-{os.getpid()}")
        try:
            yield written
            move_into_place(written, path)
        finally:
            with leftover(written):
                written.unlink(missing_ok=True)

    def _upload(self, written: Path, name: str) -> None:
        """Uploads a file; names it in an error that the store's library turned into one of Python's kinds."""
        try:
            self._store.put_file(str(written), f"{self._root}/{name}")
        except OSError as error:
            kind = type(error)
            if kind.__module__ != "builtins":  # a library's own kinds take other arguments
                raise
            raise kind(f"{self.name}/{name} cannot be uploaded ({one_line(error)}); {ADVICE}") from error

    def remove_leftovers(self) -> None:
        """Removes the files that killed processes left half written on a disk; no other process may be writing."""
        if self.disk is None:
            return
        for path in self.disk.rglob(".*.new-*"):
            path.unlink()


def find_files(source: str) -> list[str]:
    """The files of a name, sorted: the file itself, those that match a pattern, or all in a folder.

    Files and folders whose names begin with a dot, and in a folder with an underscore, are left out.

    Raises:
        FileNotFoundError: if there is none.
    """
    if is_file(source):
        return [source]
    store, path = _store(source)
    if store.isdir(path):
        paths = _visible_files(store, store.find(path), path, marks_of_hidden=(".", "_"))
    elif has_magic(path):
        plain_parts = takewhile(lambda part: not has_magic(part), PurePosixPath(path).parts)
        paths = _visible_files(store, store.glob(path), str(PurePosixPath(*plain_parts)), marks_of_hidden=(".",))
    else:
        paths = []
    if not paths:
        raise FileNotFoundError(f"there is no file {source}; no folder or pattern of this name has files either.")
    return sorted(_like(source, path, store) for path in paths)


def _visible_files(store: Any, paths: Iterable[str], root: str, marks_of_hidden: tuple[str, ...]) -> list[str]:
    """The files among paths below a folder, `root`, without those of which a part from there on begins with a mark."""
    depth = len(PurePosixPath(root).parts)
    files = []
    for path in paths:
        parts = PurePosixPath(path).parts[depth:]
        is_hidden = any(part.startswith(marks_of_hidden) for part in parts)
        if not is_hidden and store.isfile(path):
            files.append(path)
    return files


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
    if not isinstance(store, LocalFileSystem) or not os.path.exists(path):
        return False
    return not os.path.isfile(path) and not os.path.isdir(path)


def _store(name: str) -> tuple[Any, str]:
    """The file system that has a file or folder, and its path there."""
    if not is_url(name):
        return LocalFileSystem(), os.path.abspath(name)
    return url_to_fs(_without_slash(name))


def _without_slash(name: str) -> str:
    """A name without slashes at its end; that of a root, such as `/` or `memory://`, stays."""
    protocol, separator, path = name.rpartition("://")
    return protocol + separator + (path.rstrip("/") or path[:1])
