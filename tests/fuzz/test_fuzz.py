"""A few hundred damaged inputs over all formats and folders; and that a crash, a hang or a flood is a result.

The inputs are those of `python -m tests.fuzz --seed pytest`.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from . import workers
from .campaign import chosen, deal, prepared, run_batches
from .outcomes import DEFECT, EXACT, REFUSED, Outcome, Refusal, Wrong, judge
from .report import defect_lines
from .workers import run_all

COUNT, SEED = 200, "pytest"
# Training takes seconds; `python -m tests.fuzz` has it.
TARGETS = [name for name in chosen([]) if name != "pretrain"]


def test_damaged_inputs_are_refused_clearly_or_read_exactly() -> None:
    with prepared(TARGETS) as (targets, outcomes):
        outcomes += run_batches(targets, deal(TARGETS, COUNT), SEED, num_workers=1)
    assert {outcome.target for outcome in outcomes} == set(TARGETS)
    lines = defect_lines(outcomes, SEED)
    assert lines == [], "\n" + "\n".join(lines)


def misbehave(target: str, index: int) -> Outcome:
    """What an input may do to its worker."""
    if index == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if index == 3:
        os._exit(7)
    while index == 5:
        pass
    if index == 7:
        flood = bytearray(200 << 20)
        time.sleep(60 + len(flood))
    return Outcome(target, index, EXACT)


def test_an_input_that_ends_its_worker_is_a_defect_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.2)
    monkeypatch.setattr(workers, "MOST_BYTES", 100 << 20)
    outcomes = {outcome.index: outcome for outcome in run_all([("any", [*range(9)])], misbehave, 2)}
    assert {index: outcome.where for index, outcome in outcomes.items()} == {
        **dict.fromkeys(range(9), ""),
        1: "crash: signal SIGSEGV",
        3: "crash: exit code 7",
        5: "time: more than 0 s",
        7: "memory: more than 0 GiB",
    }
    assert {index for index, outcome in outcomes.items() if outcome.kind == DEFECT} == {1, 3, 5, 7}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("input/x.json: `size` must be a number, found 'a'."), REFUSED),
        (ValueError("must be a number"), DEFECT),
        (KeyError("`size`"), DEFECT),
        (Refusal("x.json is not JSON"), REFUSED),
        (Refusal("x.json is not JSON\nTraceback (most recent call last)"), DEFECT),
        (ValueError("x.json lacks:\n  a\n  b\nGive them."), REFUSED),
        (ValueError("x.json lacks a\nand b\nand c"), DEFECT),
        (ValueError("x.json holds \x1b[31m"), DEFECT),
        (ValueError("x.json holds " + "x" * 2000), DEFECT),
        (Wrong("other vectors"), DEFECT),
        (SystemExit(1), DEFECT),
    ],
)
def test_an_error_is_ours_if_its_kind_and_its_text_are(error: BaseException, kind: str) -> None:
    assert judge(error, ["x.json"])[0] == kind


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    with prepared(["allennlp"]) as (targets, _):
        runs = [[*run_batches(targets, [("allennlp", [0, 1, 2])], "any", 1)] for _ in range(2)]
    first, second = ([(each.kind, each.notes, each.detail) for each in run] for run in runs)
    assert first == second
