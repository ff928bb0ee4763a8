"""Fast scans of one biLM layer over a batch. They take and return tensors; the reference is `LSTMP.forward`.

Importing this package makes the kernels of this processor the default; a saved folder has `Kernels` instead.
"""

from .kernels import Kernels
from .processor_kernels import ProcessorKernels

Kernels.default = ProcessorKernels()
