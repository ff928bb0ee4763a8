"""Scores of several seeds, in a table and in a plot."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def mean_and_deviation(scores: Sequence[float]) -> str:
    """Mean and standard deviation in percent; the mean alone of one score."""
    mean = f"{100 * np.mean(scores):.2f}"
    return f"{mean} ± {100 * np.std(scores, ddof=1):.2f}" if len(scores) > 1 else mean


def plot_band(axes: Any, places: Sequence[float], scores: Sequence[Sequence[float]], label: str) -> None:
    """Plots means in percent, one for each place, and a band of one standard deviation around them."""
    values = 100 * np.array(scores)  # (places, seeds)
    means, spreads = values.mean(axis=1), values.std(axis=1, ddof=1) if values.shape[1] > 1 else 0.0
    axes.plot(places, means, marker="o", label=label)
    axes.fill_between(places, means - spreads, means + spreads, alpha=0.2)
