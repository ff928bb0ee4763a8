"""Every mutant has its place in the code and its tests; `python -m tests.mutants` runs them."""

from functools import cache

from . import ROOT, Mutant, gone, mutants


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
    assert {each.id: fault for each in mutants() if (fault := _fault(each)) is not None} == {}


def test_every_mutant_has_an_id_of_its_own_and_those_that_are_gone_a_reason() -> None:
    ids = [each.id for each in mutants()] + [each["id"] for each in gone()]
    assert len(ids) == len(set(ids))
    assert all(each["mistake"] and each["reason"] for each in gone())
