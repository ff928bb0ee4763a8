"""How far apart the usages of a word are, within a corpus and between two, with bootstrap intervals.

With u a usage in one corpus and v one in the other, both as vectors of one view:

    average pairwise distance    APD = mean_{u, v} (1 - cos(u, v)) = 1 - m_u . m_v
    prototype distance           PRT = 1 - cos(mean_u u, mean_v v)
    within a corpus              W = mean_{u != u'} (1 - cos(u, u')) = 1 - (m_u . m_u - sum a^2) / (1 - sum a^2)

Here m_u is the mean of the u scaled to length 1, and a are the weights of the K usages in all means: 1/K, or in a
bootstrap replicate a usage's share of K draws with replacement. Each corpus is drawn by itself; all views have the same
draws. Source: Kutuzov and Giulianelli 2020 (https://aclanthology.org/2020.semeval-1.14/), who write PRT as 1 / cos.

With q the quantiles of the replicates of a measure x, its 95% interval is [2 x - q(0.975), 2 x - q(0.025)], because the
bias of replicates around x estimates that of x around the true value:

- APD: none; it is linear in the weights of each corpus, and the corpora are drawn independently.
- W: nearly none, because pairs of a usage with itself, with distance 0, are left out (sum a^2). With them, replicates
  would be too small by the factor 1 - 1/K.
- PRT is too large: a mean of K usages has 1/K of their variance as noise, which lowers the cosine. Replicates have this
  noise twice, so the interval [q(0.025), q(0.975)] would often lie above the true value. This one may end below PRT,
  and begin below 0.

A measure has no interval if a corpus has fewer than ten usages: replicates of so few vary less than new usages would.

Glossary: V views, K usages of a corpus, D features, R replicates.
"""

from collections.abc import Mapping

import numpy as np

# Of each corpus, for an interval.
LEAST_USAGES = 10


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def mean_distances(usages: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The mean cosine distance `(V, K)` of each of `(V, K, D)` usages to others; if they are the same, to the rest."""
    distances = 1 - np.einsum("vkd,vd->vk", unit(usages), unit(others).mean(axis=1))
    if others is not usages:
        return distances
    count = usages.shape[1]
    if count == 1:
        return np.full_like(distances, np.nan)  # there is no rest
    return distances * count / (count - 1)


def measure_change(
    corpora: Mapping[str, np.ndarray], replicates: int = 1000, seed: int = 0, least_usages: int = LEAST_USAGES
) -> dict[str, np.ndarray]:
    """The measures, each `(3, V)`: its value, and the lower and upper end of its interval; without one, NaN.

    Args:
        corpora: one corpus or two by name, each the vectors `(V, K, D)` of its usages.
        replicates: R.
        seed: of the draws; the same seed and numbers of usages give the same draws.
        least_usages: a measure of a corpus with fewer usages has no interval.

    Returns:
        `within NAME` for each corpus of more than one usage; for two corpora also `APD` and `PRT`.
    """
    draw = np.random.default_rng(seed)
    measures: dict[str, np.ndarray] = {}  # each (V, 1 + R)
    num_usages: dict[str, int] = {}  # of the smallest corpus of each measure
    means = []  # (V, 1 + R, D)
    unit_means = []  # (V, 1 + R, D)
    for name, usages in corpora.items():
        count = usages.shape[1]
        shares = np.full(count, 1 / count)
        weights = np.vstack([shares, draw.multinomial(count, shares, replicates) / count])  # (1 + R, K)
        means.append(weights @ usages)
        unit_means.append(weights @ unit(usages))
        if count > 1:
            same = (weights**2).sum(axis=-1)
            same[same == 1] = np.nan  # one usage, drawn K times
            measures[f"within {name}"] = 1 - ((unit_means[-1] ** 2).sum(axis=-1) - same) / (1 - same)
            num_usages[f"within {name}"] = count
    if len(corpora) == 2:
        measures["APD"] = 1 - (unit_means[0] * unit_means[1]).sum(axis=-1)
        measures["PRT"] = 1 - (unit(means[0]) * unit(means[1])).sum(axis=-1)
        smallest = min(usages.shape[1] for usages in corpora.values())
        num_usages |= {"APD": smallest, "PRT": smallest}
    return {name: _with_interval(measure, num_usages[name] >= least_usages) for name, measure in measures.items()}


def _with_interval(measure: np.ndarray, has_interval: bool) -> np.ndarray:
    """The value and the interval `(3, V)` of a measure, given its value and replicates `(V, 1 + R)`."""
    value = measure[:, 0]
    if not has_interval:
        missing = np.full_like(value, np.nan)
        return np.stack([value, missing, missing])
    upper, lower = np.nanquantile(measure[:, 1:], [0.975, 0.025], axis=-1)
    return np.stack([value, 2 * value - upper, 2 * value - lower])
