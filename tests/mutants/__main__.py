"""Plants every mutant and runs its tests: `python -m tests.mutants --room model` from the root of the repository.

It works on copies of the source tree, never on the tree itself. One process imports torch and its like once, and forks
for each mutant. Prints a table, and exits with 1 unless all tests pass without a mutant and each mutant is killed.
"""

import argparse
import compileall
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import NamedTuple

from . import ROOT, Mutant, mutants

COPIED = ("elmo_hf", "conversion", "model_cards", "tests", "benchmarks", "examples", "pyproject.toml")
LIBRARIES = ("torch", "transformers.trainer", "transformers.pipelines", "datasets", "pytest", "h5py", "pyarrow.parquet")
SECONDS = 300  # a mutant that hangs for so long is killed too
PASSED, FAILED = 0, 1  # exit codes of pytest; others mean that it could not run the tests
VERDICTS = {PASSED: "SURVIVED", FAILED: "killed", -signal.SIGALRM: "killed", None: "does not apply"}


class Job(NamedTuple):
    """Tests to run, with a mutant or without."""

    room: str
    tests: tuple[str, ...]
    mutant: Mutant | None = None


class End(NamedTuple):
    """How a job ended: the exit code, negative for a signal, None if the mutant does not apply."""

    code: int | None
    seconds: float = 0
    output: str = ""


def main() -> int:
    """Runs the mutants; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--room", action="append", help="the name of a .toml file; without it all")
    parser.add_argument("--only", action="append", metavar="ID")
    parser.add_argument("-n", type=int, default=2, help="how many at once")
    given = parser.parse_args()
    chosen = [each for each in mutants() if each.room in (given.room or [each.room])]
    chosen = [each for each in chosen if each.id in (given.only or [each.id])]
    if not chosen:
        parser.error("there is no such mutant.")
    rooms, counts = {each.room for each in chosen}, {each.room: Counter[str]() for each in chosen}
    tests = {room: sorted({test for each in chosen if each.room == room for test in each.tests}) for room in rooms}
    with tempfile.TemporaryDirectory(prefix="elmo-hf-mutants-") as root:
        folders = prepare(Path(root).resolve(), given.n)
        for job, end in run([Job(room, tuple(named)) for room, named in tests.items()], folders):
            if end.code != PASSED or " skipped" in end.output:
                print(f"{job.room}: all tests must run and pass without a mutant.\n{end.output[-5000:]}")  # noqa: T201
                rooms.remove(job.room)
        for job, end in run([Job(each.room, each.tests, each) for each in chosen if each.room in rooms], folders):
            assert job.mutant is not None
            verdict = VERDICTS.get(end.code, f"ENDED WITH {end.code}")
            counts[job.room][verdict] += 1
            print(f"{verdict:15}{end.seconds:5.1f} s  {job.mutant.id}: {job.mutant.mistake}", flush=True)  # noqa: T201
    for room, count in counts.items():
        print(f"{room:18}", *(f"{name}: {number}" for name, number in sorted(count.items())))  # noqa: T201
    killed = sum(count["killed"] for count in counts.values())
    print(f"{killed} of {len(chosen)} killed")  # noqa: T201
    return int(killed < len(chosen))


def prepare(root: Path, number: int) -> list[Path]:
    """Copies the source tree, and makes this process one that has all libraries and nothing of the package."""
    whole = root / "tree"
    whole.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, whole / name)
    # Bytecode by content: a mutant may have the size of what it replaces, and be planted in the same second.
    compileall.compile_dir(whole, quiet=2, force=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    folders = [shutil.copytree(whole, root / f"tree-{index}") for index in range(number)]
    os.environ |= {"HF_HOME": f"{root}/hub", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(root)}
    sys.dont_write_bytecode, tempfile.tempdir = True, str(root)
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT]
    for name in LIBRARIES:
        importlib.import_module(name)
    return folders


def run(jobs: list[Job], folders: list[Path]) -> Iterator[tuple[Job, End]]:
    """Runs jobs, one in each folder at a time, and gives each when it has ended."""
    waiting, free = list(jobs), list(folders)
    running: dict[int, tuple[Job, Path, float]] = {}
    while waiting or running:
        if waiting and free:
            job, folder = waiting.pop(0), free.pop()
            if job.mutant is not None and not plant(job.mutant, folder):
                free.append(folder)
                yield job, End(None)
                continue
            pid = os.fork()
            if pid == 0:
                run_tests(folder, job.tests)
            running[pid] = job, folder, time.monotonic()
            continue
        pid, status = os.wait()
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what the tests started
        job, folder, begin = running.pop(pid)
        free.append(folder)
        if job.mutant is not None:
            shutil.copy(folder.with_name("tree") / job.mutant.file, folder / job.mutant.file)
        output = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
        yield job, End(os.waitstatus_to_exitcode(status), time.monotonic() - begin, output)


def plant(mutant: Mutant, folder: Path) -> bool:
    """Plants a mutant in a copy of the tree, unless what it replaces does not occur exactly once."""
    before, *after = (folder / mutant.file).read_text(encoding="utf-8").split(mutant.old)
    if len(after) == 1:
        (folder / mutant.file).write_text(before + mutant.new + after[0], encoding="utf-8")
    return len(after) == 1


def run_tests(folder: Path, tests: tuple[str, ...]) -> None:
    """Runs tests on a copy of the tree in this process, and ends it."""
    os.setsid()
    signal.alarm(SECONDS)
    with open(folder / "output.txt", "wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    pytest = importlib.import_module("pytest")
    code = pytest.main(["-qx", "--tb=short", "-pno:cacheprovider", f"--basetemp={folder}-temporary", *tests])
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
