"""Files and folders that are written whole or not at all, by one process at a time.

While NAME is being written, two files or folders stand beside it:

    .NAME.lock       locked by the process that writes
    .NAME.partial    takes the name when it is complete and on the disk

The system drops a lock when its process ends, however that happens. So what is not locked was left by a process that
was killed; the next one that writes NAME, or finds it there, removes it.
"""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = "elmo-hf-"
# How the system says that there is no room: on the disk, in the user's share of it, in one file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# How safetensors and torch say it; torch gives no reason why it could not write.
NO_ROOM_TEXTS = (*(f"(os error {number})" for number in NO_ROOM), "PytorchStreamWriter failed", ". unexpected pos ")
# What the user keeps out of the mode of new files; it can only be read by setting it.
MASK = os.umask(0o077)
os.umask(MASK)


class NoRoomError(OSError):
    """A file cannot be written because the disk, or the user's share of it, is full."""


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Gives a temporary path to write to.

    The file takes the name `path`, also in place of an older file, when the block ends without an error. If another
    process is writing `path`, this one waits; the last one wins.

    Raises:
        FileNotFoundError: if there is no folder for the file.
        NoRoomError: if there is no room for the file.
    """
    check_folder_of(path)
    with only_writer(path, must_wait=True) as partial, named_if_full(path):
        yield partial
        publish(partial, path)


def check_new_file(path: Path) -> None:
    """Checks that a new file can be made.

    Raises:
        FileExistsError: if it exists.
        FileNotFoundError: if there is no folder for it.
    """
    refuse_existing(path, is_folder=False)
    check_folder_of(path)


def check_folder_of(path: Path) -> None:
    """Raises FileNotFoundError if there is no folder for a file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} in.")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Gives a temporary folder to fill.

    The folder takes the name `path` when the block ends without an error.

    Raises:
        BlockingIOError: if another process is writing `path`.
        FileExistsError: if `path` exists and is not an empty folder.
        NoRoomError: if there is no room for the folder.
    """
    refuse_existing(path)
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with workplace(path) as partial:
        yield partial
        refuse_existing(path)  # a process that ended after the first check and before the lock may have written it
        publish(partial, path)


@contextmanager
def workplace(path: Path) -> Iterator[Path]:
    """Gives a temporary folder beside `path`, for one process at a time; it is removed in the end.

    Raises:
        BlockingIOError: if another process is writing `path`.
        NoRoomError: if there is no room on the disk.
    """
    with only_writer(path) as partial, named_if_full(path):
        partial.mkdir()
        yield partial


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Gives a folder among the system's temporary files, which only its owner can read.

    Raises:
        NoRoomError: if there is no room on the disk.
    """
    _remove_temporary_leftovers()
    with workplace(Path(tempfile.gettempdir(), f"{TEMPORARY}{secrets.token_hex(8)}")) as folder:
        folder.chmod(0o700)
        yield folder


def refuse_existing(path: Path, is_folder: bool = True) -> None:
    """Checks that a folder or file can be made; removes what killed processes left beside one that is there.

    Raises:
        FileExistsError: if `path` exists; a folder may take the place of an empty one.
    """
    if path.exists() and not (is_folder and path.is_dir() and not any(path.iterdir())):
        _remove_temporary_leftovers()
        _remove_leftover(path.resolve())
        raise FileExistsError(f"{path} exists already; remove it or choose another name. Nothing was written.")


def _remove_temporary_leftovers() -> None:
    for lock_file in Path(tempfile.gettempdir()).glob(f".{TEMPORARY}*.lock"):
        _remove_leftover(lock_file.with_name(lock_file.stem.removeprefix(".")))


def _remove_leftover(path: Path) -> None:
    """Removes what stands beside `path`, unless a living process is writing there; follows no links."""
    if _beside(path, "lock").exists() or _beside(path, "partial").exists():
        with suppress(OSError), only_writer(path):
            pass


@contextmanager
def only_writer(path: Path, must_wait: bool = False) -> Iterator[Path]:
    """Keeps other processes from writing `path`, and removes what a killed one left there.

    Args:
        path: the file or folder to be written.
        must_wait: whether to wait for another process instead of refusing.

    Yields:
        where to write it, a path beside it at which there is nothing yet and, in the end, nothing any more.

    Raises:
        BlockingIOError: if another process is writing.
    """
    from filelock import FileLock, Timeout

    lock_file, partial = _beside(path, "lock"), _beside(path, "partial")
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
        _remove(partial)
        # The name goes first: whoever opened the file in the meantime sees that it has none, and opens it again.
        lock_file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def named_if_full(path: Path) -> Iterator[None]:
    """Replaces what libraries raise on a full disk by an error that names `path` and the free space.

    If several such blocks are nested, the outermost one names its path.

    Raises:
        NoRoomError: if there is no room.
    """
    try:
        yield
    # safetensors raises an error of its own, which is a plain Exception.
    except Exception as error:
        is_no_room = isinstance(error, NoRoomError) or getattr(error, "errno", None) in NO_ROOM
        if not is_no_room and not any(text in str(error) for text in NO_ROOM_TEXTS):
            raise
        folder = next(folder for folder in path.absolute().parents if folder.is_dir())
        free = shutil.disk_usage(folder).free / 2**20
        raise NoRoomError(
            f"there is no room to write {path}: {free:,.0f} MiB are free in {folder}. Make room and give the same "
            "command again; nothing incomplete has that name."
        ) from error


def publish(written: Path, path: Path) -> None:
    """Gives a file or folder its name once its content is on the disk, so that a power cut leaves nothing damaged."""
    sync(written)
    written.replace(path)
    _sync_folder(path.parent)


def publish_last(written: Path, path: Path) -> None:
    """Gives a file its name, and removes the folder that it was written in with all that is left there."""
    publish(written, path)
    leftover = written.parent.replace(_beside(path, "partial"))  # if this is killed, a later run removes it
    shutil.rmtree(leftover)


def sync(path: Path) -> None:
    """Puts a file, or a folder with all that is in it, on the disk; files of safetensors get the mode of others."""
    for each in [*path.rglob("*"), path] if path.is_dir() else [path]:
        if each.is_dir():
            _sync_folder(each)
        elif each.is_file():
            if not each.is_symlink() and each.stat().st_mode & 0o777 == 0o600:
                with suppress(OSError):  # some mounts have no modes
                    each.chmod(0o666 & ~MASK)
            with each.open("rb") as content:
                os.fsync(content.fileno())


def _sync_folder(path: Path) -> None:
    """Puts the names in a folder on the disk; some systems cannot open or sync a folder."""
    with suppress(OSError):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _beside(path: Path, kind: str) -> Path:
    path = path.absolute()  # "." by itself has no name
    return path.with_name(f".{path.name}.{kind}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
