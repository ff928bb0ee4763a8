"""Mutants: planted mistakes, each with the tests that must see it.

A room's mutants are in `ROOM.toml`:

    [[mutant]]
    id = "forget-bias"                                  unique
    mistake = "the forget gate lacks its bias"
    file = "elmo_hf/model/layers_elmo.py"
    old = "(forget_gate + self.forget_bias)"            occurs once in the file
    new = "forget_gate"
    tests = ["tests/model/test_golden.py::test_..."]    all are run; one that fails kills the mutant
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
    files = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}
    return [
        Mutant(room, **row | {"tests": tuple(row["tests"])}) for room, file in files.items() for row in file["mutant"]
    ]
