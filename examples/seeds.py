"""Results of several seeds: kept in a file from run to run, in a table, and in a plot; what results depend on."""

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from data_errors import DataError

from elmo_hf.disk.checksums import files_below, sha256_of_file, sum_lines
from elmo_hf.folder.listed_files import is_of_model

# What the results of a folder depend on: options by name, and under `contents` the SHA-256 of files.
SETTINGS = "settings.json"
# 95% of a normal distribution are within so many standard deviations of its mean.
Z = 1.96


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


def contents_of(paths: Iterable[Path], model: str | Path | None = None) -> dict[str, str]:
    """The SHA-256 of the content of files and folders of data, and of a model's folder, by their names.

    A pipe has none, because it can be read only once, and a repository of the Hub has none, because it is not here.

    Raises:
        DataError: if there is no such file or folder.
    """
    contents = {}
    for path in paths:
        if path.is_dir():
            # `datasets` keeps what it computes beside the data, under names that begin with `cache-`.
            files = {name: file for name, file in files_below(path).items() if not file.name.startswith("cache-")}
            contents[str(path)] = _sha256_of_files(files)
        elif path.is_file():
            contents[str(path)] = sha256_of_file(path)
        elif not path.exists():
            raise DataError(f"there is no file or folder {path}.")
    if model is not None and Path(model).is_dir():
        files = {path.name: path for path in Path(model).iterdir() if path.is_file() and is_of_model(path.name)}
        contents[str(model)] = _sha256_of_files(files)
    return contents


def _sha256_of_files(files: Mapping[str, Path]) -> str:
    digests = {name: sha256_of_file(path) for name, path in files.items()}
    return hashlib.sha256(sum_lines(digests).encode()).hexdigest()


def check_settings(folder: Path, contents: Mapping[str, str], **settings: Any) -> None:
    """Records in a folder what its results depend on.

    A folder that has only the record, of a run that ended before its first result, takes any settings.

    Args:
        folder: the output folder of a recipe.
        contents: what the recipe reads, as `contents_of` gives it.
        **settings: the name of the recipe, and the options that its results depend on.

    Raises:
        DataError: if the folder has results of other settings or files, which would be mistaken for these, or has
            files of another origin, which would be replaced.
    """
    path = folder / SETTINGS
    has_results = folder.is_dir() and len(files_below(folder).keys() - {SETTINGS}) > 0
    if has_results and path.exists():
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if "contents" not in recorded:
            raise DataError(
                f"{folder} has results of an earlier version, which did not record the content of files; give another "
                f"`--output`, or delete {folder}."
            )
        recorded_contents = recorded["contents"]
        differences = []
        for name, value in settings.items():
            if recorded.get(name) != value:
                differences.append(f"{name} was {_shown(recorded.get(name))} and is now {_shown(value)}")
        for name, digest in contents.items():
            if recorded_contents.get(name, digest) != digest:  # a name that is not recorded is another task's
                differences.append(f"the content of {name} has changed")
        if differences:
            raise DataError(
                f"{folder} has results of other settings or files: {'; '.join(differences)}. Give another `--output`, "
                f"or delete {folder}."
            )
        contents = recorded_contents | contents
    elif has_results:
        raise DataError(f"{folder} has files that this recipe did not write; give another `--output`.")
    elif folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} must be a folder, found a file; give another `--output`.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**settings, "contents": contents}), encoding="utf-8")


def _shown(value: Any) -> str:
    """The value of a setting, for a message."""
    return "not given" if value is None else str(value)


def say_what_is_done(done: Collection[Any], runs: Collection[Any], folder: Path) -> None:
    """Prints how many results of a command's runs are in a folder already, if any are."""
    count = sum(run in done for run in runs)
    if count > 0:
        print(f"{count} of {len(runs)} results are in {folder} already.")


def mean_and_deviation(scores: Sequence[float]) -> str:
    """Mean and standard deviation in percent; for one score only the mean."""
    mean = f"{100 * np.mean(scores):.2f}"
    return f"{mean} ± {100 * np.std(scores, ddof=1):.2f}" if len(scores) > 1 else mean


def say_spread(num_seeds: int) -> None:
    """Prints, below a table, what its deviations mean; a table of one seed has none."""
    if num_seeds > 1:
        print("After ± is the standard deviation over seeds. The error that comes from few test texts is not in it.")


def interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of the share of right answers p, of N independent answers.

        (p + z² / 2N ± z √(p (1 - p) / N + z² / 4N²)) / (1 + z² / N),    z = 1.96

    Args:
        share: the share of right answers, from 0 to 1.
        count: how many answers there are.
    """
    middle = share + Z**2 / (2 * count)
    reach = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    scale = 1 + Z**2 / count
    return (middle - reach) / scale, (middle + reach) / scale


def say_interval(name: str, share: float, num_texts: int) -> None:
    """Prints the interval of the share of test texts whose label is right.

    Args:
        name: what gave the labels, such as `words and ELMo`.
        share: the share, from 0 to 1.
        num_texts: how many texts were tested.
    """
    low, high = interval(share, num_texts)
    print(
        f"{name}: {100 * share:.2f} % of {num_texts:,} test texts are right, so of all such texts between "
        f"{100 * low:.1f} and {100 * high:.1f} % (95% interval)."
    )


def plot_band(axes: Any, places: Sequence[float], scores: Sequence[Sequence[float]], label: str) -> None:
    """Plots means in percent, one for each place, and a band of one standard deviation around them."""
    values = 100 * np.array(scores)  # (places, seeds)
    means, spreads = values.mean(axis=1), values.std(axis=1, ddof=1) if values.shape[1] > 1 else 0.0
    axes.plot(places, means, marker="o", label=label)
    axes.fill_between(places, means - spreads, means + spreads, alpha=0.2)
