"""Torch's files (`.pkl`, `.th`, `.pt`, `.pth`): tensors by name, or a matrix; torch reads them without running code.

torch.save writes a pickle that describes tensors, and their numbers. The newer form of such a file is a zip file, which
has checksums and can be mapped into memory. The pickle says where a tensor's numbers begin and how many there are, and
torch does not compare this with the file's members: of a member that is too short, it would take the bytes behind it.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch import Tensor

from ..refusals import ConversionError, check_unpacked, listed, naming_file, shortened
from ..sources import open_zip

# What a pickled array of floats names, in NumPy 2 and 1; none of it runs code in the file.
NUMPY: list[Any] = [
    _reconstruct,
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    np.dtypes.Float32DType,
    np.dtypes.Float64DType,
]


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a state dict by its name.

    Returns:
        arrays, some of which may share memory; bfloat16, which NumPy lacks, becomes float32.
    """
    with naming_file(path):
        state = _checked_state(_load(path), path)
        # Strides of 0 let a tensor of any size repeat a few stored numbers.
        check_unpacked(sum(tensor.nbytes for tensor in state.values()), path)
        _check_members(path, state.values())
        return {name: _numbers(tensor) for name, tensor in state.items()}


def read_matrix(path: Path) -> np.ndarray:
    """Reads a single array of NumPy or tensor of torch, in float64."""
    with naming_file(path), torch.serialization.safe_globals(NUMPY):
        matrix = _load(path)
        if not isinstance(matrix, Tensor | np.ndarray):
            raise ConversionError(
                f"{path} must hold one matrix saved by torch.save, of NumPy or torch, but holds an object of type "
                f"{shortened(type(matrix).__name__)}."
            )
        check_unpacked(matrix.nbytes, path)
        if isinstance(matrix, Tensor):
            _check_members(path, [matrix])
        return torch.as_tensor(matrix).double().numpy(force=True)


def _checked_state(state: Any, path: Path) -> dict[str, Tensor]:
    """What a file holds, if it is a state dict."""
    if not isinstance(state, dict):
        raise ConversionError(
            f"{path} must hold a state dict, tensors by name, but holds an object of type "
            f"{shortened(type(state).__name__)}. Save the weights of a model by "
            "`torch.save(model.state_dict(), 'weights.pt')`."
        )
    if not state:
        raise ConversionError(f"{path} must hold a state dict, tensors by name, but holds none. Get the file again.")
    others = []
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            others.append(f"`{name}` of type {type(value).__name__}")
    if others:
        raise ConversionError(
            f"{path} must hold a state dict, tensors by name, but also holds {listed(others)}. Save the weights alone, "
            "as one dict of tensors."
        )
    return state


def _numbers(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers; those of bfloat16, which NumPy lacks, become float32."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy(force=True)


def _load(path: Path) -> Any:
    """What torch.save wrote to a file, loaded without running code in it."""
    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        _check_zip(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # torch's own message recommends running the code in the file
        code = re.search(r"GLOBAL ([\w.]+)|but got (module)", str(error))
        if code is None:
            raise ConversionError(
                f"{path} must be a file of tensors by torch.save, but cannot be read as one ({type(error).__name__}); "
                "other pickles can run code and are not read. It may be damaged: get the file again."
            ) from error
        raise ConversionError(
            f"{path} must be a file of tensors by torch.save, but holds {shortened(code[1] or code[2])}; pickles with "
            "other things than tensors can run code and are not read. If it is a whole model that you trust, load it "
            "as its own code does, and save its weights alone: `torch.save(model.state_dict(), 'weights.pt')`."
        ) from error


def _check_zip(path: Path) -> None:
    """Checks the checksums of a zip file's members, and that they are stored as torch.save stores them."""
    with open_zip(path) as archive:
        damaged = archive.testzip()
        compressed = [member.filename for member in archive.filelist if member.compress_type != zipfile.ZIP_STORED]
    if damaged is not None:
        raise ConversionError(
            f"{path}: the bytes of `{shortened(damaged)}` do not fit their checksum. It is damaged: get it again."
        )
    if compressed:
        raise ConversionError(
            f"{path} must have members that are not compressed, as torch.save writes them, but {listed(compressed)} "
            "are. Save it again by torch.save."
        )


def _check_members(path: Path, tensors: Iterable[Tensor]) -> None:
    """Checks that a zip file has a member for the numbers of each tensor, with as many bytes as torch took."""
    if not zipfile.is_zipfile(path):  # the older form is read number by number
        return
    with zipfile.ZipFile(path) as archive:
        members = Counter(
            member.file_size for member in archive.filelist if PurePosixPath(member.filename).parent.name == "data"
        )
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    storages.pop(0, None)  # of tensors without numbers
    lacking = Counter(storages.values()) - members
    if lacking:
        raise ConversionError(
            f"{path} must have all numbers of its tensors, but has no member of {listed(sorted(lacking))} bytes for "
            "some of them. Get the file again."
        )
