"""A run of the fuzzer: makes targets, deals the inputs to them, and runs all in workers."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import torch

from .outcomes import EXACT, Outcome
from .target import VALID, Target, run_input
from .targets import SHARES, TARGETS
from .workers import BATCH, Batch, run_all


def chosen(patterns: Sequence[str]) -> list[str]:
    """The names of targets that match a pattern; all without patterns.

    Raises:
        ValueError: if a pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in TARGETS):
            raise ValueError(f"{pattern} matches no target; there are {', '.join(TARGETS)}.")
    return [name for name in TARGETS if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


def deal(names: Sequence[str], count: int) -> list[Batch]:
    """Deals about `count` inputs to targets by their shares, in batches."""
    total = sum(SHARES.get(name, 1) for name in names)
    batches: list[Batch] = []
    for name in names:
        indices = list(range(max(1, round(count * SHARES.get(name, 1) / total))))
        batches += [(name, indices[start : start + BATCH]) for start in range(0, len(indices), BATCH)]
    # All targets from the beginning, so that a run that is broken off has seen each.
    return sorted(batches, key=lambda batch: batch[1][0])


@contextmanager
def prepared(names: Sequence[str]) -> Iterator[tuple[dict[str, Target], list[Outcome]]]:
    """Makes targets and opens each one's valid input, which teaches it what to expect; gives what came of that too."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="elmo-fuzz-") as folder:
        targets, outcomes = {}, []
        for name in names:
            work = Path(folder, name)
            work.mkdir()
            targets[name] = TARGETS[name](work)
            outcomes.append(run_input(targets[name], "", VALID, work))
        yield targets, [outcome for outcome in outcomes if outcome.kind != EXACT]


def run_batches(targets: dict[str, Target], batches: list[Batch], seed: str, num_workers: int) -> Iterator[Outcome]:
    """Runs the inputs of batches in workers; gives outcomes as they come."""
    with tempfile.TemporaryDirectory(prefix="elmo-fuzz-") as folder:
        run_one = partial(_run_one, targets, seed, Path(folder))
        yield from run_all(batches, run_one, num_workers)


def _run_one(targets: dict[str, Target], seed: str, folder: Path, name: str, index: int) -> Outcome:
    return run_input(targets[name], seed, index, folder)
