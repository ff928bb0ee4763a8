"""Torch's files of weights (`.pkl`, `.th`, `.pt`), read without running any code in them.

A pickle can run code, so `torch.load(weights_only=True)` reads it, which knows tensors and containers only. That torch
is safe only for the two forms that it writes itself, so any other is refused before it comes there: the older one,
pickles after a magic number, and the newer one, a zip file of uncompressed members. (Before 2.6 torch unpacked files of
a third, tar, form without that care.)
"""

import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import torch

from ..errors import ConversionError
from ..limits import refuse_bomb

# The pickle, in protocol 2, of the number with which torch begins a file of its older form.
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
ZIP_MAGIC = b"PK\x03\x04"
DIRECTORY_ATTRIBUTE = 0x10


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays on the CPU; what NumPy has no type for (bfloat16) as float32.

    Raises:
        ConversionError: if the file is no state dict of torch, is damaged, or holds anything but tensors.
    """
    with path.open("rb") as file:
        magic = file.read(len(LEGACY_MAGIC))
    if magic.startswith(ZIP_MAGIC):
        _check_zip(path)
    elif magic != LEGACY_MAGIC:
        raise ConversionError(
            f"{path} is not a file that torch.save wrote: it begins with {magic[:4]!r}. (Other pickles can run code "
            "and are not read.)"
        )
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes raise whatever the code they reach raises
        raise ConversionError(_explain(path, error)) from error
    if not isinstance(state, dict) or not state or not all(isinstance(name, str) for name in state):
        raise ConversionError(f"{path} must hold tensors by name, found {type(state).__name__}.")
    return {name: _array(name, value, path) for name, value in state.items()}


def _check_zip(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            refuse_bomb(sum(member.file_size for member in members), path.stat().st_size, str(path))
            if any(member.filename.endswith("/constants.pkl") for member in members):
                raise ConversionError(f"{path} is a TorchScript program, which is code; give its state dict.")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ConversionError(f"{path} is a compressed zip file; torch.save writes uncompressed ones.")
            # torch reads such a member as nothing, and leaves what is in memory in its place.
            directories = [member.filename for member in members if member.external_attr & DIRECTORY_ATTRIBUTE]
            damaged = archive.testzip() or next(iter(directories), None)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        raise ConversionError(f"{path} is a damaged zip file, it may be truncated: {error}.") from error
    if damaged is not None:
        raise ConversionError(f"{path} is damaged: its member {damaged} is not what was written. Get it again.")


def _explain(path: Path, error: Exception) -> str:
    # The message itself advises to load without this safety.
    if isinstance(error, pickle.UnpicklingError):
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is not None:
            return f"{path} holds {found[1]}, which is not a tensor. A pickle can run code, so it is not read."
        reason = "it is no pickle of tensors alone"
    else:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
    return f"{path} cannot be read, it may be truncated: {reason}. Get it again."


def _array(name: str, value: object, path: Path) -> np.ndarray:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        raise ConversionError(f"{path}: `{name}` must be a dense tensor, found {type(value).__name__}.")
    # A tensor may say that it repeats a few stored numbers without end.
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise ConversionError(f"{path}: `{name}` has shape {tuple(value.shape)}, more numbers than the file holds.")
    return (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
