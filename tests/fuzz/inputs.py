"""How one input is changed, opened in a forked process with limits on memory and time, and judged.

A clear error is a `ConversionError`, a `ValueError` or an `OSError` itself, not a subclass that a library's own error
comes as, or what a command prints as `Error: ...`. Its text names one of the input's files, a field in backticks, or a
tensor; it is one line, except that a list of faults may follow, indented; a terminal can show it.
"""

import faulthandler
import gc
import os
import pickle
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from archives import write_files

from elmo_hf.conversion.refusals import ConversionError

from .changes import Dice, Files, mutate

REFUSED, EXACT, DEFECT = "refused", "exact", "defect"
CLEAR = (
    ConversionError,
    ValueError,
    OSError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
)
MOST_LINE, MOST_TEXT, MOST_DETAIL = 1_500, 6_000, 400
# Of processor time, of the clock, and of memory above what the process began with; of address space in case memory
# grows faster.
SECONDS, PATIENCE, BYTES, ADDRESSES = 20, 120, 1 << 30, 8 << 30
ROOT = Path(__file__).parents[2]
# Advice that must never be given, and confessions that the result is wrong.
FORBIDDEN = ("Traceback", "weights_only=False", "object at 0x", "please open an issue", "Please report", "above report")
# A field, a tensor, a file.
NAMED = re.compile(r"`[^`]+`|\w+\.\w+\.\w+|\w\.(json|safetensors|txt|hdf5)\b|\binput/\w")
INPUT = "input"


class Refusal(Exception):
    """A command printed this error and ended with 1."""


class Wrong(Exception):
    """The input was read, and the result is not what its files say."""


class Target(NamedTuple):
    """One way to open one kind of input.

    Attributes:
        files: a valid input.
        run: opens the input in the folder `input` of a folder, and raises `Wrong` if the result is not what the files
            say; a first call, with the valid input, teaches it what to expect. It may write `out*` in the folder.
        rewrite: a mutator of its own, for changes that concern several files at once.
    """

    files: Files
    run: Callable[[Path, Files], None]
    rewrite: Callable[[Files, Dice], Files] | None = None


class Outcome(NamedTuple):
    """What happened to the input `index` of a target.

    Attributes:
        kind: REFUSED, EXACT or DEFECT.
        where: for defects, what kind of defect and where it arose: a class of equal ones.
        detail: the error's text.
        notes: what the mutators did.
        seconds: of processor time.
        bytes: peak of memory above what the process began with.
    """

    target: str
    index: int
    kind: str
    where: str = ""
    detail: str = ""
    notes: str = ""
    seconds: float = 0.0
    bytes: int = 0


def run_all(targets: dict[str, Target], inputs: Iterable[tuple[str, int]], seed: str, jobs: int) -> Iterator[Outcome]:
    """Runs inputs, each the name of a target and a number, in `jobs` processes at once; gives outcomes as they come."""
    inputs, running = iter(inputs), dict[int, tuple[str, int, Path]]()
    gc.collect()
    gc.freeze()  # No garbage collection of a child visits, and so copies, what it shares.
    with tempfile.TemporaryDirectory(prefix="elmo-fuzz-") as root:
        try:
            while True:
                for name, index in islice(inputs, jobs - len(running)):
                    folder = Path(root, f"{name}-{index}")
                    pid = os.fork()
                    if pid == 0:
                        become(targets[name], name, seed, index, folder)
                    running[pid] = name, index, folder
                if not running:
                    break
                pid, status = os.wait()
                if pid in running:
                    name, index, folder = running.pop(pid)
                    shutil.rmtree(folder, ignore_errors=True)
                    if status == 0:
                        yield pickle.loads(folder.with_suffix(".outcome").read_bytes())
                    else:
                        yield Outcome(name, index, DEFECT, f"crash: ended with {os.waitstatus_to_exitcode(status)}")
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            gc.unfreeze()


def become(target: Target, name: str, seed: str, index: int, folder: Path) -> None:
    """Runs one input in this process, which ends; what it prints goes nowhere."""
    try:
        faulthandler.disable()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        pages = [int(number) for number in Path("/proc/self/statm").read_text(encoding="ascii").split()]
        addresses, before = (number * resource.getpagesize() for number in pages[:2])
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        outcome = run_input(target, name, seed, index, folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        outcome = outcome._replace(seconds=time.process_time(), bytes=max(0, peak - before))
        where = "time" if outcome.seconds > SECONDS else "memory" if outcome.bytes > BYTES else ""
        if where and outcome.kind != DEFECT:
            outcome = outcome._replace(kind=DEFECT, where=where)
        folder.with_suffix(".outcome").write_bytes(pickle.dumps(outcome))
        os._exit(0)
    finally:
        os._exit(99)


def changed_input(target: Target, name: str, seed: str, index: int) -> tuple[Files, Dice]:
    """The files of an input, and the dice that changed them."""
    dice = Dice(f"{seed}:{name}:{index}")
    if target.rewrite is not None and dice.random() < 0.3:
        return target.rewrite(dict(target.files), dice), dice
    return mutate(target.files, dice), dice


def run_input(target: Target, name: str, seed: str, index: int, folder: Path, whole: bool = False) -> Outcome:
    """Changes, writes, opens and judges one input in a new folder; `whole` for a defect's traceback in `detail`."""
    files, dice = changed_input(target, name, seed, index)
    write_files(folder / INPUT, files)
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder)
    kind, where, detail = EXACT, "", ""
    try:
        target.run(folder, files)
    except BaseException as error:  # every error is a result
        kind, where, detail = judge(error, {*files, *target.files})
        detail = traceback.format_exc() if whole and kind == DEFECT else detail
    if kind != DEFECT:
        where = left_over(folder, files, kind)
    return Outcome(name, index, DEFECT if where else kind, where, detail, ": ".join(dice.notes)[:300])


def judge(error: BaseException, names: Iterable[str]) -> tuple[str, str, str]:
    """Classes an error that opening an input, whose files have `names`, raised: its kind, its class, and its text."""
    text = str(error)
    general = re.sub(r"[0-9]+", "N", text)[:60]
    if isinstance(error, Wrong):
        return DEFECT, f"wrong result: {general}", text[:MOST_DETAIL]
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith((f"{ROOT}/elmo_hf/", f"{ROOT}/conversion/"))]
    frame = [*frames[-1:], *ours][-1]
    # Of a command's error only the text is left.
    place = general if isinstance(error, Refusal) else f"{os.path.relpath(frame.filename, ROOT)}:{frame.name}"
    if not isinstance(error, Refusal) and type(error) not in CLEAR:
        return DEFECT, f"{type(error).__name__} at {place}", text[:MOST_DETAIL]
    fault = fault_of(text, names)
    return (DEFECT, f"{fault}: {place}", text[:MOST_DETAIL]) if fault else (REFUSED, "", text[:MOST_DETAIL])


def fault_of(text: str, names: Iterable[str]) -> str:
    """What is wrong with a message, or nothing."""
    lines = text.split("\n")
    faults = {
        "message must never say this": any(phrase in text for phrase in FORBIDDEN),
        "message of several lines": any(not line.startswith("  ") for line in lines[1:-1]),
        "message too long": len(text) > MOST_TEXT or max(map(len, lines)) > MOST_LINE,
        "message not printable": not all(map(str.isprintable, lines)),
        "message names no file and no field": not any(map(text.__contains__, names)) and not NAMED.search(text),
    }
    return next((fault for fault, is_found in faults.items() if is_found), "")


def left_over(folder: Path, files: Files, kind: str) -> str:
    """The defect of an input that left something behind, or was changed."""
    partial = {path.name for path in folder.glob("out*.partial")}
    # A text refused at a later line leaves the finished part of its vectors in a folder, for the next run.
    out = {path.name for path in folder.glob("out*")} - partial if kind == EXACT else {"out.hdf5.partial"} & partial
    left = sorted({path.name for path in folder.iterdir()} - {INPUT, "tmp"} - out) + os.listdir(folder / "tmp")
    if left:
        return f"left behind after {kind}: {', '.join(left)[:300]}"
    return f"input changed after {kind}" if read_files(folder / INPUT) != files else ""


def read_files(folder: Path) -> Files:
    """Reads an input, files in folders included."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
