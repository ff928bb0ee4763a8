"""Fingerprints of files and models, for records of what was converted and what a run was for."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sha256_of_model(settings: str, weights: Iterable[Tensor]) -> str:
    """The SHA-256, in hexadecimal, of what tells models apart: a text of their settings, and their weights."""
    digest = hashlib.sha256(settings.encode())
    for tensor in weights:
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
