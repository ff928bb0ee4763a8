"""Plants every mutant and runs its tests: `python -m tests.mutants --room model` from the root of the repository.

It works on copies of the source tree, never on the tree itself. One process imports torch and its like once, and forks
for each mutant. Prints a table, and exits with 1 unless all tests pass without a mutant and each mutant is killed.
"""

import argparse
import compileall
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import NamedTuple

from . import ROOT, Mutant, mutants

COPIED = ("elmo_hf", "conversion", "model_cards", "tests", "benchmarks", "examples", "pyproject.toml")
LIBRARIES = ("torch", "transformers.trainer", "transformers.pipelines", "datasets", "pytest", "h5py", "pyarrow.parquet")
SECONDS = 300  # a mutant that hangs for so long is killed too
DOES_NOT_APPLY = 77  # exit codes; those of pytest other than 0 and 1 mean that it could not run the tests
VERDICTS = {0: "SURVIVED", 1: "killed", -signal.SIGALRM: "killed", DOES_NOT_APPLY: "does not apply"}


class End(NamedTuple):
    """How the tests of a mutant ended: the exit code, negative for a signal."""

    mutant: Mutant
    code: int | None
    seconds: float
    output: str


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
    counts = {each.room: Counter[str]() for each in chosen}
    with tempfile.TemporaryDirectory(prefix="elmo-hf-mutants-") as root, ThreadPool(given.n) as pool:
        tree = prepare(Path(root).resolve())
        run = partial(run_apart, tree=tree)
        failed = set()
        for end in pool.imap_unordered(run, [no_mutant(room, chosen) for room in counts]):
            if end.code != 0 or " skipped" in end.output:
                print(f"{end.mutant.room}: all tests must run and pass without a mutant.\n{end.output[-5000:]}")  # noqa: T201
                failed.add(end.mutant.room)
        for end in pool.imap_unordered(run, [each for each in chosen if each.room not in failed]):
            verdict = VERDICTS.get(end.code, f"ENDED WITH {end.code}")
            counts[end.mutant.room][verdict] += 1
            print(f"{verdict:15}{end.seconds:5.1f} s  {end.mutant.id}: {end.mutant.mistake}", flush=True)  # noqa: T201
    for room, count in counts.items():
        print(f"{room:18}", *(f"{name}: {number}" for name, number in sorted(count.items())))  # noqa: T201
    killed = sum(count["killed"] for count in counts.values())
    print(f"{killed} of {len(chosen)} killed")  # noqa: T201
    return int(killed < len(chosen))


def no_mutant(room: str, chosen: list[Mutant]) -> Mutant:
    """Nothing to plant, with the tests of all mutants of a room."""
    tests = sorted({test for each in chosen if each.room == room for test in each.tests})
    return Mutant(room, id="", mistake="", file="", old="", new="", tests=tuple(tests))


def prepare(root: Path) -> Path:
    """Copies the source tree, and makes this process one that has all libraries and nothing of the package."""
    tree = root / "tree"
    tree.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    # Bytecode by content: a mutant may have the size of what it replaces, and be planted in the same second.
    compileall.compile_dir(tree, quiet=2, force=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    os.environ |= {"HF_HOME": f"{root}/hub", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(root)}
    sys.dont_write_bytecode, tempfile.tempdir = True, str(root)
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT]
    for name in LIBRARIES:
        importlib.import_module(name)
    return tree


def run_apart(mutant: Mutant, tree: Path) -> End:
    """Runs a mutant's tests in a process of its own, in a copy of the tree."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = multiprocessing.get_context("fork").Process(target=run_tests, args=(mutant, tree, Path(folder)))
        process.start()
        process.join()
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # what the tests started
        output = Path(folder, "output.txt").read_text(encoding="utf-8", errors="replace")
    return End(mutant, process.exitcode, time.monotonic() - begin, output)


def run_tests(mutant: Mutant, tree: Path, folder: Path) -> None:
    """Plants a mutant, if there is one, in a copy of the tree, runs its tests in this process, and ends it."""
    os.setsid()
    signal.alarm(SECONDS)
    with open(folder / "output.txt", "wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.chdir(shutil.copytree(tree, folder / "tree"))
    if mutant.file:
        before, *after = Path(mutant.file).read_text(encoding="utf-8").split(mutant.old)
        if len(after) != 1:  # what it replaces must occur exactly once
            os._exit(DOES_NOT_APPLY)
        Path(mutant.file).write_text(before + mutant.new + after[0], encoding="utf-8")
    os.environ["PYTHONPATH"] = os.getcwd()
    sys.path.insert(0, os.getcwd())
    pytest = importlib.import_module("pytest")
    code = pytest.main(["-qx", "--tb=short", "-pno:cacheprovider", f"--basetemp={folder}/work", *mutant.tests])
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
