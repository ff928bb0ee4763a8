"""TF-Hub's `google/elmo` modules under their old interface: `Module`, `load`, and `KerasLayer`, which needs Keras."""

from typing import Any

from .module import Module, load

__all__ = ["Module", "load"]


def __getattr__(name: str) -> Any:
    """Imports the Keras layer on first use."""
    if name != "KerasLayer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .keras import KerasLayer

    return KerasLayer
