"""The command `elmo-hf usages`."""

import math
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..disk.whole_files import check_new_file, new_file
from ..folder.model_names import refuse_unknown
from ..text.installed import require_packages
from .arguments import Column, Device, Encoding, InputFormat, Model, SplitIntoWords, usable_device
from .errors import check_usage, counted, say
from .split_notes import look_at

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ..embedding.usages import Usage
    from ..public import ElmoTokenizer

PICTURES = (".png", ".pdf", ".svg")
VECTOR_TABLES = (".csv", ".tsv", ".parquet")
# How many usages are printed at either end, and how many characters before and after one.
NUM_SHOWN, CONTEXT = 3, 40
# With more usages the numbers in a picture would cover each other.
MOST_NUMBERED = 30


def usages(
    model: Model,
    corpora: Annotated[
        list[str],
        Argument(metavar="A [B]", help="A corpus, or two, such as two periods: each a file, pattern or folder."),
    ],
    word: Annotated[str, Option(metavar="FORM", help="The word, in upper or lower case.")],
    output: Annotated[
        Path, Option("--output", "-o", metavar="OUT", help="A new .csv or .tsv with a row for each usage.")
    ],
    forms: Annotated[
        list[str] | None,
        Option(metavar="WORDS", help="Its other forms, with commas between, such as banks,banking; may be repeated."),
    ] = None,
    most: Annotated[int, Option(help="Most sentences from each corpus, spread over it.", min=1)] = 200,
    layer: Annotated[
        str | None, Option(help="Layer of nearest usages, plot and vectors: 0, 1, ... or mix; default: the top layer.")
    ] = None,
    plot: Annotated[Path | None, Option(help="A new picture of the usages: .png, .pdf or .svg.")] = None,
    vectors: Annotated[
        Path | None, Option(help="A new .csv, .tsv or .parquet with the vector of each usage, in --layer.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of the bootstrap.", min=0)] = 0,
    input_format: InputFormat = None,
    column: Column = None,
    split_into_words: SplitIntoWords = False,
    encoding: Encoding = "utf-8",
    device: Device = None,
) -> None:
    """Measure how far apart the usages of a word are.

    Prints mean cosine distances in each layer and in the mix, with 95% bootstrap intervals: within each corpus; and, as
    measures of semantic change, between all pairs of two corpora (APD) and between their mean vectors (PRT). A corpus
    of fewer than ten usages has no intervals. Then it prints the usages of each corpus that are nearest to the other,
    and those that are farthest from it.
    """
    are_different = len(set(corpora)) == len(corpora)
    check_usage(are_different and len(corpora) <= 2, f"give one corpus, or two different ones, found {len(corpora)}.")
    _check_outputs(output, plot, vectors)
    corpus_names = dict(zip("AB", corpora, strict=False))
    refuse_unknown(model)
    from elmo_hf.embedding.input_documents import Documents
    from elmo_hf.embedding.usages import find_usages
    from elmo_hf.folder.loading import load_complete, load_tokenizer

    reading: dict[str, Any] = {
        "split_into_words": split_into_words,
        "encoding": encoding,
        "column": column,
        "input_format": input_format,
    }
    # Both corpora are found before the model is loaded.
    documents = {key: Documents.find([name], str(output), **reading) for key, name in corpus_names.items()}
    loaded, tokenizer = load_complete(model).to(usable_device(device)), load_tokenizer(model)
    views = [str(number) for number in range(loaded.config.num_hidden_layers + 1)]
    shown_view = views[-1] if layer is None else layer
    views.append("mix")
    if shown_view not in views:
        raise ValueError(f"--layer must be one of {', '.join(views)}, found {shown_view!r}.")
    view = views.index(shown_view)
    usages_of, vectors_of = {}, {}
    all_forms = [word, *_listed(forms or [])]
    for key, name in corpus_names.items():
        look = look_at(name, tokenizer, model, split_into_words)
        usages_of[key], vectors_of[key] = find_usages(loaded, tokenizer, documents[key], all_forms, most, look)
        say(f"{key}: {name}, {counted(len(usages_of[key]), 'usage')}: {_counts_of_forms(usages_of[key])}.")
    _note_missing(all_forms, chain.from_iterable(usages_of.values()), None if split_into_words else tokenizer)
    if sum(len(usages) for usages in usages_of.values()) == 1:
        raise ValueError(f"{word!r} occurs only once, so there is no pair to compare.")
    _say_distances(vectors_of, views, seed)
    distances = _distances(vectors_of)
    # The usages of a single corpus are compared with each other.
    for key, other in zip(usages_of, reversed(usages_of), strict=True):
        _say_ends(f"{other} (layer {shown_view})", key, usages_of[key], distances[key][other][view])
    _write_table(output, _table(usages_of, distances, views))
    if vectors is not None:
        _write_table(vectors, _table_of_vectors(usages_of, {key: vectors_of[key][view] for key in usages_of}))
    if plot is not None:
        parts = {f"{key}: {name}": vectors_of[key][view] for key, name in corpus_names.items()}
        numbers = [usage.sentence for key in usages_of for usage in usages_of[key]]
        _draw(plot, f"{word}, layer {shown_view}", parts, numbers)


def _check_outputs(output: Path, plot: Path | None, vectors: Path | None) -> None:
    """Checks the files to write before the model is loaded: their suffixes, their places, and matplotlib."""
    check_usage(output.suffix in (".csv", ".tsv"), f"--output writes a .csv or .tsv, found {output}.")
    if vectors is not None:
        check_usage(vectors.suffix in VECTOR_TABLES, f"--vectors writes a .csv, .tsv or .parquet, found {vectors}.")
        check_usage(
            vectors.resolve() != output.resolve(),
            f"--vectors and --output both name {output}; give each a name of its own.",
        )
        check_new_file(vectors)
    if plot is not None:
        check_usage(plot.suffix in PICTURES, f"--plot takes {', '.join(PICTURES)}, found {plot}.")
        check_new_file(plot)
        require_packages("train", "matplotlib")
    check_new_file(output)


def _listed(values: list[str]) -> list[str]:
    """The forms between commas; a form may have blanks, because words that are given as lists may."""
    forms = [form.strip() for value in values for form in value.split(",")]
    return [form for form in forms if form]


def _counts_of_forms(usages: list["Usage"]) -> str:
    """How often each form of the word occurs, such as `bank 12, banks 3`."""
    counts = Counter(usage.word.lower() for usage in usages)
    return ", ".join(f"{form} {count:,}" for form, count in counts.most_common())


def _note_missing(forms: list[str], usages: Iterable["Usage"], tokenizer: "ElmoTokenizer | None") -> None:
    """Prints a note to standard error on each form that no usage has.

    Args:
        forms: the forms, in upper or lower case.
        usages: all usages.
        tokenizer: the tokenizer that split the texts; None: they were split at blanks.
    """
    from elmo_hf.embedding.usages import splits_of

    present = {usage.word.lower() for usage in usages}
    for form in dict.fromkeys(form.lower() for form in forms):
        if form in present:
            continue
        splits = "" if tokenizer is None else splits_of(tokenizer, [form])
        advice = " Put commas between forms." if " " in form else ""
        say(f"Note: none of these usages is {form}.{splits}{advice}", is_error=True)


def _distances(vectors: dict[str, "np.ndarray"]) -> dict[str, dict[str, "np.ndarray"]]:
    """The mean distances of each corpus's usages from those of each corpus."""
    from elmo_hf.embedding.meaning_change import mean_distances

    distances: dict[str, dict[str, np.ndarray]] = {}
    for key in vectors:
        distances[key] = {other: mean_distances(vectors[key], vectors[other]) for other in vectors}
    return distances


def _say_distances(vectors: dict[str, "np.ndarray"], views: list[str], seed: int) -> None:
    """Prints a row for each measure: its value in each view, with its interval; and why an interval is missing."""
    from elmo_hf.embedding.meaning_change import LEAST_USAGES, measure_change

    _say_row("layer", views)
    for name, values in measure_change(vectors, seed=seed).items():
        _say_row(name, [_cell(value, low, high) for value, low, high in values.T.tolist()])
    few = [f"{corpus.shape[1]} in {key}" for key, corpus in vectors.items() if corpus.shape[1] < LEAST_USAGES]
    if few:
        say(
            f"No interval where a corpus has fewer than {LEAST_USAGES} usages ({', '.join(few)}): the bootstrap makes "
            "the intervals of so few too narrow."
        )
    if all(corpus.shape[1] == 1 for corpus in vectors.values()):
        say("Each corpus has one usage, so APD and PRT are the distance of this single pair.")


def _cell(value: float, low: float, high: float) -> str:
    """A value with the ends of its interval, or alone where these are NaN."""
    if math.isnan(low):
        return f"{value:z.3f}"
    return f"{value:z.3f} [{low:z.3f}, {high:z.3f}]"


def _say_row(name: str, cells: list[str]) -> None:
    columns = "".join(f"{cell:24}" for cell in cells)
    say(f"{name:12}{columns}".rstrip())


def _say_ends(target: str, key: str, usages: list["Usage"], distances: "np.ndarray") -> None:
    """Prints the usages of a corpus that are nearest to a target, and those that are farthest from it.

    Args:
        target: the name of the corpus that the usages are compared with, and the view.
        key: the name of their own corpus.
        usages: the usages of the corpus.
        distances: `(K,)`, their mean distances from the target.
    """
    order = distances.argsort(kind="stable").tolist()
    for end, rows in (("nearest to", order), ("farthest from", order[::-1])):
        say(f"{key}, {end} {target}:")
        for row in rows[:NUM_SHOWN]:
            usage = usages[row]
            before, after = usage.before[-CONTEXT:], usage.after[:CONTEXT]
            say(f"  {distances[row]:z.3f}  {before:>{CONTEXT}} [{usage.word}] {after}".rstrip())


def _table(
    usages: dict[str, list["Usage"]], distances: dict[str, dict[str, "np.ndarray"]], views: list[str]
) -> "pa.Table":
    """A row for each usage: its corpus, its place and text, and its mean distances, with four digits.

    Args:
        usages: the usages of each corpus, by its key.
        distances: for each corpus, and each corpus it is compared with, the mean distances `(V, K)`; NaN is missing.
        views: the names of the V views.
    """
    import numpy as np
    import pyarrow as pa

    from elmo_hf.embedding.usages import Usage

    rows = [(key, usage) for key in usages for usage in usages[key]]
    columns = {"corpus": [key for key, _ in rows]}
    for name in Usage._fields:
        columns[name] = [getattr(usage, name) for _, usage in rows]
    for other in usages:
        parts = [distances[key][other] for key in usages]
        for name, numbers in zip(views, np.concatenate(parts, axis=1), strict=True):
            columns[f"to_{other}_{name}"] = numbers.round(4) + 0.0  # -0 becomes 0
    return pa.table(columns)


def _table_of_vectors(usages: dict[str, list["Usage"]], vectors: dict[str, "np.ndarray"]) -> "pa.Table":
    """A row for each usage, in the order of `_table`: its corpus, its place, its word and its vector, `v1` to `vD`.

    Args:
        usages: the usages of each corpus, by its key.
        vectors: the vectors `(K, D)` of each corpus in one view.
    """
    import numpy as np
    import pyarrow as pa

    rows = [(key, usage) for key in usages for usage in usages[key]]
    columns: dict[str, Any] = {"corpus": [key for key, _ in rows]}
    for name in ("document", "sentence", "position", "word"):
        columns[name] = [getattr(usage, name) for _, usage in rows]
    numbers = np.concatenate([*vectors.values()]).astype(np.float32)  # as the model computed them
    for number, column in enumerate(numbers.T, start=1):
        columns[f"v{number}"] = column
    return pa.table(columns)


def _write_table(path: Path, table: "pa.Table") -> None:
    """Writes a table, and says so."""
    from elmo_hf.disk.tables import save_table

    save_table(path, table)
    say(f"Wrote {path}.")


def _draw(path: Path, title: str, corpora: dict[str, "np.ndarray"], numbers: list[int]) -> None:
    """Draws usages on the two principal components of all, and says so.

    Args:
        path: the new picture.
        title: its title.
        corpora: the usages `(K, D)` of each corpus, which has a colour of its own.
        numbers: the number of the sentence of each usage of all corpora, which stands beside its point if there are at
            most `MOST_NUMBERED`.
    """
    import numpy as np
    from matplotlib.figure import Figure

    every = np.concatenate([*corpora.values()])
    mean = every.mean(axis=0)
    directions = np.linalg.svd(every - mean, full_matrices=False)[2][:2]  # (2, D)
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel="first principal component", ylabel="second", aspect="equal")
    for label, usages in corpora.items():
        axes.scatter(*(directions @ (usages - mean).T), alpha=0.6, label=label)
    if len(numbers) <= MOST_NUMBERED:
        for number, point in zip(numbers, (every - mean) @ directions.T, strict=True):
            axes.annotate(f"{number}", point, xytext=(4, 4), textcoords="offset points", fontsize="small")
    axes.legend()
    with new_file(path, replaces=False) as partial:
        figure.savefig(partial, format=path.suffix[1:])
    say(f"Wrote {path}.")
