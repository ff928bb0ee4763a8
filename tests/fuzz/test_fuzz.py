"""Two hundred damaged inputs over all formats and folders: those of `python -m tests.fuzz --seed pytest`."""

import pytest
import torch

from .__main__ import deal, defects, prepared
from .inputs import EXACT, REFUSED, run_all

SEED = "pytest"


@pytest.mark.skipif(torch.cuda.is_available(), reason="forks cannot use CUDA: set CUDA_VISIBLE_DEVICES=")
def test_damaged_inputs_are_refused_clearly_or_read_exactly() -> None:
    with prepared() as targets:
        outcomes = list(run_all(targets, deal(targets, 200), SEED, jobs=1))
    assert defects(outcomes, SEED) == [], "\n" + "\n".join(defects(outcomes, SEED))
    assert {outcome.target for outcome in outcomes} == set(targets)
    assert {outcome.kind for outcome in outcomes} == {EXACT, REFUSED}
