"""Files and folders that are written whole or not at all, by one process at a time.

While NAME is being written, there are two files or folders beside it:

    .NAME.lock       locked by the process that writes
    .NAME.partial    renamed to NAME when it is complete and on the disk

The system releases a lock when its process ends in any way. So a partial file without a lock was left by a killed
process, and the next process that writes or finds NAME removes it.
"""

import errno
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)
# The system's errors for no room: on the disk, in the user's share of it, in one file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The system's errors in messages of safetensors and torch; torch gives no reason why it could not write.
NUMBER = re.compile(r"\(os error (\d+)\)|errno (\d+) ")
NO_REASON = ("PytorchStreamWriter failed", ". unexpected pos ", "iostream error", "strerror: No space left")
# The user's umask, which can only be read by setting it.
MASK = os.umask(0o077)
os.umask(MASK)


@contextmanager
def new_file(path: Path, replaces: bool = True) -> Iterator[Path]:
    """Yields a temporary path to write to, which is renamed to `path` when the block ends without an error.

    If another process is writing `path`, this process waits. An older file is replaced, so the last writer wins; or,
    with `replaces=False`, it stays, whoever wrote it and whenever. Errors are those of `only_writer`, `named_if_full`
    and, with `replaces=False`, `refuse_written_meanwhile`.
    """
    with only_writer(path, must_wait=True) as partial, named_if_full(path):
        if not replaces:
            refuse_written_meanwhile(path)
        yield partial
        move_into_place(partial, path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder to fill, which is renamed to `path` when the block ends without an error.

    Errors are those of `refuse_existing`, `only_writer` and `named_if_full`.
    """
    refuse_file_in_place(path.parent)
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with workplace(path) as partial:
        refuse_existing(path)
        yield partial
        for lock in partial.glob(".*.lock"):  # of a file in the folder; it could not be removed
            lock.unlink()
        move_into_place(partial, path)


@contextmanager
def workplace(path: Path, must_wait: bool = False) -> Iterator[Path]:
    """Yields a temporary folder beside `path`, for one process at a time; it is removed in the end.

    Arguments and errors are those of `only_writer`, and of `named_if_full`.
    """
    with only_writer(path, must_wait) as partial, named_if_full(path):
        partial.mkdir()
        yield partial


def check_new_file(path: Path) -> None:
    """Checks that a new file can be made; errors are those of `refuse_existing` and `only_writer`."""
    refuse_existing(path, is_folder=False)
    with only_writer(path):
        pass


def refuse_existing(path: Path, is_folder: bool = True) -> None:
    """Checks that a folder or file can be made; if it exists, removes partial files of killed processes.

    Raises:
        FileExistsError: if `path` exists; a folder may replace an empty one.
        NotADirectoryError: as in `refuse_file_in_place`, if it is to be a folder.
    """
    if path.exists() and not (is_folder and path.is_dir() and not any(path.iterdir())):
        remove_leftovers(path.resolve())
        raise FileExistsError(f"{path} exists already; remove it or choose another name. Nothing was written.")
    if is_folder:
        refuse_file_in_place(path)


def refuse_file_in_place(folder: Path) -> None:
    """Raises NotADirectoryError if a file has the place of a folder that is to be made, or of one above it."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(f"{place} must be a folder, found a file; choose another name for the output.")


def refuse_written_meanwhile(path: Path) -> None:
    """Raises FileExistsError if a file exists that did not when a command began; for the process that may write it."""
    if path.exists():
        raise FileExistsError(f"{path} was written by another process meanwhile; it stays as it is.")


def partial_of(path: Path) -> Path:
    """Where a file or folder is while it is being written."""
    return path.with_name(f".{path.name}.partial")


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes left beside a file or folder, which need not exist."""
    path = path.absolute()
    if not path.with_name(f".{path.name}.lock").exists() and not partial_of(path).exists():
        return
    # If a process is writing, or this one may not write there, they stay, and no error hides what the user asked for.
    with suppress(OSError), only_writer(path):
        pass


@contextmanager
def only_writer(path: Path, must_wait: bool = False) -> Iterator[Path]:
    """Keeps other processes from writing `path`, and removes files that a killed process left there.

    Args:
        path: the file or folder to be written.
        must_wait: whether to wait for another process instead of refusing.

    Yields:
        the path to write to, beside `path`; it does not exist before and after the block.

    Raises:
        FileNotFoundError: if there is no folder for `path`.
        BlockingIOError: if another process is writing.
    """
    from filelock import FileLock, Timeout

    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} in.")
    path = path.absolute()  # "." by itself has no name
    lock_file = path.with_name(f".{path.name}.lock")
    partial = partial_of(path)
    lock = FileLock(str(lock_file), timeout=-1 if must_wait else 0)
    try:
        lock.acquire()
    except Timeout as error:
        raise BlockingIOError(
            f"{path} is being written by another process; wait until it ends, or choose another name."
        ) from error
    try:
        _remove(partial)
        yield partial
    finally:
        with leftover(partial):
            _remove(partial)
        # Removes the name first: a process that has opened the file since notices this, and opens it again.
        with leftover(lock_file):
            lock_file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def named_if_full(path: Path) -> Iterator[None]:
    """Replaces the errors of libraries on a full or failing disk by an OSError that names `path`."""
    try:
        yield
    # safetensors raises an error of its own, which is a plain Exception, and torch a RuntimeError.
    except Exception as error:
        named = NUMBER.search(str(error))
        number = getattr(error, "errno", None)
        if named:
            number = int(named[1] or named[2])
        if number in NO_ROOM or any(text in str(error) for text in NO_REASON):
            raise OSError(
                f"there is no room to write {path}; make room and give the same command again. Nothing incomplete has "
                "that name."
            ) from error
        if named or "strerror: " in str(error):
            raise OSError(f"{path} cannot be written: {error}") from error
        raise


def move_into_place(written: Path, path: Path) -> None:
    """Renames a file or folder once its content is on the disk, so a power cut leaves no damaged file."""
    sync(written)
    written.replace(path)
    _sync_folder(path.parent)


def sync(path: Path) -> None:
    """Flushes a file, or a folder with its content, to the disk; files of safetensors get the usual mode."""
    if path.is_dir():
        for content in path.rglob("*"):
            _sync_one(content)
    _sync_one(path)


def _sync_one(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    if path.is_dir():
        _sync_folder(path)
    elif path.is_file():
        if not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600:
            # Some mounted file systems have no modes; there the file stays as safetensors made it, and is complete.
            with suppress(OSError):
                path.chmod(0o666 & ~MASK)
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Flushes the names in a folder to the disk."""
    # Some systems cannot open or sync a folder; after a power cut a new name may be missing there, never half written.
    with suppress(OSError):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def leftover(path: Path) -> Iterator[None]:
    """Warns if the block cannot remove `path`, which is left over after a complete output or an error."""
    try:
        yield
    except OSError as error:
        logger.warning("%s is not needed any more, and cannot be removed: %s", path, error)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
