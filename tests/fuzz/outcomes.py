"""What happened to one input, and whether an error is a clear one of ours.

A clear error is a `ConversionError`, a `ValueError` or an `OSError` itself, not a subclass that a library's own error
comes as, or what a command prints as `Error: ...`. Its text names one of the input's files, a field
in backticks, or a tensor; it is one line, except that a list of faults may follow, indented; a terminal can show it.
"""

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elmo_hf.conversion.refusals import ConversionError

REFUSED, EXACT, DEFECT, BROKEN = "refused", "exact", "defect", "broken"
OURS = (
    ConversionError,
    ValueError,
    OSError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
)
MAX_LINE, MAX_TEXT = 1_500, 6_000
MAX_SECONDS, MAX_BYTES = 20.0, 1 << 30
ROOT = Path(__file__).parents[2]
# Advice that must never be given, and confessions that the result is wrong.
FORBIDDEN = ("Traceback", "weights_only=False", "object at 0x", "please open an issue", "Please report", "above report")
# A field, a tensor, a file.
NAMED = re.compile(r"`[^`]+`|\w+\.\w+\.\w+|\w\.(json|safetensors|txt|hdf5)\b|\binput/\w")
MAX_DETAIL = 400
FUZZER = "tests/fuzz/"


class Refusal(Exception):
    """A command printed an error and ended with 1, or this text is all that is known of an error of ours."""


class Wrong(Exception):
    """The input was read, and the result is not what its files say."""


@dataclass(frozen=True)
class Outcome:
    """What happened to one input.

    Attributes:
        target: the target's name.
        index: the input's number.
        kind: REFUSED, EXACT, DEFECT, or BROKEN if the fuzzer itself failed.
        where: for defects, what kind of defect and where it arose: a class of equal ones.
        detail: the error's text.
        notes: what the mutators did.
        seconds: of processor time.
        bytes: peak of memory above what the worker had before.
    """

    target: str
    index: int
    kind: str
    where: str = ""
    detail: str = ""
    notes: str = ""
    seconds: float = 0.0
    bytes: int = 0


def judge(error: BaseException, names: Iterable[str]) -> tuple[str, str, str]:
    """Classes an error: its kind, where it arose, and its text.

    Args:
        error: what opening an input raised.
        names: of the input's files.
    """
    text = str(error)
    if isinstance(error, Wrong):
        return DEFECT, f"wrong result: {re.sub(r'[0-9]+', 'N', text)[:60]}", text[:MAX_DETAIL]
    place = place_of(error)
    if place.startswith(FUZZER) and not isinstance(error, Refusal):
        return BROKEN, f"{type(error).__name__} at {place}", text[:MAX_DETAIL]
    if type(error) not in (*OURS, Refusal):
        return DEFECT, f"{type(error).__name__} at {place}", text[:MAX_DETAIL]
    fault = fault_of_text(text, names)
    # Of a command's error only the text is left.
    arose = re.sub(r"[0-9]+", "N", text)[:60] if isinstance(error, Refusal) else place
    return (DEFECT, f"{fault}: {arose}", text[:MAX_DETAIL]) if fault else (REFUSED, "", text[:MAX_DETAIL])


def fault_of_text(text: str, names: Iterable[str]) -> str:
    """What is wrong with a message, or nothing."""
    first, *others = text.split("\n")
    forbidden = [phrase for phrase in FORBIDDEN if phrase in text]
    if forbidden:
        return f"message says {forbidden[0]!r}"
    if any(not line.startswith("  ") for line in others[:-1]):
        return "message of several lines"
    if len(text) > MAX_TEXT or max(map(len, (first, *others))) > MAX_LINE:
        return "message too long"
    if not all(line.isprintable() for line in (first, *others)):
        return "message not printable"
    if not any(name in text for name in names) and not NAMED.search(text):
        return "message names no file and no field"
    return ""


def place_of(error: BaseException) -> str:
    """The innermost place of this project that an error went through, or else where it arose."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        (number, frame)
        for number, frame in enumerate(frames)
        if frame.filename.startswith((str(ROOT / "elmo_hf"), str(ROOT / "conversion")))
    ]
    if not ours:
        inner = frames[-1] if frames else None
        folder = FUZZER if inner and Path(inner.filename).is_relative_to(ROOT / FUZZER) else ""
        return f"{folder}{Path(inner.filename).name}:{inner.name}" if inner else "?"
    number, frame = ours[-1]
    behind = f" > {frames[-1].name}" if number + 1 < len(frames) else ""
    return f"{Path(frame.filename).relative_to(ROOT)}:{frame.name}{behind}"
