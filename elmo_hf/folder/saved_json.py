"""Reads the JSON files of a saved folder, which may come from anyone: bounded, and every error names the file."""

import json
import os
from typing import Any

MOST_JSON_BYTES = 2**23
MOST_JSON_PARTS = 10**6
MOST_JSON_DEPTH = 50


def read_json(path: str | os.PathLike, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
    """Reads a file of at most `most_bytes` that holds one JSON object.

    Raises:
        OSError: if the file is not there or cannot be read.
        ValueError: naming the file, if it is too large, nested too deeply, not JSON or not an object.
    """
    size = os.path.getsize(path)
    if size > most_bytes:
        raise ValueError(f"{path} must have at most {most_bytes:,} bytes, found {size:,}.")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.count("{") + text.count("[") > MOST_JSON_PARTS:
            raise ValueError(f"more than {MOST_JSON_PARTS:,} lists and objects")
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError(f"expected one JSON object, found {type(content).__name__}")
        _check_depth(content)
    except RecursionError:
        raise ValueError(f"{path} is nested more than {MOST_JSON_DEPTH} deep.") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {str(error).rstrip('.')}.") from error
    return content


def _check_depth(content: dict[str, Any]) -> None:
    """Raises RecursionError if objects and lists are nested too deeply for those who walk through them."""
    level: list[Any] = [content]
    for _ in range(MOST_JSON_DEPTH):
        parts = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for each in parts for part in each if isinstance(part, (dict, list))]
    if level:
        raise RecursionError
