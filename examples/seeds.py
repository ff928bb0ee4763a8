"""Results of several seeds: kept in a file from run to run, in a table, and in a plot."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from own_files import DataError


class Results(dict[tuple[Any, ...], Any]):
    """Results by the name of the run; each is written to a file at once, so that a stopped command resumes."""

    def __init__(self, path: Path) -> None:
        """Reads what the file already has."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        super().__init__((tuple(key), value) for *key, value in map(json.loads, lines))

    def add(self, *key: Any, value: Any) -> None:
        """Adds a result."""
        self[key] = value
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([*key, value]) + "\n")


def check_settings(folder: Path, **settings: Any) -> None:
    """Records in a folder what its results depend on.

    Raises:
        DataError: if the folder has results of other settings, which would be mistaken for these.
    """
    path = folder / "settings.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else settings
    other = [name for name, value in settings.items() if found.get(name) != value]
    if other:
        raise DataError(f"{folder} has results of another {' and '.join(other)}; give another `--output`.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings), encoding="utf-8")


def mean_and_deviation(scores: Sequence[float]) -> str:
    """Mean and standard deviation in percent; for one score only the mean."""
    mean = f"{100 * np.mean(scores):.2f}"
    return f"{mean} ± {100 * np.std(scores, ddof=1):.2f}" if len(scores) > 1 else mean


def plot_band(axes: Any, places: Sequence[float], scores: Sequence[Sequence[float]], label: str) -> None:
    """Plots means in percent, one for each place, and a band of one standard deviation around them."""
    values = 100 * np.array(scores)  # (places, seeds)
    means, spreads = values.mean(axis=1), values.std(axis=1, ddof=1) if values.shape[1] > 1 else 0.0
    axes.plot(places, means, marker="o", label=label)
    axes.fill_between(places, means - spreads, means + spreads, alpha=0.2)
