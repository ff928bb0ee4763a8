"""Files and folders that are written whole or not at all, by one process at a time; SHA-256 of files and models.

While NAME is being written, two files or folders stand beside it:

    .NAME.lock       locked by the process that writes, and says which one that is
    .NAME.partial    takes the name when it is complete and on the disk

The system drops a lock when its process ends, however that happens. So what is not locked was left by a process that
was killed; the next one that writes NAME, or finds it there, removes it.
"""

import errno
import hashlib
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TAKEN = "{} exists already; remove it or choose another place. Nothing was written."
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
    """Checks that a new file can be made; removes what a killed run left beside a complete one.

    Raises:
        FileExistsError: if it exists.
        FileNotFoundError: if there is no folder for it.
    """
    if path.exists():
        remove_leftovers(path)
        raise FileExistsError(f"{path} exists already; remove it or choose another name.")
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
        if _is_taken(path):  # by a process that ended after the first check and before the lock
            raise FileExistsError(TAKEN.format(path))
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
    """Gives a folder among the system's temporary files.

    Raises:
        NoRoomError: if there is no room on the disk.
    """
    _remove_temporary_leftovers()
    with workplace(Path(tempfile.gettempdir(), f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")) as folder:
        folder.chmod(0o700)
        yield folder


def refuse_existing(path: Path) -> None:
    """Checks that a folder can be made; removes what a killed process left beside one that is there.

    Raises:
        FileExistsError: if `path` exists and is not an empty folder.
    """
    if _is_taken(path):
        remove_leftovers(path)
        raise FileExistsError(TAKEN.format(path))


def remove_leftovers(path: Path) -> None:
    """Removes what killed processes left when they wrote `path`, and among the system's temporary files."""
    _remove_temporary_leftovers()
    _remove_unowned(path)


def _remove_temporary_leftovers() -> None:
    root = Path(tempfile.gettempdir())
    for lock_file in root.glob(f".{TEMPORARY}*.lock"):
        _remove_unowned(root / lock_file.name.removeprefix(".").removesuffix(".lock"))


def _remove_unowned(path: Path) -> None:
    """Removes what stands beside `path`, unless a living process is writing there."""
    path = path.resolve()
    if _lock(path).exists() or _partial(path).exists():
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
        BlockingIOError: if another process is writing; says which one.
    """
    from filelock import FileLock, Timeout

    lock_file = _lock(path)
    lock = FileLock(str(lock_file), timeout=-1 if must_wait else 0)
    try:
        lock.acquire()
    except Timeout as error:
        raise BlockingIOError(
            f"{path} is being written by {_owner(lock_file)}; wait until it ends, or choose another name."
        ) from error
    try:
        with suppress(OSError):  # On a full disk the lock holds without its text.
            lock_file.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        _remove(_partial(path))
        yield _partial(path)
    finally:
        _remove(_partial(path))
        # The name goes first: whoever opened the file in the meantime sees that it has none, and opens it again.
        lock_file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def named_if_full(path: Path) -> Iterator[None]:
    """Replaces what libraries raise on a full disk by an error that names `path` and the free space.

    Of several such blocks around each other, the outermost one names its path.

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
    _complete(written)
    written.replace(path)


def publish_last(written: Path, path: Path) -> None:
    """Gives a file its name, and removes the folder that it was written in with all that is left there.

    The folder first gets the name of what a killed process leaves, so that nobody takes it for unfinished work.
    """
    _complete(written)
    leftover = _partial(path)
    written.parent.replace(leftover)
    (leftover / written.name).replace(path)
    shutil.rmtree(leftover)


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_model(settings: str, weights: Iterable["Tensor"]) -> str:
    """The SHA-256, in hexadecimal, of a model's settings (any text) and weights."""
    import torch

    digest = hashlib.sha256(settings.encode())
    for weight in weights:
        for tensor in _plain_parts(weight):
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain_parts(tensor: Any) -> Iterator["Tensor"]:
    """The tensor itself, or those that torchao made a quantised one of."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from _plain_parts(getattr(tensor, name))


def _lock(path: Path) -> Path:
    path = path.absolute()  # "." by itself has no name
    return path.with_name(f".{path.name}.lock")


def _partial(path: Path) -> Path:
    path = path.absolute()
    return path.with_name(f".{path.name}.partial")


def _owner(lock_file: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return lock_file.read_text(encoding="utf-8") or "another process"
    return "another process"


def _is_taken(path: Path) -> bool:
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _complete(path: Path) -> None:
    """Puts the content of a file or folder on the disk; files of safetensors get the mode that others have."""
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        if file.is_file():
            if not file.is_symlink() and file.stat().st_mode & 0o777 == 0o600:
                with suppress(OSError):  # some mounts have no modes
                    file.chmod(0o666 & ~MASK)
            with file.open("rb") as content:
                os.fsync(content.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
