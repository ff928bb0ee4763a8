"""Torch's files of weights (`.pkl`, `.th`, `.pt`): tensors by name, which torch reads without running code in the file.

torch.save writes a pickle that describes tensors, and their numbers; in its newer form as a zip file, which has
checksums and can be mapped into memory.
"""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..refusals import ConversionError, check_unpacked, reading, require, shortened
from ..sources import open_zip


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays, some of which may share numbers; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        ConversionError: if the file is not a state dict of torch, is damaged, or holds anything but tensors.
    """
    with reading(path):
        is_zip = zipfile.is_zipfile(path)
        if is_zip:
            with open_zip(path) as archive:
                damaged = archive.testzip()
            require(damaged is None, path, damaged or "", "as its checksum says", "other bytes")
        state = _load(path, is_zip)
        is_state = isinstance(state, dict) and all(isinstance(each, str) for each in state)
        require(is_state and len(state) > 0, path, "", "a state dict, tensors by name", type(state).__name__)
        for name, tensor in state.items():
            is_dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_quantized
            require(is_dense, path, name, "a dense tensor", type(tensor).__name__)
        # Strides of 0 let a tensor of any size repeat a few stored numbers.
        check_unpacked(sum(tensor.nbytes for tensor in state.values()), path)
        return {
            name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)
            for name, tensor in state.items()
        }


def _load(path: Path, is_zip: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # torch's text advises to run the code in the file
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        found = f"it holds {foreign[1]}" if foreign else type(error).__name__
        raise ConversionError(
            f"{path} is not a state dict that torch.save wrote, or is damaged: {shortened(found)}. Other pickles can "
            "run code and are not read. Get the file again."
        ) from error
