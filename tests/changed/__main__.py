"""Many random cases: `python -m tests.changed --cases 200 --seed 1` from the root of the repository.

Prints how the cases of each thing ended, each defect, and with `--lines` what every command said. Exits with 1 if there
is a defect; then the folders of its case stay.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from tests.faults.runs import warm_up

from .cases import DEFECT, EQUAL, NAMED, REFUSED, UNSEEN, Workshop, run_case
from .things import THINGS


def main() -> int:
    """Runs the cases; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", default="0", help="decides all cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one case; its folders stay")
    parser.add_argument("--things", default="*", help="a pattern of names")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many seconds")
    parser.add_argument("--lines", action="store_true", help="print what every command said")
    parser.add_argument("--root", type=Path, help="the folder of the cases; that of an earlier run spares its inputs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = [name for name in THINGS if fnmatch(name, options.things)]
    root = options.root or Path(tempfile.mkdtemp(prefix="elmo-changed-"))
    workshop = Workshop(root)
    warm_up(root / "warm", root / "inputs" / "first" / "corpus.txt")
    numbers = range(options.first, options.first + options.cases)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    counts = Counter[tuple[str, str]]()
    end = time.monotonic() + options.seconds
    for number in numbers:
        if time.monotonic() > end:
            sys.stdout.write(f"stopped before case {number}\n")
            break
        judgement = run_case(workshop, options.seed, number, names)
        counts[judgement.thing, judgement.kind] += 1
        if options.lines or judgement.kind == DEFECT:
            sys.stdout.write(f"{number} {' | '.join(judgement)}\n")
            sys.stdout.flush()
    for name in names:
        line = "".join(f"{kind}: {counts[name, kind]:4}  " for kind in (EQUAL, REFUSED, NAMED, UNSEEN, DEFECT))
        sys.stdout.write(f"{name:30}{line}\n")
    sys.stdout.write(f"{counts.total()} cases, seed {options.seed}, in {root}\n")
    return int(any(kind == DEFECT for _, kind in counts))


if __name__ == "__main__":
    sys.exit(main())
