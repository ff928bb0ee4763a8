"""Damaged inputs over all formats and folders: the first of `python -m tests.fuzz --seed pytest`."""

from pathlib import Path

import pytest
import torch

from .__main__ import deal, defects, prepared
from .inputs import EXACT, REFUSED, run_all
from .same_sentences import run

SEED = "pytest"


@pytest.mark.skipif(torch.cuda.is_available(), reason="forks cannot use CUDA: set CUDA_VISIBLE_DEVICES=")
@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_inputs_are_refused_clearly_or_read_exactly(count: int) -> None:
    with prepared() as targets:
        outcomes = list(run_all(targets, deal(targets, count), SEED, jobs=1))
    assert defects(outcomes, SEED) == [], "\n" + "\n".join(defects(outcomes, SEED))
    assert {outcome.target for outcome in outcomes} == set(targets)
    assert {outcome.kind for outcome in outcomes} == {EXACT, REFUSED}


def test_the_same_sentences_in_every_format_are_read_equal_or_refused(tmp_path: Path) -> None:
    kinds = {name: (kind, place) for name, kind, place in run(150, SEED, tmp_path)}
    assert {name: place for name, (kind, place) in kinds.items() if kind == "wrong"} == {}
    assert sum(kind == "equal" for kind, _ in kinds.values()) > 100
