"""Many random faults: `python -m tests.faults --kills 60 --races 20 --seed 1` from the root of the repository.

A kill is SIGKILL, SIGTERM or SIGINT at a random moment of the command, then the same command again. A race is the same
command twice at once. Prints a table, and exits with 1 if any result is not that of an undisturbed run.
"""

import argparse
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .jobs import JOBS, prepare
from .runs import Run

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
        jobs = {name: prepare(Path(root), name) for name in JOBS}
        for number in range(given.kills + given.races * len(JOBS)):
            name, folder = list(JOBS)[number % len(JOBS)], Path(root, str(number))
            job = jobs[name]
            if number < given.kills:
                killed = Run(job.command, folder).finish(generator.uniform(0, job.seconds), generator.choice(SIGNALS))
                verdict = "had ended before the kill" if killed.code == 0 else "killed, then right"
                outcomes = [Run(job.command, folder).finish()]
            else:
                both = [Run(job.command, folder) for _ in range(2)]
                outcomes = [each.finish() for each in both]
                verdict = "race: both right" if all(each.code == 0 for each in outcomes) else "race: one refused"
            if not (all(each.code == 0 or each.is_refused for each in outcomes) and job.is_whole(folder)):
                left = sorted(path.name for path in folder.iterdir())
                print(f"{name}: left {left}", *(each.output for each in outcomes), sep="\n")  # noqa: T201
                verdict = f"WRONG ({verdict})"
            counts[name][verdict] += 1
    for name, count in counts.items():
        print(f"{name:18}", "  ".join(f"{verdict}: {times}" for verdict, times in sorted(count.items())))  # noqa: T201
    return int(any(verdict.startswith("WRONG") for count in counts.values() for verdict in count))


if __name__ == "__main__":
    sys.exit(main())
