"""Torch's files of weights (`.pkl`, `.th`, `.pt`): tensors by name, which torch reads without running code in the file.

torch.save writes a pickle that describes tensors, and their numbers. The newer form of such a file is a zip file, which
has checksums and can be mapped into memory.
"""

import re
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..refusals import ConversionError, check_unpacked, listed, reading, require, shortened
from ..sources import open_zip


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays, some of which may share memory; bfloat16, which NumPy lacks, becomes float32.

    Raises:
        ConversionError: if the file is not a state dict of torch, is damaged, or holds anything but tensors.
    """
    with reading(path):
        is_zip = zipfile.is_zipfile(path)
        if is_zip:
            with open_zip(path) as archive:
                damaged = archive.testzip()
            require(damaged is None, path, damaged or "", "as its checksum says", "other bytes")
        try:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        except Exception as error:  # torch's own message recommends running the code in the file
            foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
            found = f"one with {foreign[1]}" if foreign else f"another, or a damaged one ({type(error).__name__})"
            expected = "a file of tensors by torch.save; other pickles can run code and are not read"
            raise ConversionError(
                f"{path} must be {expected}, found {shortened(found)}. Get the file again."
            ) from error
        items = state.items() if isinstance(state, dict) else [("", state)]
        others = [
            f"`{name}` of {type(each).__name__}"
            for name, each in items
            if not isinstance(name, str) or not isinstance(each, Tensor)
        ]
        require(len(items) > 0 and not others, path, "", "a state dict, tensors by name", listed(others))
        # Strides of 0 let a tensor of any size repeat a few stored numbers.
        check_unpacked(sum(tensor.nbytes for _, tensor in items), path)
        return {
            name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)
            for name, tensor in items
        }
