"""Cleaned documents of a source, one JSON line each; an interrupted run continues after the last whole line."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cleaning import clean
from duplicates import sketch_of
from snapshots import Blob, list_blobs, read_blobs
from sources import Source


@dataclass(frozen=True)
class Document:
    """A cleaned file."""

    path: str
    size: int  # bytes of the file
    error: str  # why it cannot be read, or nothing
    sketch: list[int]  # MinHash
    paragraphs: list[tuple[str, list[str]]]  # key, empty for a short one, and sentences


def write_documents(source: Source, repository: Path, output: Path) -> None:
    """Cleans the files of a source in an order that is arbitrary but fixed, and appends them to a file."""
    blobs = list_blobs(repository, source.commit, source.files)
    blobs.sort(key=lambda blob: hashlib.sha256(blob.path.encode("utf-8")).digest())
    done = _drop_partial_line(output)
    with output.open("a", encoding="utf-8") as file:
        for blob, content in read_blobs(repository, blobs[done:]):
            file.write(json.dumps(asdict(_clean(blob, content, source.form)), ensure_ascii=False) + "\n")


def read_documents(path: Path) -> Iterator[Document]:
    """Reads the documents of a file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield Document(**json.loads(line))


def _drop_partial_line(path: Path) -> int:
    """Cuts off what follows the last line break; counts the lines."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        end = lines = 0
        for line in file:
            if line.endswith(b"\n"):
                lines += 1
                end += len(line)
        file.truncate(end)
    return lines


def _clean(blob: Blob, content: bytes, form: str) -> Document:
    paragraphs, error = [], ""
    try:
        paragraphs = clean(content, form)
    except ValueError as problem:
        error = str(problem)
    words: list[str] = []
    for _, sentences in paragraphs:
        for sentence in sentences:
            words += sentence.split()
    return Document(blob.path, blob.size, error, sketch_of(words), paragraphs)
