"""The command line, `elmo-hf`."""

from .app import app, main

__all__ = ["app", "main"]
