"""The choice between scans of a biLM layer with equal results: by default the fastest that can run.

    reference   `LSTMP.forward`, word by word, the equations
    packed      `scan_layer`, words only, all directions in step
    triton      `triton_scan.py`, on GPUs; elsewhere the same as packed

A layer with replaced modules always takes the reference, whichever path was requested.
"""

from contextlib import AbstractContextManager

from torch import Tensor

from ..model.scan_elmo import Kernels, using
from .processor_kernels import ProcessorKernels


class _Reference(Kernels):
    """Kernels that no layer can use, so every layer takes the reference."""

    def supports(self, weight: Tensor) -> bool:
        """False."""
        return False


PATHS: dict[str, Kernels] = {
    "reference": _Reference(),
    "packed": ProcessorKernels(faster_scans=()),
    "triton": ProcessorKernels(),
}


def scan_path(path: str) -> AbstractContextManager[None]:
    """Requests a path for the `with` block, in this thread; raises ValueError if it is not one of `PATHS`."""
    if path not in PATHS:
        raise ValueError(f"`path` must be one of {', '.join(PATHS)}, found {path!r}.")
    return using(PATHS[path])
