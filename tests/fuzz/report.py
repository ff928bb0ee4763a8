"""Says what came of a run: defects by class with a command that repeats one, and a table of targets and outcomes."""

from collections import Counter
from collections.abc import Sequence

from .outcomes import BROKEN, DEFECT, EXACT, REFUSED, Outcome

KINDS = (REFUSED, EXACT, DEFECT, BROKEN)


def report_lines(outcomes: Sequence[Outcome], seed: str) -> list[str]:
    """Classes of defects, the table, and the slowest and the largest inputs."""
    return [*defect_lines(outcomes, seed), "", *table_lines(outcomes), "", *extreme_lines(outcomes)]


def defect_lines(outcomes: Sequence[Outcome], seed: str) -> list[str]:
    """Each class of defects with its first example."""
    classes: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.kind in (DEFECT, BROKEN):
            classes.setdefault((outcome.kind, outcome.where), []).append(outcome)
    lines = []
    for (kind, where), members in sorted(classes.items(), key=lambda item: -len(item[1])):
        first = min(members, key=lambda outcome: (outcome.target, outcome.index))
        targets = Counter(outcome.target for outcome in members)
        lines += [
            f"{kind} ({len(members)}): {where}",
            f"    in {', '.join(f'{name} {count}' for name, count in targets.most_common(6))}",
            f"    {first.detail!r}" if "\n" not in first.detail else f"    {first.detail}",
            f"    {first.notes}",
            f"    python -m tests.fuzz --seed {seed} --only {first.target}:{first.index}",
        ]
    return lines


def table_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Targets by outcomes."""
    lines = [
        f"{'target':26}" + "".join(f"{kind:>9}" for kind in KINDS) + f"{'ms each':>9}{'most s':>9}{'most MiB':>10}"
    ]
    for name in [*sorted({outcome.target for outcome in outcomes}), "all"]:
        members = [outcome for outcome in outcomes if name in (outcome.target, "all")]
        counts = Counter(outcome.kind for outcome in members)
        seconds = [outcome.seconds for outcome in members] or [0.0]
        line = f"{name:26}" + "".join(f"{counts[kind]:9}" for kind in KINDS)
        line += f"{1000 * sum(seconds) / len(seconds):9.0f}{max(seconds):9.1f}"
        lines.append(line + f"{max((outcome.bytes for outcome in members), default=0) >> 20:10}")
    return lines


def extreme_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The slowest and the largest inputs."""
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:3]
    largest = sorted(outcomes, key=lambda outcome: -outcome.bytes)[:3]
    return [f"slowest: {outcome.seconds:.1f} s, {name_of(outcome)}" for outcome in slowest] + [
        f"largest: {outcome.bytes >> 20:,} MiB, {name_of(outcome)}" for outcome in largest
    ]


def name_of(outcome: Outcome) -> str:
    """How to find an input again."""
    return f"{outcome.target}:{outcome.index} ({outcome.notes[:100]})"
