"""How one input is opened in a forked process with limits on memory and time, and judged.

A clear error is a `ConversionError`, a `ValueError` or an `OSError` itself, not a subclass that a library's own error
comes as, or what a command prints as `Error: ...`. Its text names one of the input's files, a field in backticks, or a
tensor; it is one line, except that a list of faults may follow, indented; a terminal can show it.
"""

import faulthandler
import gc
import multiprocessing
import os
import pickle
import re
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

from elmo_hf.conversion.refusals import ConversionError
from tests.helpers.archives import read_files, write_files

from .changes import Files, mutate
from .text_changes import Dice


class Refusal(Exception):
    """A command printed this error and ended with 1."""


class Wrong(Exception):
    """The input was read, and the result is not what its files say."""


REFUSED, EXACT, DEFECT = "refused", "exact", "defect"
SYSTEM_ERRORS = (OSError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
CLEAR = (ConversionError, Refusal, ValueError, *SYSTEM_ERRORS)
MOST_LINE, MOST_TEXT, MOST_DETAIL = 1_500, 6_000, 3_000
# Of processor time, of the clock, and of memory above what the process began with; of address space in case memory
# grows faster.
SECONDS, PATIENCE, BYTES, ADDRESSES = 20, 120, 1 << 30, 8 << 30
ROOT = Path(__file__).parents[2]
# Advice that must never be given, and confessions that the result is wrong.
FORBIDDEN = ("Traceback", "weights_only=False", "object at 0x", "please open an issue", "Please report", "above report")
# A field, a tensor, a file.
NAMED = re.compile(r"`[^`]+`|\w+\.\w+\.\w+|\w\.(json|safetensors|txt|hdf5)\b|\binput/\w")
INPUT = "input"


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

    def changed(self, dice: Dice) -> Files:
        """The files of the input that the dice decide."""
        if self.rewrite is not None and dice.random() < 0.3:
            with suppress(KeyError, OSError):  # of a change that this input cannot have
                return self.rewrite(dict(self.files), dice)
        return mutate(self.files, dice)


class Outcome(NamedTuple):
    """What happened to the input `index` of a target.

    Attributes:
        kind: REFUSED, EXACT or DEFECT.
        where: for defects, what kind of defect and where it arose: a class of equal ones.
        detail: for defects, the error's traceback.
        notes: what the mutators did.
    """

    target: str
    index: int
    kind: str
    where: str = ""
    detail: str = ""
    notes: str = ""


def run_all(targets: dict[str, Target], inputs: Iterable[tuple[str, int]], seed: str, jobs: int) -> Iterator[Outcome]:
    """Runs inputs, each the name of a target and a number, in `jobs` processes at once; gives outcomes as they come."""
    gc.collect()
    gc.freeze()  # No garbage collection of a child visits, and so copies, what it shares.
    with tempfile.TemporaryDirectory(prefix="elmo-fuzz-", ignore_cleanup_errors=True) as root, ThreadPool(jobs) as pool:
        yield from pool.imap_unordered(lambda key: run_apart(targets[key[0]], *key, seed, Path(root)), inputs)
    gc.unfreeze()


def run_apart(target: Target, name: str, index: int, seed: str, root: Path) -> Outcome:
    """Runs one input in a process of its own, so that a crash is a result."""
    folder = root / f"{name}-{index}"
    process = multiprocessing.get_context("fork").Process(target=run_limited, args=(target, name, index, seed, folder))
    process.start()
    process.join()
    shutil.rmtree(folder, ignore_errors=True)
    if process.exitcode == 0:
        return pickle.loads(folder.with_suffix(".outcome").read_bytes())  # `run_limited` made this pickle
    return Outcome(name, index, DEFECT, f"ended with {process.exitcode}")


def run_limited(target: Target, name: str, index: int, seed: str, folder: Path) -> None:
    """Runs one input in this process with limits; what it prints goes nowhere, its outcome into a file."""
    faulthandler.disable()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    addresses, before = (int(number) * resource.getpagesize() for number in pages[:2])
    resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    outcome = run_input(target, name, index, seed, folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if peak - before > BYTES and outcome.kind != DEFECT:
        outcome = outcome._replace(kind=DEFECT, where="memory")
    folder.with_suffix(".outcome").write_bytes(pickle.dumps(outcome))


def run_input(target: Target, name: str, index: int, seed: str, folder: Path) -> Outcome:
    """Changes, writes, opens and judges one input in a new folder."""
    dice = Dice(f"{seed}:{name}:{index}")
    files = target.changed(dice)
    write_files(folder / INPUT, files)
    print(f"{folder}: {', '.join(dice.notes)}", flush=True)  # noqa: T201  what follows may end this process
    (folder / "tmp").mkdir()
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder)
    kind, where, detail = EXACT, "", ""
    try:
        target.run(folder, files)
    except BaseException as error:  # every error is a result
        where, detail = defect_of(error, {*files, *target.files}), traceback.format_exc()[-MOST_DETAIL:]
        kind = REFUSED
    where = where or left_over(folder, files, kind)
    return Outcome(name, index, DEFECT if where else kind, where, detail, ": ".join(dice.notes)[:300])


def defect_of(error: BaseException, names: Iterable[str]) -> str:
    """The class of a defect, or nothing if an input whose files have `names` was refused clearly."""
    text = str(error)
    if isinstance(error, Wrong):
        fault = "wrong result"
    elif type(error) not in CLEAR:
        fault = type(error).__name__
    else:
        fault = fault_of(text, names)
    if isinstance(error, (Wrong, Refusal)):  # which have no place in the code
        place = re.sub(r"[0-9]+", "N", text)[:60]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith((f"{ROOT}/elmo_hf/", f"{ROOT}/conversion/"))]
        frame = [*frames, *ours][-1]
        place = f"{os.path.relpath(frame.filename, ROOT)}:{frame.name}"
    return f"{fault}: {place}" if fault else ""


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
