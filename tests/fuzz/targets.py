"""A target is a way to open one kind of input, with a valid input to change; `TARGETS` has all by name."""

from collections.abc import Callable
from pathlib import Path

from . import conversions, folders, runs, texts
from .target import Target

TARGETS: dict[str, Callable[[Path], Target]] = {
    **conversions.TARGETS,
    **folders.TARGETS,
    **texts.TARGETS,
    **runs.TARGETS,
}
# How often a target is drawn, if not once: those that take seconds are seldom.
SHARES = {"pretrain": 0.05, "partial": 0.5}
