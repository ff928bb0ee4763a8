"""Embedding whole files, and keeping what was computed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .embedder import Embedder

__all__ = ["Embedder"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # on its first use, because the command line starts without torch
        from .embedder import Embedder

        return Embedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
