"""The choice between equal ways to scan a biLM layer: by default the fastest that can run.

    reference   `LSTMP.forward`, word by word, the equations
    packed      `packed.py`, words only, all directions in step
    triton      `triton_scan.py`, on GPUs

If something replaced a layer's modules, the layer takes the reference whatever was requested.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import torch
from torch import nn

PATHS = ("reference", "packed", "triton")
_requested: ContextVar[str | None] = ContextVar("scan_path", default=None)


@contextmanager
def requesting(variable: ContextVar[str | None], name: str, value: str, known: tuple[str, ...]) -> Iterator[None]:
    """Sets a variable for the `with` block, in this thread; raises ValueError if the value is not a known one."""
    if value not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(known)}, found {value!r}.")
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def scan_path(path: str) -> AbstractContextManager[None]:
    """Requests a path for the `with` block, in this thread; raises ValueError if it is not one of `PATHS`."""
    return requesting(_requested, "path", path, PATHS)


@torch.compiler.assume_constant_result
def may_take(path: str) -> bool:
    """Whether no path but `path` is requested; a compiled graph keeps the answer it got.

    Under `torch.func` only the reference works.
    """
    return _requested.get() in (None, path) and not torch._C._are_functorch_transforms_active()


def is_hooked(module: nn.Module) -> bool:
    """Whether more than the module's own `forward` runs when it is called."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)  # accelerate sets `forward` on the instance
