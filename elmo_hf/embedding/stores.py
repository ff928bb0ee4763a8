"""Files and folders on a disk, or in a store that fsspec knows, such as `s3://bucket/folder`; a light module.

On a disk a new file is written in its folder, under another name; for a store it is written among the system's
temporary files, then put. A store is not asked to rename, and puts a file whole or not at all.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from typing import Any

from ..disk.whole_files import publish, temporary_folder

# What a folder of shards holds beside its shards.
JOB, INDEX = "_job.json", "_index.jsonl"


def is_url(name: str) -> bool:
    """Whether a name is that of a store's file or folder."""
    return "://" in name


class StoredFile:
    """A store's file for `read_sentences`, which needs the name and the bytes of a path."""

    def __init__(self, url: str) -> None:
        """Asks nothing of the store yet."""
        self._url = url
        self.name = PurePosixPath(url).name

    def __str__(self) -> str:
        return self._url

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Opens the file to read its bytes."""
        with _reached(self._url):
            store, path = _store(self._url)
            return io.BufferedReader(store.open(path, mode))


class Folder:
    """A folder of finished files."""

    def __init__(self, name: str) -> None:
        """Names a folder; asks nothing of a store yet."""
        self.name = name.rstrip("/") or "/"
        # Absolute, because Ray's workers run in folders of their own.
        self.disk = None if is_url(name) else Path(name).absolute()

    def sizes(self) -> dict[str, int]:
        """The bytes of each file, those of its folders too, by its name in the folder; none if there is no folder.

        Files whose names begin with a dot are left out: those that another process is writing may be gone any moment.

        Raises:
            ValueError: if a store cannot be reached.
        """
        if self.disk is not None:
            files = [path for path in [*self.disk.glob("[!.]*"), *self.disk.glob("_*/[!.]*")] if path.is_file()]
            return {path.relative_to(self.disk).as_posix(): path.stat().st_size for path in files}
        with _reached(self.name):
            store, root = _store(self.name)
            store.invalidate_cache()
            found = store.find(root, detail=True)
        sizes = {path[len(root) :].lstrip("/"): facts["size"] for path, facts in found.items()}
        return {name: size for name, size in sizes.items() if not PurePosixPath(name).name.startswith(".")}

    def read(self, names: list[str]) -> list[bytes]:
        """The contents of files, in the order of their names."""
        if self.disk is not None:
            return [(self.disk / name).read_bytes() for name in names]
        with _reached(self.name):
            store, root = _store(self.name)
            found = store.cat([f"{root}/{name}" for name in names]) if names else {}
            return [found[f"{root}/{name}"] for name in names]

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
                    store, root = _store(self.name)
                    store.put_file(str(written), f"{root}/{name}")

    def refuse_foreign(self) -> None:
        """Checks that a folder is new, empty, or one of shards.

        Raises:
            FileExistsError: if it holds other files, or is a file.
            ValueError: if a store cannot be reached.
        """
        if self.disk is not None and os.path.lexists(self.disk) and not self.disk.is_dir():
            raise FileExistsError(f"{self.name} is a file, or a link that leads nowhere; give a folder.")
        names = self.sizes()
        if names and JOB not in names and not any(name.startswith("_index/") for name in names):
            raise FileExistsError(f"{self.name} holds other files, such as {min(names)}; give a new folder.")

    def remove_leftovers(self) -> None:
        """Removes what killed processes left half written on a disk; no other process may be writing."""
        for path in () if self.disk is None else [*self.disk.glob(".*.new-*"), *self.disk.glob("_*/.*.new-*")]:
            path.unlink()


def find_files(source: str) -> list[str]:
    """The files that a name stands for: itself, those that match a pattern, or all in a folder, sorted.

    Names that begin with a dot or an underscore, in a folder, are left out.

    Raises:
        FileNotFoundError: if there is no such file or folder.
        ValueError: if a pattern matches nothing, a folder is empty, or a store cannot be reached.
    """
    if is_url(source):
        with _reached(source):
            store, path = _store(source)
            is_one, is_folder = store.isfile(path), store.isdir(path)
            is_pattern = has_magic(path) and not is_one
            found = store.glob(path) if is_pattern else store.find(path) if is_folder and not is_one else []
            files = [store.unstrip_protocol(each) for each in found if not is_pattern or store.isfile(each)]
    else:
        is_one, is_folder = Path(source).is_file(), Path(source).is_dir()
        is_pattern = has_magic(source) and not is_folder
        found = [str(path) for path in Path(source).rglob("*")] if is_folder else glob(source, recursive=True)
        files = [each for each in found if Path(each).is_file()]
    if is_one:
        return [source]
    if is_folder:
        files = [each for each in files if not any(part[0] in "._" for part in _below(source, each))]
    if not files:
        if not is_folder and not is_pattern:
            raise FileNotFoundError(f"there is no file {source}.")
        raise ValueError(f"the folder {source} holds no file." if is_folder else f"{source} matches no file.")
    return sorted(files)


def _below(folder: str, file: str) -> tuple[str, ...]:
    """The names on the way from a folder to a file in it."""
    num_parts = len(PurePosixPath(folder.rstrip("/")).parts)
    return PurePosixPath(file).parts[num_parts:]


def _store(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    options = {"auto_mkdir": True} if url.startswith("file:") else {}  # a store has no folders to make
    return url_to_fs(url.rstrip("/") if url.rstrip("/").rpartition("://")[2] else url, **options)


@contextmanager
def _reached(url: str, what: str = "reached") -> Iterator[None]:
    """Replaces what a store raises by one line.

    Raises:
        ValueError: if the store cannot be reached, or refuses.
    """
    try:
        yield
    # Each store's library has errors of its own, such as botocore's, which are plain Exceptions.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"{url} cannot be {what}: {reason}.") from error
