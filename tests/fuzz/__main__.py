"""`python -m tests.fuzz`: runs the fuzzer, from the root of the repository."""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

import torch
from transformers.utils.logging import disable_progress_bar

from tests.helpers.archives import write_files

from .inputs import DEFECT, EXACT, INPUT, REFUSED, Outcome, Target, run_all, run_input
from .targets import make_targets


def main() -> int:
    """Runs inputs and prints a report; 1 if there was a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=sys.modules[__package__].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=1000, help="how many inputs in all")
    parser.add_argument("--seed", default="0", help="decides all inputs")
    parser.add_argument("--targets", nargs="+", default=["*"], metavar="TARGET", help="names or patterns; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--only", metavar="TARGET:NUMBER", help="one input, in this process; its folder stays")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    disable_progress_bar()
    only, _, number = (given.only or "").partition(":")
    with prepared([only] if only else given.targets) as targets:
        if only:
            folder = Path(tempfile.mkdtemp(prefix="elmo-fuzz-"), "work")
            outcomes = [run_input(targets[only], only, int(number), given.seed, folder)]
        else:
            inputs, outcomes = deal(targets, given.count), []
            with suppress(KeyboardInterrupt):  # which ends with a report of what was found so far
                for outcome in run_all(targets, inputs, given.seed, given.jobs):
                    outcomes.append(outcome)
                    if outcome.kind == DEFECT or len(outcomes) % 100 == 0:
                        sys.stderr.write(f"{len(outcomes):,} of {len(inputs):,}; {outcome.target} {outcome.where}\n")
    counts = Counter((outcome.target, outcome.kind) for outcome in outcomes)
    for name in targets:
        line = "".join(f"{kind:>9} {counts[name, kind]:6}" for kind in (REFUSED, EXACT, DEFECT))
        print(f"{name:15}{line}")  # noqa: T201
    print(*defects(outcomes, given.seed), f"{len(outcomes):,} inputs; seed {given.seed}", sep="\n")  # noqa: T201
    return int(any(outcome.kind == DEFECT for outcome in outcomes))


def deal(names: Iterable[str], count: int) -> list[tuple[str, int]]:
    """Deals about `count` inputs to targets; a run that is broken off has seen each."""
    names = list(names)
    return [(name, index) for index in range(max(1, count // len(names))) for name in names]


@contextmanager
def prepared(patterns: Sequence[str] = ("*",)) -> Iterator[dict[str, Target]]:
    """Makes the targets with such names, and opens each one's valid input, which teaches it what to expect."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="elmo-fuzz-") as root:
        every = make_targets(Path(root))
        targets = {name: every[name] for name in every if any(fnmatch(name, pattern) for pattern in patterns)}
        if not targets:
            sys.exit(f"there is no such target; there are {', '.join(every)}")
        for name, target in targets.items():
            write_files(Path(root, "valid", name, INPUT), target.files)
            target.run(Path(root, "valid", name), target.files)
        yield targets


def defects(outcomes: Sequence[Outcome], seed: str) -> list[str]:
    """Each class of defects with its first example, and the command that repeats it."""
    classes: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.kind == DEFECT:
            classes.setdefault(outcome.where, []).append(outcome)
    return [
        f"{where} ({len(found)} in {', '.join(sorted({each.target for each in found}))})\n    {found[0].detail}\n"
        f"    {found[0].notes}\n    python -m tests.fuzz --seed {seed} --only {found[0].target}:{found[0].index}"
        for where, found in sorted(classes.items(), key=lambda item: -len(item[1]))
    ]


if __name__ == "__main__":
    sys.exit(main())
