"""The files of a folder of shards, and what differs from the way they were written. Imports no torch.

    _index/SHA256SUMS         checksums of the files without vectors, by their paths from `_index/`
    _job.json                 the job
    _index.jsonl              the shards, with a CRC-32C of each
    _index/part-00000.txt     the entry of a shard: digest of job and sentences, CRC-32C, size
    part-00000.parquet        the vectors

So `SHA256SUMS` vouches for the index, and the index for the shards. Folders of earlier versions have no `SHA256SUMS`;
there, entries and shards are compared with the index alone.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple, Self

import google_crc32c

from ..disk.checksums import SUMS, Comparison, parse_sums
from .stores import Folder

JOB, INDEX = "_job.json", "_index.jsonl"
ENTRIES = "_index/"
SHARD_SUMS = f"{ENTRIES}{SUMS}"
BLOCK = 1 << 22
ENTRY = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{8}) (0|[1-9][0-9]{0,17})\r?\n")  # \r on Windows


class Entry(NamedTuple):
    """What the entry of a shard records.

    Attributes:
        digest: of the job and of the sentences in the shard.
        checksum: the CRC-32C of the shard.
        size: of the shard in bytes.
    """

    digest: str
    checksum: str
    size: int

    @classmethod
    def read(cls, content: bytes) -> Self | None:
        """The entry in a file; None if it is damaged."""
        fields = ENTRY.fullmatch(content.decode(errors="replace"))
        if fields is None:
            return None
        digest, checksum, size = fields.groups()
        return cls(digest, checksum, int(size))

    @property
    def line(self) -> str:
        """The content of the file."""
        return f"{self.digest} {self.checksum} {self.size}\n"


def entry_name(number: int) -> str:
    """The name of the entry of a shard, by the shard's number."""
    return f"{ENTRIES}part-{number:05d}.txt"


def entry_of(shard: str) -> str:
    """The name of the entry of a shard, by the shard's name."""
    return f"{ENTRIES}{PurePosixPath(shard).stem}.txt"


def name_in_list(name: str) -> str:
    """A file's path from the folder of the list."""
    return name.removeprefix(ENTRIES) if name.startswith(ENTRIES) else f"../{name}"


def checksum_of(file: BinaryIO) -> str:
    """The CRC-32C of a file in hexadecimal."""
    checksum = google_crc32c.Checksum()
    while block := file.read(BLOCK):
        checksum.update(block)
    return checksum.hexdigest().decode()


def holds_shards(folder: Folder) -> bool:
    """Whether a folder has a file that `elmo-hf embed` writes, even if other files were lost."""
    return any(name in (JOB, INDEX) or name.startswith((ENTRIES, "part-")) for name in folder.sizes())


def compare_shards(folder: Folder) -> Comparison:
    """Compares the files of a folder of shards, on a disk or in a store, with its lists. Every byte is read.

    Errors are those of the store's library.
    """
    sizes = folder.sizes()
    comparison = Comparison()
    if INDEX not in sizes:
        comparison.faults.append(
            f"{INDEX}, which is written when all shards are there, is missing: the job is not finished, or the file "
            "was lost; the same command goes on"
        )
        return comparison
    if JOB not in sizes:
        comparison.faults.append(f"{JOB} is missing")
    shards = _shards_of(folder.read([INDEX])[0])
    if not shards:
        comparison.faults.append(f"{INDEX} is damaged or names no shard")
    entries = [entry_of(shard) for shard in shards]
    if SHARD_SUMS in sizes:
        _compare_small_files(folder, sizes, [JOB, INDEX, *entries], comparison)
    else:
        comparison.notes.append(
            f"There is no {SHARD_SUMS}, as of earlier versions: {JOB} and the documents in {INDEX} were not compared."
        )
    for shard, checksum in shards.items():
        if shard not in sizes:
            comparison.faults.append(f"{shard} is missing")
            continue
        comparison.count += 1
        with folder.open(shard) as file:
            if checksum_of(file) != checksum:
                comparison.faults.append(f"{shard} is changed")
    _compare_entries(folder, sizes, shards, comparison)
    names = {JOB, INDEX, SHARD_SUMS, *shards, *entries}
    suffixes = {PurePosixPath(shard).suffix for shard in shards}
    for name in sorted(sizes.keys() - names):
        if _is_read(name, suffixes):
            comparison.faults.append(f"{name} is not in {INDEX}")
    return comparison


def _shards_of(index: bytes) -> dict[str, str]:
    """The checksum of each shard by its name; empty if the index is damaged."""
    try:
        lines = [json.loads(line) for line in index.decode().splitlines()]
        return {str(line["shard"]): str(line["checksum"]) for line in lines}
    except (ValueError, KeyError, TypeError):
        return {}


def _compare_small_files(folder: Folder, sizes: Mapping[str, int], names: list[str], comparison: Comparison) -> None:
    """Compares the files without vectors with their list."""
    listed = parse_sums(folder.read([SHARD_SUMS])[0])
    there = [name for name in names if name in sizes]
    comparison.count += len(there)
    for name, content in zip(there, folder.read(there), strict=True):
        digest = listed.get(name_in_list(name))
        if digest is None:
            comparison.faults.append(f"{SHARD_SUMS} does not list {name}")
        elif digest != hashlib.sha256(content).hexdigest():
            comparison.faults.append(f"{name} is changed")


def _compare_entries(
    folder: Folder, sizes: Mapping[str, int], shards: Mapping[str, str], comparison: Comparison
) -> None:
    """Compares the entries of shards with the index and with the sizes of the shards."""
    for shard, checksum in shards.items():
        name = entry_of(shard)
        if name not in sizes:
            comparison.faults.append(f"{name} is missing")
            continue
        entry = Entry.read(folder.read([name])[0])
        is_of_shard = _is_entry_of(entry, checksum, sizes.get(shard))
        if not is_of_shard:
            comparison.faults.append(f"{name} is not the entry of {shard}")


def _is_entry_of(entry: Entry | None, checksum: str, size: int | None) -> bool:
    """Whether an entry is that of a shard; `size` is None if the shard is missing, which is a fault of its own."""
    if entry is None or entry.checksum != checksum:
        return False
    is_missing = size is None
    return is_missing or entry.size == size


def _is_read(name: str, suffixes: set[str]) -> bool:
    """Whether readers of the folder, or a later run, would take a file for a shard or an entry."""
    path = PurePosixPath(name)
    is_hidden = any(part.startswith(("_", ".")) for part in path.parts)
    return path.name.startswith("part-") or (path.suffix in suffixes and not is_hidden)
