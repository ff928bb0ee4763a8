"""Mutants: planted mistakes, each with the tests that must see it.

A room's mutants are in `ROOM.toml`:

    [[mutant]]
    id = "forget-bias"                                  unique
    mistake = "the forget gate lacks its bias"
    file = "elmo_hf/model/lstmp.py"
    old = "(forget_gate + self.forget_bias)"            occurs once in the file
    new = "forget_gate"
    tests = ["tests/model/test_pieces.py::test_..."]    all are run; one that fails kills the mutant

    [[gone]]                                            the code with this mistake was deleted
    id = "..."
    mistake = "..."
    reason = "..."
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


class Mutant(NamedTuple):
    """One planted mistake."""

    room: str
    id: str
    mistake: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def mutants() -> list[Mutant]:
    """Those of all rooms."""
    rows = ((path.stem, row) for path in sorted(FOLDER.glob("*.toml")) for row in _read(path).get("mutant", ()))
    return [Mutant(room, **row | {"tests": tuple(row["tests"])}) for room, row in rows]


def gone() -> list[dict[str, str]]:
    """Mistakes whose code was deleted, with the reason."""
    return [row for path in sorted(FOLDER.glob("*.toml")) for row in _read(path).get("gone", ())]


def _read(path: Path) -> dict[str, list[dict]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
