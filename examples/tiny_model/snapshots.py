"""Reads files of git repositories at a fixed commit, from clones or bare git folders, without a work tree.

`git cat-file --batch` sends the contents. Repositories are untrusted: only regular files of a limited size are read,
nothing is checked out, no hook or filter runs, and git fetches nothing.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LARGEST_FILE = 16 * 2**20


@dataclass(frozen=True)
class Blob:
    """A file of a commit."""

    path: str
    name: str  # git's name of the contents
    size: int


def list_blobs(repository: Path, commit: str, pattern: str) -> list[Blob]:
    """The files whose whole path matches a regular expression and that are not too large, in the order of their paths.

    Raises:
        ValueError: if the folder is not a repository or lacks the commit, or if no path matches.
    """
    matches = re.compile(pattern).fullmatch
    listing = _git(repository, "ls-tree", "-r", "-z", "--long", commit)
    blobs = []
    for entry in listing.decode("utf-8", errors="replace").split("\0")[:-1]:
        fields, path = entry.split("\t", 1)
        mode, kind, name, size = fields.split()
        is_file = kind == "blob" and mode in ("100644", "100755")
        # A snapshot may lack some contents; git then gives no size.
        if is_file and size.isdecimal() and int(size) <= LARGEST_FILE and matches(path):
            blobs.append(Blob(path, name, int(size)))
    if not blobs:
        raise ValueError(f"{repository} at {commit} has no file whose path matches {pattern}")
    return sorted(blobs, key=lambda blob: blob.path)


def read_blobs(repository: Path, blobs: Iterable[Blob]) -> Iterator[tuple[Blob, bytes]]:
    """Reads the contents of files, one after the other."""
    command = [*_command(repository), "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for blob in blobs:
            process.stdin.write(f"{blob.name}\n".encode())
            process.stdin.flush()
            header = process.stdout.readline().split()
            if header[1:] != [b"blob", str(blob.size).encode()]:
                raise ValueError(f"{repository}: git cannot read {blob.path} ({header!r})")
            content = process.stdout.read(blob.size)
            process.stdout.read(1)
            yield blob, content
        process.stdin.close()


def _git(repository: Path, *arguments: str) -> bytes:
    result = subprocess.run([*_command(repository), *arguments], capture_output=True, env=_environment())
    if result.returncode:
        reason = result.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise ValueError(f"{repository}: git {arguments[0]} failed: {reason[-1] if reason else result.returncode}")
    return result.stdout


def _command(repository: Path) -> list[str]:
    return [
        "git",
        "-C",
        str(repository),
        "-c",
        f"safe.directory={repository.resolve()}",
        "-c",
        "core.hooksPath=/dev/null",
    ]


def _environment() -> dict[str, str]:
    return os.environ | {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
