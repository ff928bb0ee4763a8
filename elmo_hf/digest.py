"""Fingerprints of files, for records of what was converted and what a run was for."""

import hashlib
from pathlib import Path


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
