"""Times contestants in turns, and describes the machine.

Machines drift: another process runs for a second, or the clock slows down. So contestants run in the order A B C A B C
..., each gets its median, and a ratio is the median of the rounds' ratios.
"""

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import torch
from torch import Tensor

# Absolute, in float32, because the contestants add in different orders.
TOLERANCE = 1e-4

# Runs once and returns its seconds.
Contestant = Callable[[], float]


def timed(run: Callable[[], object]) -> Contestant:
    """A contestant that is timed from start to end."""

    def contestant() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return contestant


class Rounds:
    """Seconds of each contestant in each round."""

    def __init__(self, contestants: dict[str, Contestant], number: int) -> None:
        """Runs every contestant `number` times, in turns.

        The comparison of values has warmed them up; the median ignores a round that is slow all the same.
        """
        self.seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(number):
            for name, contestant in contestants.items():
                self.seconds[name].append(contestant())

    def median(self, name: str) -> float:
        """Median seconds."""
        return statistics.median(self.seconds[name])

    def ratios(self, name: str, to: str) -> list[float]:
        """The seconds of `name` divided by those of `to`, by round."""
        return [one / other for one, other in zip(self.seconds[name], self.seconds[to], strict=True)]

    def ratio(self, name: str, to: str) -> float:
        """Median of `ratios`."""
        return statistics.median(self.ratios(name, to))


def check_equal(name: str, found: Tensor, expected: Tensor) -> None:
    """Stops the benchmark if values differ from ours by more than `TOLERANCE` times the largest value, or times 1."""
    difference = (found - expected).abs().max().item()
    if not difference <= TOLERANCE * max(1.0, expected.abs().max().item()):
        raise SystemExit(f"{name} differs from ours by {difference:.1e}; nothing is timed.")


def machine() -> str:
    """Date, processor, threads and versions, in one line."""
    names = (line.partition(":")[2].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name"))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers"))
    return (
        f"{date.today()}, {next(names, platform.machine())}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads, Python {platform.python_version()}, {versions}"
    )


def peak_memory() -> float:
    """Peak memory of this process in MiB."""
    return next(int(line.split()[1]) for line in _read("/proc/self/status") if line.startswith("VmHWM")) / 1024


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints Markdown; the first column is text, the others are numbers."""
    print(f"\n| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def _read(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()
