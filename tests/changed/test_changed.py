"""After an interruption and one change, the same command gives the undisturbed result or a refusal; a few cases."""

import random
import shutil
from pathlib import Path

import pytest
import torch

from elmo_hf.embedding.shards import JOINED, identity_of

from .cases import DEFECT, Change, Workshop, copy_case, difference, renew_marks, run_case, undo, with_option
from .changes import FILE_CHANGES, Target
from .surroundings import Surroundings
from .things import THINGS

SEED = "2018"
# Things that are made in a moment.
QUICK = ["shards hdf5", "shards in a store", "vectors", "vocab", "card", "push", "kept layers", "kept model"]
NUM_CASES = 4


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("changed"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="forks cannot use CUDA: set CUDA_VISIBLE_DEVICES=")
@pytest.mark.parametrize("number", range(NUM_CASES))
def test_after_one_change_the_same_command_gives_the_same_result_or_says_what_is_wrong(
    number: int, workshop: Workshop
) -> None:
    judgement = run_case(workshop, SEED, number, QUICK)
    assert judgement.kind != DEFECT, judgement


def folder_of(root: Path, **files: str) -> Path:
    """The folder of a case whose work has some files."""
    (root / "work" / "out").mkdir(parents=True)
    for name, text in files.items():
        (root / "work" / "out" / name).write_text(text)
    return root


def test_an_option_replaces_the_one_that_a_command_has() -> None:
    command = ["embed", "m", "--layers", "top", "--dry-run", "-o", "out"]
    assert with_option(command, "--layers mix") == ["embed", "m", "--layers", "mix", "--dry-run", "-o", "out"]
    assert with_option(command, "--dry-run") == command
    assert with_option(command, "--dtype float16") == [*command, "--dtype", "float16"]


def test_the_judge_names_what_differs_what_is_missing_and_what_is_left_over(tmp_path: Path) -> None:
    thing = THINGS["shards npz"]
    expected = folder_of(tmp_path / "expected", a="1", b="2")
    other, more, less = (tmp_path / name for name in ("other", "more", "less"))
    new = folder_of(more, a="1", b="2", c="3") / "work" / "out" / "c"
    assert difference(thing, folder_of(other, a="1", b="x"), expected, []).startswith("out/b differs")
    assert difference(thing, folder_of(less, a="1"), expected, []) == "out/b is missing"
    assert difference(thing, more, expected, []) == "out/c is left over"
    assert difference(thing, more, expected, [new]) == ""
    assert difference(thing, tmp_path / "none", expected, []) == "work/out is missing"


def test_in_a_copied_case_the_mark_of_joined_shards_names_the_copy_and_any_other_mark_stays(tmp_path: Path) -> None:
    work = tmp_path / "case" / "work"
    for name in ("out.npz", "other.npz"):
        (work / f"{name}.partial").mkdir(parents=True)
        (work / name).write_text(name)
        (work / f"{name}.partial" / JOINED).write_text(identity_of(work / "out.npz"))
    copy_case(tmp_path / "case", tmp_path / "copy")
    copied = tmp_path / "copy" / "work"
    assert (copied / "out.npz.partial" / JOINED).read_text() == identity_of(copied / "out.npz")
    assert (copied / "other.npz.partial" / JOINED).read_text() == identity_of(work / "out.npz")
    shutil.copy2(work / "out.npz", copied / "restored")
    (copied / "restored").rename(copied / "out.npz")
    renew_marks(tmp_path / "case", tmp_path / "copy")
    assert (copied / "out.npz.partial" / JOINED).read_text() == identity_of(copied / "out.npz")


@pytest.mark.parametrize("name", FILE_CHANGES)
def test_each_change_changes_something_and_can_be_undone(name: str, tmp_path: Path) -> None:
    before, folder = (folder_of(tmp_path / case, a1="text", b2="other") for case in ("before", "case"))
    twin = folder_of(tmp_path / "twin", a1="twin") / "work" / "out" / "a1"
    path = folder / "work" / "out" / "a1"
    dates = {inner.name: inner.stat().st_mtime for inner in path.parent.iterdir()}
    touched = FILE_CHANGES[name](Target(path, twin, twin, random.Random(1)))
    assert touched
    thing = THINGS["shards npz"]
    has_changed = difference(thing, folder, before, []) != ""
    are_dates = {inner.name: inner.stat().st_mtime for inner in path.parent.iterdir()} != dates
    assert has_changed or are_dates
    undo(Change(name, Surroundings.of(thing), path, touched, [], False), folder, before)
    assert difference(thing, folder, before, []) == ""
