"""One change of a file or a folder: what a copy, a restored backup, a synchronised folder or a user may do to it.

A change gets a `Target`, and returns the paths that it touched, or none where it makes no sense.
"""

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

YEAR = 365 * 86400.0


class Target(NamedTuple):
    """A file or folder, and what could stand in its place.

    Attributes:
        path: the file or folder.
        twin: its counterpart in the same work on other inputs, which need not exist.
        older: its counterpart at an earlier moment of the work, which need not exist.
        generator: decides all that is open.
    """

    path: Path
    twin: Path
    older: Path
    generator: random.Random


Change = Callable[[Target], list[Path]]


def remove(target: Target) -> list[Path]:
    """Removes a file or folder."""
    delete(target.path)
    return [target.path]


def truncate(target: Target) -> list[Path]:
    """Takes away the second half of a file, or all of it."""
    if target.path.is_dir() or target.path.stat().st_size == 0:
        return []
    size = target.generator.choice([0, target.path.stat().st_size // 2])
    os.truncate(target.path, size)
    return [target.path]


def flip(target: Target) -> list[Path]:
    """Changes one bit of a file."""
    if target.path.is_dir() or target.path.stat().st_size == 0:
        return []
    content = bytearray(target.path.read_bytes())
    content[target.generator.randrange(len(content))] ^= 1
    target.path.write_bytes(content)
    return [target.path]


def duplicate(target: Target) -> list[Path]:
    """Copies a file or folder to a name beside it."""
    path = free_name(target)
    copy(target.path, path)
    return [path]


def rename(target: Target) -> list[Path]:
    """Gives a file or folder another name."""
    path = free_name(target)
    target.path.rename(path)
    return [target.path, path]


def swap(target: Target) -> list[Path]:
    """Exchanges a file with another one of its kind in the same folder."""
    path = target.path
    others = [other for other in sorted(path.parent.glob(f"*{path.suffix}")) if other.is_file() and other != path]
    if path.is_dir() or not others:
        return []
    other = target.generator.choice(others)
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)
    return [path, other]


def put_twin(target: Target) -> list[Path]:
    """Puts what the same command made of, or read from, other inputs in its place."""
    return put(target.twin, target.path)


def put_older(target: Target) -> list[Path]:
    """Puts an earlier version in its place, with an old date."""
    touched = put(target.older, target.path)
    for path in touched:
        set_dates(path, time.time() - YEAR)
    return touched


def date(target: Target) -> list[Path]:
    """Makes everything look a year older, or a year newer than now, or gives it the same date, as some archives do."""
    seconds = target.generator.choice([time.time() - YEAR, time.time() + YEAR, 0.0])
    set_dates(target.path, seconds)
    return [target.path]


FILE_CHANGES: dict[str, Change] = {
    "remove": remove,
    "truncate": truncate,
    "flip a bit": flip,
    "duplicate": duplicate,
    "rename": rename,
    "swap": swap,
    "put a twin": put_twin,
    "put an older one": put_older,
    "date": date,
}


def set_dates(path: Path, seconds: float) -> None:
    """Gives a file, or a folder with its content, a date."""
    for inner in [*path.rglob("*"), path]:
        os.utime(inner, (seconds, seconds))


def put(source: Path, path: Path) -> list[Path]:
    """Replaces a file or folder by another one, if there is one and it differs."""
    if not source.exists() or source.is_dir() != path.is_dir():
        return []
    if source.is_file() and source.read_bytes() == path.read_bytes():
        return []
    delete(path)
    copy(source, path)
    return [path]


def free_name(target: Target) -> Path:
    """A name beside a file or folder: that of a copy, or its own with a number that is larger by seven."""
    path = target.path
    copied = path.with_name(f"{path.stem}-copy{path.suffix}")
    numbers = list(re.finditer(r"\d+", path.stem))
    if not numbers or target.generator.random() < 0.5:
        return copied
    last = numbers[-1]
    number = str(int(last[0]) + 7).zfill(len(last[0]))
    numbered = path.with_name(f"{path.stem[: last.start()]}{number}{path.stem[last.end() :]}{path.suffix}")
    return copied if numbered.exists() else numbered


def delete(path: Path) -> None:
    """Removes a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy(source: Path, path: Path) -> None:
    """Copies a file or folder with its dates."""
    if source.is_dir():
        shutil.copytree(source, path)
    else:
        shutil.copy2(source, path)
