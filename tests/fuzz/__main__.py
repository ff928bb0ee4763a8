"""`python -m tests.fuzz`: runs the fuzzer, from the root of the repository."""

import argparse
import contextlib
import os
import sys
import time
import warnings
from pathlib import Path


def main() -> int:
    """Runs inputs and prints a report; 1 if there was a defect."""
    arguments = parsed()
    warnings.simplefilter("ignore")
    os.environ["TQDM_DISABLE"] = "1"
    # Heavy, so after the arguments are known to be legal.
    from .campaign import chosen, deal, prepared, run_batches
    from .outcomes import BROKEN, DEFECT
    from .report import report_lines

    name, _, number = (arguments.only or "").partition(":")
    try:
        names, index = chosen([name] if name else arguments.targets), int(number or 0)
    except ValueError as error:
        sys.exit(f"Error: {error}")
    with prepared(names) as (targets, outcomes):
        if arguments.only:
            return show(targets[names[0]], arguments.seed, index, arguments.save)
        batches = deal(names, arguments.count)
        total, began = sum(len(indices) for _, indices in batches), time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):  # which ends with a report of what was found so far
            for outcome in run_batches(targets, batches, arguments.seed, arguments.jobs):
                outcomes.append(outcome)
                if outcome.kind in (DEFECT, BROKEN):
                    sys.stderr.write(f"\r{outcome.target}:{outcome.index}: {outcome.kind}, {outcome.where}\n")
                if len(outcomes) % 50 == 0 or len(outcomes) == total:
                    bad = sum(outcome.kind in (DEFECT, BROKEN) for outcome in outcomes)
                    sys.stderr.write(f"\r{len(outcomes):,} of {total:,} inputs, {bad:,} defects")
    seconds = time.monotonic() - began
    sys.stderr.write("\n")
    for line in report_lines(outcomes, arguments.seed):
        tell(line)
    done = len(outcomes)
    tell(f"{done:,} inputs in {seconds:,.0f} s: {60 * done / seconds:,.0f} a minute; seed {arguments.seed}")
    return int(any(outcome.kind in (DEFECT, BROKEN) for outcome in outcomes))


def tell(line: str) -> None:
    """Prints a line."""
    sys.stdout.write(f"{line}\n")


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=sys.modules[__package__].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=1000, help="how many inputs in all")
    parser.add_argument("--seed", default="0", help="decides all inputs")
    parser.add_argument("--targets", nargs="+", default=[], metavar="TARGET", help="names or patterns; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="workers at once")
    parser.add_argument("--only", metavar="TARGET:NUMBER", help="one input, in this process, with its traceback")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="with --only: a new folder for the changed input")
    return parser.parse_args()


def show(target: object, seed: str, index: int, save: Path | None) -> int:
    """Runs one input in this process, and prints what came of it."""
    import tempfile

    from .outcomes import BROKEN, DEFECT
    from .target import Target, changed_input, run_input, write_files

    assert isinstance(target, Target)
    files, dice = changed_input(target, seed, index)
    tell(f"changed: {': '.join(dice.notes)}")
    sys.stdout.flush()  # what follows may end this process
    if save is not None:
        write_files(save, files)
    with tempfile.TemporaryDirectory(prefix="elmo-fuzz-") as folder:
        outcome = run_input(target, seed, index, Path(folder), is_explained=True)
    tell(f"{target.name}:{index} with seed {seed}: {outcome.kind} {outcome.where}\n{outcome.detail}")
    tell(f"{outcome.seconds:.1f} s, {outcome.bytes >> 20:,} MiB")
    return int(outcome.kind in (DEFECT, BROKEN))


if __name__ == "__main__":
    sys.exit(main())
