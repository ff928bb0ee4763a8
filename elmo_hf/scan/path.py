"""The choice between equal ways to scan a biLM layer: by default the fastest that can run.

    reference   `LSTMP.forward`, word by word, the equations
    packed      `packed.py`, words only, all directions in step
    triton      on GPUs, in the package `elmo_hf` alone; elsewhere the same as packed

If something replaced a layer's modules, the layer takes the reference whatever was requested.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

PATHS = ("reference", "packed", "triton")
_requested: ContextVar[str | None] = ContextVar("scan_path", default=None)


@contextmanager
def scan_path(path: str) -> Iterator[None]:
    """Requests a path for the `with` block, in this thread; raises ValueError if it is not one of `PATHS`."""
    if path not in PATHS:
        raise ValueError(f"`path` must be one of {', '.join(PATHS)}, found {path!r}.")
    token = _requested.set(path)
    try:
        yield
    finally:
        _requested.reset(token)


def may_take(path: str) -> bool:
    """Whether no path but `path` is requested; under `torch.func` only the reference works."""
    return _requested.get() in (None, path) and not torch._C._are_functorch_transforms_active()


def is_hooked(module: nn.Module) -> bool:
    """Whether more than the module's own `forward` runs when it is called."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)  # accelerate sets `forward` on the instance
