"""Files that are written whole or not at all, and the SHA-256 of files and models."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def new_file(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """Gives a temporary path to write to.

    The file takes the name `path`, also in place of an older file, when the block ends without an error. It is removed
    when the block fails.

    Args:
        path: the final name.
        folder: where the temporary file is, in the same file system; None: beside `path`.

    Raises:
        FileNotFoundError: if there is no folder for the file.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} in.")
    partial = _partial(path if folder is None else folder / path.name)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Gives a temporary folder beside `path`, to fill.

    The folder takes the name `path` when the block ends without an error. It is removed when the block fails.

    Raises:
        FileExistsError: if `path` exists and is not an empty folder.
    """
    refuse_existing(path)
    path = path.resolve()
    partial = _partial(path)
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_existing(path: Path) -> None:
    """Checks that a folder can be made.

    Raises:
        FileExistsError: if `path` exists and is not an empty folder.
    """
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(f"{path} exists already; remove it or choose another place. Nothing was written.")


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_of_model(settings: str, weights: Iterable["Tensor"]) -> str:
    """The SHA-256, in hexadecimal, of a model's settings (any text) and weights."""
    import torch

    digest = hashlib.sha256(settings.encode())
    for tensor in weights:
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial-{os.getpid()}")
