"""Many random faults: `python -m tests.faults --kills 60 --races 20 --seed 1` from the root of the repository.

A kill is SIGKILL, SIGTERM or SIGINT at a random moment of the command, then the same command again. A race is the same
command twice at once. Prints a table, and exits with 1 if any result is not that of an undisturbed run.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from .jobs import JOBS, content, make_inputs
from .runs import Outcome, Run, run

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Runs the faults; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of all commands together")
    parser.add_argument("--races", type=int, default=20, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    generator, counts = random.Random(given.seed), {name: Counter[str]() for name in JOBS}
    with tempfile.TemporaryDirectory() as root:
        inputs = Path(root) / "inputs"
        inputs.mkdir()
        make_inputs(inputs)
        expected = {name: undisturbed(name, inputs, Path(root)) for name in JOBS}
        for number in range(given.kills):
            name = list(JOBS)[number % len(JOBS)]
            verdict = kill(name, inputs, Path(root) / f"kill-{number}", *expected[name], generator)
            counts[name][verdict] += 1
        for number in range(given.races * len(JOBS)):
            name = list(JOBS)[number % len(JOBS)]
            counts[name][race(name, inputs, Path(root) / f"race-{number}", expected[name][0])] += 1
    for name, count in counts.items():
        print(f"{name:18}", "  ".join(f"{verdict}: {times}" for verdict, times in sorted(count.items())))  # noqa: T201
    return int(any(verdict.startswith("WRONG") for count in counts.values() for verdict in count))


def undisturbed(name: str, inputs: Path, root: Path) -> tuple[dict[str, str], float]:
    """The result of a command, and how many seconds it takes."""
    folder = root / f"undisturbed {name}"
    folder.mkdir()
    begin = time.monotonic()
    outcome = run(JOBS[name].command(inputs), folder)
    assert outcome.code == 0, outcome.output
    return content(folder / JOBS[name].result), time.monotonic() - begin


def kill(
    name: str, inputs: Path, folder: Path, expected: dict[str, str], seconds: float, generator: random.Random
) -> str:
    """Ends a command at a random moment and gives it again; returns what came of it."""
    folder.mkdir()
    what = generator.choice(SIGNALS)
    killed = Run(JOBS[name].command(inputs), folder).finish(generator.uniform(0, seconds), what)
    again = run(JOBS[name].command(inputs), folder)
    kind = "had ended before the kill" if killed.code == 0 else "killed, then right"
    return verdict(name, folder, expected, [again], kind, may_all_be_refused=True)


def race(name: str, inputs: Path, folder: Path, expected: dict[str, str]) -> str:
    """Runs a command twice at once; returns what came of it."""
    folder.mkdir()
    runs = [Run(JOBS[name].command(inputs), folder) for _ in range(2)]
    outcomes = [each.finish() for each in runs]
    kind = "race: both right" if all(outcome.code == 0 for outcome in outcomes) else "race: one refused"
    return verdict(name, folder, expected, outcomes, kind)


def verdict(
    name: str,
    folder: Path,
    expected: dict[str, str],
    outcomes: list[Outcome],
    kind: str,
    may_all_be_refused: bool = False,
) -> str:
    """`kind`, or what is wrong; prints the output of what is wrong."""
    result = folder / JOBS[name].result
    is_right = all(outcome.code == 0 or outcome.is_refused for outcome in outcomes)
    is_right &= may_all_be_refused or any(outcome.code == 0 for outcome in outcomes)
    is_right &= [path.name for path in folder.iterdir()] == [result.name] and content(result) == expected
    if not is_right:
        left = sorted(path.name for path in folder.iterdir())
        print(f"{name} in {folder.name}: left {left}", *(each.output for each in outcomes), sep="\n")  # noqa: T201
    return kind if is_right else f"WRONG ({kind})"


if __name__ == "__main__":
    sys.exit(main())
