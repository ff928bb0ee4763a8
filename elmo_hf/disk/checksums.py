"""SHA-256 of files, folders and models."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .whole_files import publish, sync

if TYPE_CHECKING:
    from torch import Tensor

# A folder's list of its files and their checksums, which `sha256sum -c` reads too.
SUMS = "SHA256SUMS"


def write_sums(folder: Path, pattern: str = "*") -> None:
    """Flushes the files of a folder to the disk, then writes the list of them, which marks the folder as complete.

    Args:
        folder: the folder.
        pattern: the pattern of the names to list.
    """
    sync(folder)
    sums = _sums(folder, pattern)
    partial = folder / f".{SUMS}.partial"
    partial.write_text(sums, encoding="utf-8")
    publish(partial, folder / SUMS)


def sums_agree(folder: Path) -> bool:
    """Whether a folder has exactly the files of its list, unchanged; a disk that cannot give their bytes has not.

    Raises:
        PermissionError: if this user may not read the files, which says nothing about them.
    """
    try:
        return (folder / SUMS).read_text(encoding="utf-8") == _sums(folder)
    except PermissionError:
        raise
    except (OSError, UnicodeDecodeError):
        return False


def changed_files(folder: Path) -> tuple[int, list[str]]:
    """How many files the list of a folder names, and which of them are missing or changed."""
    listed, found = recorded_sums(folder), _sums(folder).splitlines()
    return len(listed), [name for name, digest in listed.items() if f"{digest}  {name}" not in found]


def recorded_sums(folder: Path) -> dict[str, str]:
    """The checksum of each file in the list of a folder, by the file's name; empty without a list."""
    if not (folder / SUMS).is_file():
        return {}
    lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _sums(folder: Path, pattern: str = "*") -> str:
    files = sorted(path for path in folder.rglob(pattern) if path.is_file() and path != folder / SUMS)
    return "".join(f"{sha256_of_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


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
    """The tensor itself, or the parts of a tensor that torchao quantised."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from _plain_parts(getattr(tensor, name))
