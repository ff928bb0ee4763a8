"""SHA-256 of files and models."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_model(settings: str, weights: Iterable["Tensor"]) -> str:
    """The SHA-256, in hexadecimal, of a model's settings (any text) and weights."""
    import torch

    digest = hashlib.sha256(settings.encode())
    for weight in weights:
        for tensor in _plain_parts(weight):
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain_parts(tensor: Any) -> Iterator["Tensor"]:
    """The tensor itself, or those that torchao made a quantised one of."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from _plain_parts(getattr(tensor, name))
