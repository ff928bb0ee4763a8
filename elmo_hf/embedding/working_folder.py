"""The folder of an unfinished run, `OUT.partial`: what it holds, and how much of it can be trusted.

    job.json              what the run computes: model, tokenizer, input, settings
    chunk-00000000.bin    the numbers of one window of sentences, in the order in which they were computed
    chunk-00000000.json   where each sentence's numbers start, their shape and type; digest of job and sentences

A power cut can leave a file whose content never reached the disk, and an input can change while it is read. So a file
gets its name after its content is on the disk, and every chunk carries checksums of its two files and the digest of
what it was computed from. A chunk that does not match is computed again. Numbers are read through the page cache, so
memory does not grow with the corpus.
"""

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from ..files import publish

logger = logging.getLogger(__name__)

BLOCK = 1 << 22


def digest_of(sentences: Iterable[str | list[str]]) -> str:
    """The SHA-256, in hexadecimal, of the sentences of a window."""
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update(json.dumps(sentence).encode() + b"\n")
    return digest.hexdigest()


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
        differing = [key for key in job if recorded.get(key) != job[key]]
        if differing:
            # Another way of splitting makes other sentences of the same input.
            other = " and ".join(differing[:-1] if differing[:-1] and differing[-1] == "input" else differing)
            raise ValueError(
                f"{self.path} was left by an interrupted run with another {other}; delete that folder to start anew."
            )
        _write_sealed(path, job)
        return [index for index, digest in enumerate(digests) if not self._is_whole(index, digest)]

    def is_open(self) -> bool:
        """Whether this process sees the folder of the job."""
        return (self.path / "job.json").exists()

    def write(self, index: int, digest: str, vectors: Iterable[tuple[int, np.ndarray]]) -> None:
        """Writes the vectors of a window, all or nothing; keeps none in memory.

        Args:
            index: of the window.
            digest: of the window.
            vectors: index and vectors of each sentence, in any order, of one dtype.
        """
        dtype, places, start, checksum = "float32", {}, 0, google_crc32c.Checksum()
        numbers, facts = self._files(index)
        new = _new(numbers)
        try:
            with new.open("wb") as file:
                for sentence, array in vectors:
                    content = array.tobytes()
                    file.write(content)
                    checksum.update(content)
                    dtype, places[sentence] = str(array.dtype), (start, array.shape)
                    start += array.size
            publish(new, numbers)
        finally:
            new.unlink(missing_ok=True)
        of, crc = self._job_and(digest), checksum.hexdigest().decode()
        _write_sealed(facts, {"of": of, "numbers": crc, "dtype": dtype, "places": places})

    def read(self, index: int, digest: str) -> Iterator[tuple[int, np.ndarray]]:
        """Gives index and vectors of a window's sentences, in order.

        Raises:
            ValueError: if the chunk is damaged.
        """
        file, _ = self._files(index)
        if not self._is_whole(index, digest):
            raise ValueError(f"{file} was damaged while the run went on; give the same command again.")
        facts = _read_sealed(self._files(index)[1])
        assert facts is not None
        # An empty file cannot be mapped.
        numbers = np.memmap(file, facts["dtype"], mode="r") if file.stat().st_size else np.empty(0, facts["dtype"])
        for sentence, (start, shape) in sorted((int(sentence), place) for sentence, place in facts["places"].items()):
            yield sentence, np.asarray(numbers[start : start + math.prod(shape)]).reshape(shape)

    def _is_whole(self, index: int, digest: str) -> bool:
        """Whether a window's chunk is there and right; says so if it is there and wrong."""
        numbers, facts_file = self._files(index)
        if not facts_file.exists():
            return False
        facts = _read_sealed(facts_file)
        if (
            facts
            and facts.get("of") == self._job_and(digest)
            and numbers.is_file()
            and facts["numbers"] == _checksum(numbers)
        ):
            return True
        logger.warning("%s is damaged, or not of this input; it is computed again.", numbers)
        return False

    def _job_and(self, digest: str) -> str:
        return hashlib.sha256((json.dumps(self._job) + digest).encode()).hexdigest()

    def _files(self, index: int) -> tuple[Path, Path]:
        return self.path / f"chunk-{index:08d}.bin", self.path / f"chunk-{index:08d}.json"


def _write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Writes a JSON object, and above it a line with its checksum."""
    content, new = json.dumps(value).encode(), _new(path)
    new.write_bytes(b"%08x\n" % google_crc32c.value(content) + content)
    publish(new, path)


def _read_sealed(path: Path) -> dict[str, Any] | None:
    """The object that `_write_sealed` wrote; None if the file is missing or damaged."""
    if not path.is_file():
        return None
    checksum, _, content = path.read_bytes().partition(b"\n")
    return json.loads(content) if checksum == b"%08x" % google_crc32c.value(content) else None


def _checksum(path: Path) -> str:
    """The CRC-32C of a file in hexadecimal."""
    checksum = google_crc32c.Checksum()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum.update(block)
    return checksum.hexdigest().decode()


def _new(path: Path) -> Path:
    """Where this process writes a file before it gets its name."""
    return path.with_name(f"{path.name}.new-{os.getpid()}")
