"""Every mutant has its place in the code and its tests; `python -m tests.mutants` runs them."""

from collections import Counter
from functools import cache

from . import ROOT, Mutant, mutants


@cache
def _text(file: str) -> str:
    path = ROOT / file
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _fault(mutant: Mutant) -> str | None:
    places = _text(mutant.file).count(mutant.old)
    if places != 1 or mutant.old == mutant.new:
        return f"what it replaces occurs {places} times in {mutant.file}"
    for test in mutant.tests:
        file, _, name = test.partition("[")[0].partition("::")
        if f"\ndef {name}(" not in _text(file):
            return f"there is no test {test}"
    return None if mutant.tests else "it names no test"


def test_every_mutant_occurs_once_and_names_tests_that_exist() -> None:
    assert max(Counter(each.id for each in mutants()).values()) == 1
    assert {each.id: fault for each in mutants() if (fault := _fault(each)) is not None} == {}
