"""SHA-256 of files, folders and models."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .whole_files import move_into_place, sync

if TYPE_CHECKING:
    from torch import Tensor

# A folder's list of its files and their checksums, which `sha256sum -c` reads too.
SUMS = "SHA256SUMS"


@dataclass
class Comparison:
    """The result of comparing a folder's files with its lists of checksums."""

    count: int = 0  # the files that were compared
    faults: list[str] = field(default_factory=list)  # what differs, each a sentence without a full stop
    notes: list[str] = field(default_factory=list)  # sentences about what was not compared


def write_sums(folder: Path, patterns: Sequence[str] = ("*",)) -> None:
    """Flushes the files of a folder to the disk, then writes the list of them, which marks the folder as complete.

    Args:
        folder: the folder.
        patterns: the patterns of the names to list.
    """
    sync(folder)
    sums = sum_lines(_digests(folder, patterns))
    partial = folder / f".{SUMS}.partial"
    partial.write_text(sums, encoding="utf-8")
    move_into_place(partial, folder / SUMS)


def sums_agree(folder: Path) -> bool:
    """Whether a folder has exactly the files of its list, at least one, unchanged.

    A file that the disk cannot read counts as changed.

    Raises:
        PermissionError: if this user may not read the files, which says nothing about them.
    """
    try:
        listed = recorded_sums(folder)
        return len(listed) > 0 and listed == _digests(folder)
    except PermissionError:
        raise
    except OSError:
        return False


def recorded_sums(folder: Path) -> dict[str, str]:
    """The checksum of each file in the list of a folder, by the file's name; empty without a list."""
    try:
        content = (folder / SUMS).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    return parse_sums(content)


def parse_sums(content: bytes) -> dict[str, str]:
    """The checksums in a list, by the names of files; a line ends as on Linux or Windows."""
    digests = {}
    for line in content.decode(errors="replace").replace("\r\n", "\n").split("\n"):
        digest, _, name = line.partition("  ")
        if line:
            digests[name] = digest
    return digests


def sum_lines(digests: Mapping[str, str]) -> str:
    """The content of a list, from checksums by the names of files."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def files_below(folder: Path, patterns: Sequence[str] = ("*",)) -> dict[str, Path]:
    """The files in a folder and its folders whose names match, by their paths from the folder; without its list."""
    files = {}
    for pattern in patterns:
        for path in folder.rglob(pattern):
            if path.is_file() and path != folder / SUMS:
                files[path.relative_to(folder).as_posix()] = path
    return files


def _digests(folder: Path, patterns: Sequence[str] = ("*",)) -> dict[str, str]:
    return {name: sha256_of_file(path) for name, path in files_below(folder, patterns).items()}


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
    names, _ = tensor.__tensor_flatten__()
    for name in names:
        yield from _plain_parts(getattr(tensor, name))
