"""Torch's files of weights (`.pkl`, `.th`, `.pt`): tensors by name, which torch reads without running code in the file.

torch.save writes a pickle that describes tensors, and their numbers; in its newer form as a zip file, which has
checksums and can be mapped into memory.
"""

import re
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import ConversionError, shortened
from ..limits import MAX_ARRAYS
from ..zips import open_zip


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays, some of which may share numbers; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        ConversionError: if the file is not a state dict of torch, is damaged, or holds anything but tensors.
    """
    try:
        is_zip = zipfile.is_zipfile(path)
        if is_zip:
            with open_zip(path) as archive:
                damaged = archive.testzip()
                if damaged is not None:
                    raise ValueError(f"{damaged} has another checksum")
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except ConversionError:
        raise
    except Exception as error:  # those of torch, pickle and zipfile share no class
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        found = f"it holds {foreign[1]}" if foreign else type(error).__name__
        raise ConversionError(
            f"{path} is not a state dict that torch.save wrote, or is damaged: {shortened(found)}. Other pickles can "
            "run code and are not read. Get the file again."
        ) from error
    if not isinstance(state, dict) or not state or not all(isinstance(name, str) for name in state):
        raise ConversionError(f"{path} must hold tensors by name, found {type(state).__name__}.")
    if len(state) > MAX_ARRAYS:
        raise ConversionError(f"{path} holds more than {MAX_ARRAYS:,} tensors.")
    return {name: _array(value, f"{path}: `{shortened(name)}`") for name, value in state.items()}


def _array(value: object, where: str) -> np.ndarray:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_complex():
        raise ConversionError(f"{where} must be a dense tensor of real numbers, found {type(value).__name__}.")
    # Strides of 0 let a tensor of any size repeat a few stored numbers.
    if value.nbytes > value.untyped_storage().nbytes():
        raise ConversionError(f"{where} has shape {tuple(value.shape)}, more numbers than the file holds.")
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
