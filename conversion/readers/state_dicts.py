"""Torch's files of weights (`.pkl`, `.th`, `.pt`), read without running any code in them.

A pickle can run code, so `torch.load(weights_only=True)` reads it and accepts only tensors and containers. That is safe
only for the two forms that torch itself writes: the older one, pickles after a magic number, and the newer one, a zip
file of uncompressed members. Any other form is refused before torch sees it. (Before 2.6 torch unpacked a third form,
tar, without that care.)
"""

import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import torch

from ..errors import ConversionError
from ..limits import refuse_bomb

# The magic number at the start of torch's older form, pickled in protocol 2.
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
ZIP_MAGIC = b"PK\x03\x04"
DIRECTORY_ATTRIBUTE = 0x10


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays on the CPU; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        ConversionError: if the file is not a state dict of torch, is damaged, or holds anything but tensors.
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
    except Exception as error:  # damaged bytes may raise any error
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
            # torch reads a member marked as a folder as nothing, and returns uninitialised memory.
            directories = [member.filename for member in members if member.external_attr & DIRECTORY_ATTRIBUTE]
            damaged = archive.testzip() or next(iter(directories), None)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        raise ConversionError(f"{path} is a damaged zip file, it may be truncated: {error}.") from error
    if damaged is not None:
        raise ConversionError(f"{path} is damaged: its member {damaged} is not what was written. Get it again.")


def _explain(path: Path, error: Exception) -> str:
    # torch's own message advises loading without this safety.
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
    # Strides of 0 let a tensor of any size repeat a few stored numbers.
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise ConversionError(f"{path}: `{name}` has shape {tuple(value.shape)}, more numbers than the file holds.")
    return (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
