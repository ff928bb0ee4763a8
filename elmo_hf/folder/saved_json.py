"""Reads the JSON files of a saved folder, which may come from anyone: bounded, and every error names the file."""

import json
import stat
from pathlib import Path
from typing import Any

MOST_JSON_BYTES = 2**23


def check_size(path: Path, most_bytes: int = MOST_JSON_BYTES) -> None:
    """Checks that something is a regular file of at most `most_bytes`, before it is opened.

    Raises:
        OSError: if it is not there.
        ValueError: naming the file.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
        raise ValueError(f"{path} must be a file of at most {most_bytes:,} bytes, found {found.st_size:,}.")


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """Reads a file of at most `most_bytes` that holds one JSON object.

    Raises:
        OSError: if the file is not there or cannot be read.
        ValueError: naming the file, if it is too large, not JSON or not an object.
    """
    check_size(path, most_bytes)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError(f"expected one JSON object, found {type(content).__name__}")
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {str(error).rstrip('.')}.") from error
    return content
