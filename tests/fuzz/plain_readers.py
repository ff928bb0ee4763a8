"""Reads the arrays of checkpoints with h5py, torch and Python's own modules, without this project."""

import io
import re
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import safetensors.numpy
import torch
from checkpoints import Arrays

from .mutators import Files

PlainReader = Callable[[Files], Arrays]
# Names that lead outside an archive, on some system.
HOSTILE = re.compile(r"^/|(^|/)\.\.(/|$)|\\|\0|^[A-Za-z]:")


def read_hdf5_plainly(files: Files) -> Arrays:
    """Every dataset of every hdf5 file."""
    arrays: Arrays = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu":
            arrays[name] = item[()]

    for name, content in files.items():
        if name.endswith((".hdf5", ".dump")) and content is not None:
            with h5py.File(io.BytesIO(content)) as file:
                file.visititems(keep)
    return arrays


def read_torch_plainly(files: Files) -> Arrays:
    """Every tensor of every state dict; names begin with the file's."""
    return {
        f"{name}:{key}": value.float().numpy(force=True)
        for name, content in sorted(files.items())
        if name.endswith((".th", ".pkl")) and content is not None
        for key, value in torch.load(io.BytesIO(content), weights_only=True).items()
        if isinstance(value, torch.Tensor)
    }


def read_safetensors_plainly(files: Files) -> Arrays:
    """Every tensor of every safetensors file."""
    arrays: Arrays = {}
    for name, content in files.items():
        if name.endswith(".safetensors") and content is not None:
            arrays |= safetensors.numpy.load(content)
    return arrays


def unpacked(read_plainly: PlainReader, name: str) -> PlainReader:
    """Reads the files in the archive `name`, by the last parts of their names."""

    def read(files: Files) -> Arrays:
        content = files[name] or b""
        inside: dict[str, bytes | None] = {}
        if content.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                inside = {member: archive.read(member) for member in archive.namelist()}
        else:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    inside[member.name] = file.read() if file else None
        hostile = [member for member in inside if HOSTILE.search(member)]
        if hostile:
            raise ValueError(f"{hostile[0]!r} is no name of a file inside")
        return read_plainly({member.rpartition("/")[2]: data for member, data in inside.items()})

    return read
