"""The folder of an unfinished run, `OUT.partial`: what it holds, and how much of it can be trusted.

    job.json              what the run computes: model, tokenizer, input, settings
    chunk-00000000.bin    the numbers of one window of sentences, in the order in which they were computed
    chunk-00000000.json   where each array of each sentence starts, its shape and type; digest of job and sentences

A power cut can leave a file whose content never reached the disk, and an input can change while it is read. So a file
gets its name after its content is on the disk, and every chunk carries checksums of its two files and the digest of
what it was computed from. A chunk that does not match is computed again. Numbers are read through the page cache, so
memory does not grow with the corpus.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from ..disk.whole_files import publish

logger = logging.getLogger(__name__)

BLOCK = 1 << 22


def digest_of(sentences: Iterable[str | list[str]]) -> str:
    """The SHA-256, in hexadecimal, of the sentences of a window."""
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update(json.dumps(sentence).encode() + b"\n")
    return digest.hexdigest()


def digest_with_job(job: dict[str, Any], digest: str) -> str:
    """The SHA-256, in hexadecimal, of a job and the digest of a window."""
    return hashlib.sha256((json.dumps(job) + digest).encode()).hexdigest()


def differing(job: dict[str, Any], recorded: dict[str, Any]) -> str:
    """Names what differs between a job and a record, for a message; empty if nothing does."""
    keys = [key for key in job if recorded.get(key) != job[key]]
    # Another way of splitting makes other sentences of the same input.
    return " and ".join(keys[:-1] if keys[:-1] and keys[-1] == "input" else keys)


class WorkingFolder:
    """`OUT.partial` of the job that it was opened for."""

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        """Names the folder; `job` is what every part of it must have been computed for."""
        self.path = path
        self._job = job

    def open(self, digests: list[str]) -> list[int]:
        """Makes the folder, or finds what an interrupted run left there.

        Args:
            digests: of all windows, as `digest_of` gives them.

        Returns:
            indices of the windows that are still to be computed.

        Raises:
            ValueError: if the folder is of another job.
        """
        self.path.mkdir(exist_ok=True)
        for file in self.path.glob("*.new-*"):
            file.unlink()
        path, job = self.path / "job.json", self._job | {"input": digest_of(digests)}
        recorded = _read_sealed(path) or job
        other = differing(job, recorded)
        if other:
            raise ValueError(
                f"{self.path} was left by an interrupted run with another {other}; delete that folder to start anew."
            )
        _write_sealed(path, job)
        return [index for index, digest in enumerate(digests) if self._facts(index, digest) is None]

    def is_open(self) -> bool:
        """Whether this process sees the folder of the job."""
        return (self.path / "job.json").exists()

    def write(self, index: int, digest: str, vectors: Iterable[tuple[int, dict[str, np.ndarray]]]) -> None:
        """Writes the vectors of a window, all or nothing; keeps none in memory.

        Args:
            index: of the window.
            digest: of the window.
            vectors: index and arrays of each sentence, in any order.
        """
        places: dict[int, dict[str, tuple]] = {}
        start, checksum = 0, google_crc32c.Checksum()
        numbers, facts = self._files(index)
        new = _new(numbers)
        try:
            with new.open("wb") as file:
                for sentence, arrays in vectors:
                    places[sentence] = {}
                    for name, array in arrays.items():
                        for block in _blocks(array):
                            file.write(block)
                            checksum.update(block)
                        places[sentence][name] = (start, str(array.dtype), array.shape)
                        start += array.nbytes
            publish(new, numbers)
        finally:
            new.unlink(missing_ok=True)
        of, crc = digest_with_job(self._job, digest), checksum.hexdigest().decode()
        _write_sealed(facts, {"of": of, "numbers": crc, "places": places})

    def read(self, index: int, digest: str) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Gives index and arrays of a window's sentences, in order.

        Raises:
            ValueError: if the chunk is damaged.
        """
        file, _ = self._files(index)
        facts = self._facts(index, digest)
        if facts is None:
            raise ValueError(f"{file} was damaged while the run went on; give the same command again.")
        # An empty file cannot be mapped.
        content = np.memmap(file, np.uint8, mode="c") if file.stat().st_size else np.empty(0, np.uint8)
        for sentence, places in sorted((int(sentence), places) for sentence, places in facts["places"].items()):
            yield sentence, {name: _array(content, *place) for name, place in places.items()}

    def _facts(self, index: int, digest: str) -> dict[str, Any] | None:
        """What is recorded of a window's chunk; None if the chunk is missing, or wrong, which is said."""
        numbers, facts_file = self._files(index)
        if not facts_file.exists():
            return None
        facts = _read_sealed(facts_file)
        if (
            facts
            and facts.get("of") == digest_with_job(self._job, digest)
            and numbers.is_file()
            and facts["numbers"] == checksum_of(numbers)
        ):
            return facts
        logger.warning("%s is damaged, or not of this input; it is computed again.", numbers)
        return None

    def _files(self, index: int) -> tuple[Path, Path]:
        return self.path / f"chunk-{index:08d}.bin", self.path / f"chunk-{index:08d}.json"


def seal(value: dict[str, Any]) -> bytes:
    """A JSON object, and above it a line with its checksum."""
    content = json.dumps(value).encode()
    return b"%08x\n" % google_crc32c.value(content) + content


def unseal(sealed: bytes) -> dict[str, Any] | None:
    """The object that `seal` took; None if it is damaged."""
    checksum, _, content = sealed.partition(b"\n")
    return json.loads(content) if checksum == b"%08x" % google_crc32c.value(content) else None


def _write_sealed(path: Path, value: dict[str, Any]) -> None:
    new = _new(path)
    new.write_bytes(seal(value))
    publish(new, path)


def _read_sealed(path: Path) -> dict[str, Any] | None:
    """The object that `_write_sealed` wrote; None if the file is missing or damaged."""
    return unseal(path.read_bytes()) if path.is_file() else None


def checksum_of(path: Path) -> str:
    """The CRC-32C of a file in hexadecimal."""
    checksum = google_crc32c.Checksum()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum.update(block)
    return checksum.hexdigest().decode()


def _blocks(array: np.ndarray) -> Iterator[bytes]:
    """The bytes of an array, a few at a time."""
    if array.flags.c_contiguous:
        content = array.reshape(-1).view(np.uint8)
        yield from (content[start : start + BLOCK].tobytes() for start in range(0, len(content), BLOCK))
    else:
        for part in array:
            yield from _blocks(part)


def _array(content: np.ndarray, start: int, dtype: str, shape: list[int]) -> np.ndarray:
    """An array of a chunk, read through the page cache when it is used."""
    return np.ndarray(shape, dtype, np.asarray(content), start)


def _new(path: Path) -> Path:
    """Where this process writes a file before it gets its name."""
    return path.with_name(f"{path.name}.new-{os.getpid()}")
