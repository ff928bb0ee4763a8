"""Torch's files (`.pkl`, `.th`, `.pt`, `.pth`): tensors by name, or a matrix; torch reads them without running code.

torch.save writes a pickle that describes tensors, and their numbers. The newer form of such a file is a zip file, which
has checksums and can be mapped into memory.
"""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch import Tensor

from ..refusals import ConversionError, check_unpacked, listed, reading, require, shortened
from ..sources import open_zip

# What a pickled array of floats names, in NumPy 2 and 1; none of it runs code in the file.
NUMPY: list[Any] = [
    *(_reconstruct, (_reconstruct, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype),
    *(np.dtypes.Float32DType, np.dtypes.Float64DType),
]


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays, some of which may share memory; bfloat16, which NumPy lacks, becomes float32.
    """
    with reading(path):
        state = _load(path)
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


def read_matrix(path: Path) -> np.ndarray:
    """Reads a single array of NumPy or tensor of torch, in float64."""
    with reading(path), torch.serialization.safe_globals(NUMPY):
        loaded = _load(path)
        is_array = isinstance(loaded, Tensor | np.ndarray)
        require(is_array, path, "", "one matrix by torch.save, of NumPy or torch", type(loaded).__name__)
        check_unpacked(loaded.nbytes, path)
        return torch.as_tensor(loaded).double().numpy(force=True)


def _load(path: Path) -> Any:
    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        with open_zip(path) as archive:
            damaged = archive.testzip()
        require(damaged is None, path, damaged or "", "as its checksum says", "other bytes")
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # torch's own message recommends running the code in the file
        foreign = re.search(r"GLOBAL ([\w.]+)|but got (module)", str(error))
        found = f"one with {foreign[1] or foreign[2]}" if foreign else f"another one ({type(error).__name__})"
        expected = "a file of tensors by torch.save; other pickles can run code and are not read"
        to_weights = (
            "If it is a whole model that you trust, load it as its own code does, and save its weights alone: "
            "`torch.save(model.state_dict(), 'weights.pt')`."
        )
        advice = to_weights if foreign else "It may be damaged: get the file again."
        raise ConversionError(f"{path} must be {expected}, found {shortened(found)}. {advice}") from error
