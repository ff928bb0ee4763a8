"""Which of several equal ways a biLM layer is scanned: by itself the fastest that can be, or the one asked for.

    reference   `LSTMP.forward`, word by word, the equations
    packed      `bilm_scan.py`, words only, both directions in step
    triton      `triton_scan.py`, on GPUs

A path that a layer cannot take, because something was put in the place of its modules, is not taken when asked for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATHS = ("reference", "packed", "triton")
_asked_for: ContextVar[str | None] = ContextVar("scan_path", default=None)


@contextmanager
def scan_path(path: str) -> Iterator[None]:
    """Asks for one of `PATHS` while the `with` block lasts, in this thread.

    Raises:
        ValueError: if there is no such path.
    """
    if path not in PATHS:
        raise ValueError(f"`path` must be one of {', '.join(PATHS)}, found {path!r}.")
    token = _asked_for.set(path)
    try:
        yield
    finally:
        _asked_for.reset(token)


def may_take(path: str) -> bool:
    """Whether no other path than `path` is asked for."""
    return _asked_for.get() in (None, path)
