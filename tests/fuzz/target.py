"""What a target is, and how one of its inputs is changed, opened and judged."""

import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .mutators import Files, mutate
from .mutators.dice import Dice
from .outcomes import BROKEN, DEFECT, EXACT, MAX_BYTES, MAX_SECONDS, Outcome, judge
from .workers import forget_peak, status

INPUT = "input"
VALID = -1  # the number of the unchanged input


@dataclass(frozen=True)
class Target:
    """One way to open one kind of input.

    Attributes:
        name: of the target.
        files: a valid input.
        run: opens the input in the current folder's `input`, and raises `Wrong` if the result is not what the files
            say. It may write `out*` in the current folder.
        changeable: names of the files that mutators may change; none for all.
        rewrite: a mutator of its own, for changes that concern several files at once.
        keeps_input: whether opening must leave the input as it is.
    """

    name: str
    files: Files
    run: Callable[[Files], None]
    changeable: tuple[str, ...] = ()
    rewrite: Callable[[Files, Dice], Files] | None = None
    keeps_input: bool = True


def changed_input(target: Target, seed: str, index: int) -> tuple[Files, Dice]:
    """The files of an input, and the dice that changed them."""
    dice = Dice(f"{seed}:{target.name}:{index}")
    if index == VALID:
        return target.files, dice
    if target.rewrite is not None and dice.random() < 0.3:
        return target.rewrite(dict(target.files), dice), dice
    return mutate(target.files, dice, target.changeable), dice


def run_input(target: Target, seed: str, index: int, folder: Path, *, is_explained: bool = False) -> Outcome:
    """Changes, writes, opens and judges one input, in a folder of its own that is removed.

    Args:
        target: the target.
        seed: of the run.
        index: the input's number.
        folder: where to make that folder.
        is_explained: whether the outcome of a defect carries the whole traceback.
    """
    try:
        files, dice = changed_input(target, seed, index)
    except Exception:  # whatever it is, the fuzzer is to blame
        return Outcome(target.name, index, BROKEN, "the mutator failed", traceback.format_exc()[-2000:])
    return run_files(target, index, files, folder, ": ".join(dice.notes)[:300], is_explained=is_explained)


def run_files(
    target: Target, index: int, files: Files, folder: Path, notes: str, *, is_explained: bool = False
) -> Outcome:
    """Writes, opens and judges files; arguments are those of `run_input`."""
    work = folder / f"{target.name}-{index}"
    try:
        write_files(work / INPUT, files)
    except (OSError, ValueError):
        shutil.rmtree(work, ignore_errors=True)
        return Outcome(target.name, index, BROKEN, "the input cannot be written", traceback.format_exc()[-2000:], notes)
    (work / "tmp").mkdir()
    tempfile.tempdir, old = str(work / "tmp"), os.getcwd()
    os.chdir(work)
    before, began = forget_peak(), time.process_time()
    try:
        kind, where, detail = opened(target, files, is_explained)
        seconds, used = time.process_time() - began, status("VmHWM") - before
        if kind != DEFECT:
            kind, where, detail = limits(seconds, used) or left_over(target, work, files, kind) or (kind, where, detail)
    finally:
        os.chdir(old)
        tempfile.tempdir = None
        shutil.rmtree(work, ignore_errors=True)
    return Outcome(target.name, index, kind, where, detail, notes, seconds, max(0, used))


def opened(target: Target, files: Files, is_explained: bool) -> tuple[str, str, str]:
    """Opens the input; what happened as `judge` tells it."""
    try:
        target.run(files)
    except BaseException as error:  # every error is a result
        kind, where, detail = judge(error, {*files, *target.files})
        return kind, where, traceback.format_exc() if is_explained and kind == DEFECT else detail
    return EXACT, "", ""


def limits(seconds: float, used: int) -> tuple[str, str, str] | None:
    """The defect of an input that took too much."""
    if seconds > MAX_SECONDS:
        return DEFECT, f"time: more than {MAX_SECONDS:.0f} s", f"{seconds:.1f} s"
    if used > MAX_BYTES:
        return DEFECT, f"memory: more than {MAX_BYTES >> 30} GiB", f"{used >> 20:,} MiB"
    return None


def left_over(target: Target, work: Path, files: Files, kind: str) -> tuple[str, str, str] | None:
    """The defect of an input that left something behind, or was changed."""
    legal = {INPUT, "tmp"} | ({"out", *target_outputs(work)} if kind == EXACT else set())
    left = sorted({path.name for path in work.iterdir()} - legal) + [f"tmp/{name}" for name in os.listdir(work / "tmp")]
    if left:
        return DEFECT, f"left behind after {kind}", ", ".join(left)[:300]
    if target.keeps_input and read_files(work / INPUT) != {name: data for name, data in files.items() if name}:
        return DEFECT, f"input changed after {kind}", ""
    return None


def target_outputs(work: Path) -> set[str]:
    """What a success may write."""
    return {path.name for path in work.glob("out.*") if not path.name.endswith(".partial")}


def write_files(folder: Path, files: Files) -> None:
    """Writes an input."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)


def read_files(folder: Path) -> Files:
    """Reads an input, files in folders included."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[name] = None
    return found
