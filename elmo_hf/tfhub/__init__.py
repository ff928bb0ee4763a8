"""TF-Hub's `google/elmo` modules under their old interface: `Module` and `load`, and in `keras.py` the Keras layer."""

from .module import Module, load

__all__ = ["Module", "load"]
