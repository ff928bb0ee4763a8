"""Reading the text files of a checkpoint: JSON and lists of words; and the names of files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmo_hf.disk import whole_files

from .errors import ConversionError
from .limits import MAX_DEPTH, MAX_FILES, MAX_JSON, MAX_LINE, MAX_TEXT, MAX_WORDS, at_most


def read_options(path: Path) -> dict[str, Any]:
    """Reads an options file.

    Raises:
        ConversionError: if it is missing, is not JSON, or lacks the object `lstm`.
    """
    if not path.is_file():
        raise ConversionError(f"there is no options file {path}.")
    options = read_json(path)
    if not isinstance(options, dict) or not isinstance(options.get("lstm"), dict):
        raise ConversionError(f"{path} must hold a JSON object with an object `lstm` in it, as ELMo's options do.")
    return options


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        ConversionError: if it is not JSON, has more than `MAX_JSON` bytes, or is nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(read_bytes(path, MAX_JSON).decode("utf-8"))
    except RecursionError:
        depth = MAX_DEPTH + 1
    except ValueError as error:
        raise ConversionError(f"{path} is not JSON: {error}.") from error
    else:
        depth = _depth(value)
    if depth > MAX_DEPTH:
        raise ConversionError(f"{path} has lists and objects in each other more than {MAX_DEPTH} deep; it is not read.")
    return value


def read_bytes(path: Path, limit: int) -> bytes:
    """Reads a small file.

    Raises:
        ConversionError: if it has more than `limit` bytes.
    """
    _check_size(path, limit)
    return path.read_bytes()


def check_lines(path: Path) -> None:
    """Checks a list of words as `read_lines` does; raises the same errors."""
    for _ in read_lines(path):
        pass


def read_lines(path: Path) -> Iterator[str]:
    """Reads a list of words in UTF-8, line by line; keeps all white space except the line feeds.

    Raises:
        ConversionError: if it is not UTF-8, has more than `MAX_TEXT` bytes or `MAX_WORDS` lines, or has a line of more
            than `MAX_LINE` bytes.
    """
    _check_size(path, MAX_TEXT)
    with path.open("rb") as file:
        lines = at_most(MAX_WORDS, iter(lambda: file.readline(MAX_LINE + 1), b""), str(path), "lines")
        for number, line in enumerate(lines, start=1):
            if len(line) > MAX_LINE:
                raise ConversionError(f"{path}, line {number} has more than {MAX_LINE:,} bytes, as no word has.")
            try:
                yield line.removesuffix(b"\n").decode("utf-8")
            except UnicodeDecodeError as error:
                raise ConversionError(f"{path}, line {number} is not UTF-8: {error}.") from error


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder, without those in folders inside it, by name.

    Raises:
        ConversionError: if there are more than `MAX_FILES` names, or one of them is not UTF-8.
    """
    paths = [path for path in at_most(MAX_FILES, folder.iterdir(), str(folder), "files") if path.is_file()]
    check_names(*paths)
    return {path.name: path for path in paths}


def check_names(*paths: Path) -> None:
    """Checks that the names of files can be printed and written into a model card.

    Raises:
        ConversionError: if one is not UTF-8.
    """
    for path in paths:
        whole = str(path.absolute())
        if not is_utf8(whole):
            raise ConversionError(f"the name {whole!r} is not UTF-8; give the file or folder another.")


def is_utf8(name: str) -> bool:
    """Whether the bytes of a file's name were UTF-8; Python keeps others as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def refuse_existing(path: Path) -> None:
    """Checks that a folder can be made.

    Raises:
        ConversionError: if `path` exists and is not an empty folder, or its name is not UTF-8.
    """
    check_names(path)
    try:
        whole_files.refuse_existing(path)
    except FileExistsError as error:
        raise ConversionError(str(error)) from error


def _check_size(path: Path, limit: int) -> None:
    size = path.stat().st_size
    if size > limit:
        raise ConversionError(f"{path} has {size:,} bytes; at most {limit:,} are read.")


def _depth(value: Any) -> int:
    """How many lists and objects are in each other; stops above `MAX_DEPTH`."""
    level, depth = [value], 0
    while depth <= MAX_DEPTH:
        level = [each for each in level if isinstance(each, (dict, list))]
        if not level:
            break
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth
