"""What the code of a saved folder leaves to the package, which a user may add."""

from importlib import import_module
from types import ModuleType

from .configuration_elmo import ELMO_HF


def part_of_package(name: str) -> ModuleType:
    """A module of the package by its name in there; raises ImportError where the package is not installed."""
    try:
        return import_module(f"elmo_hf.{name}")
    except ModuleNotFoundError as error:
        if error.name != "elmo_hf":
            raise
        raise ImportError(f"this needs {ELMO_HF}, which is not installed here.") from error
