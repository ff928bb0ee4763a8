"""Reads the JSON files of a folder from anyone, up to a size limit; every error names the file."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from ..text.escapes import printable

MOST_JSON_BYTES = 2**23
MOST_CHARACTERS = 1000
# How many files of a folder an error names.
MOST_NAMES = 3


def one_line(error: BaseException) -> str:
    """An error's text, printable, short and on one line; for a config that breaks a rule, only the rule."""
    if isinstance(error, StrictDataclassError) and error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        text = _of_missing_file(error)
    if isinstance(error, IsADirectoryError) and error.filename is not None:
        text = _of_folder(Path(os.fsdecode(error.filename)))
    text = printable(" ".join(text.split()) or type(error).__name__)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


def _of_missing_file(error: FileNotFoundError) -> str:
    """A sentence for the system's error about one path, of which the file or its folder is missing."""
    if error.filename2 is not None:  # about two paths, and the system does not say which is missing
        return str(error)
    path = Path(os.fsdecode(error.filename))
    if path.parent.is_dir():
        return f"there is no file or folder {path}."
    return f"there is no folder {path.parent}."


def _of_folder(folder: Path) -> str:
    """A sentence for the system's error about a folder in the place of a file, with the names of some of its files."""
    try:
        names = sorted(file.name for file in folder.iterdir() if file.is_file())
    except OSError:  # the user may not list the folder
        return f"expected a file, found {folder}, a folder."
    if not names:
        return f"expected a file, found {folder}, a folder that holds no files."
    shown = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        shown = f"{len(names):,} files, such as {shown}"
    return f"expected a file, found {folder}, a folder that holds {shown}; give one of its files."


@contextmanager
def naming(what: object) -> Iterator[None]:
    """Turns every error in a block that reads a stranger's file into a ValueError of one line: `what` and the error."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{what}: {one_line(error)}") from error


def check_size(path: Path, most_bytes: int = MOST_JSON_BYTES) -> None:
    """Checks that a path is a regular file of at most `most_bytes`, before it is opened.

    Raises:
        OSError: if the file is not there.
        ValueError: if it is something else; the message names the file.
    """
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise ValueError(f"{path} must be a file, found a folder.")
    if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
        raise ValueError(f"{path} must be a file of at most {most_bytes:,} bytes, found {status.st_size:,}.")


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """Reads a file of at most `most_bytes` that holds one JSON object.

    Raises:
        OSError: if the file is not there or cannot be read.
        ValueError: if it is too large, not JSON or not an object; the message names the file.
    """
    check_size(path, most_bytes)
    with naming(f"{path} is damaged"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError(f"expected one JSON object, found {type(content).__name__}")
    return content
