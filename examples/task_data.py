"""The recipes' data as `datasets`: from the folder that `ELMO_HF_DATA` names, from the Hub, or a user's own.

    load("trec")         ->  DatasetDict of train, validation and test
    load("reviews.csv")  ->  the same; see `own_files.py`

Columns: `text` and `label`; for pairs also `text_pair`; for labelled words `words` and `labels`; for questions
`question`, `context`, `answer` and `answer_start`. Labels are `ClassLabel`s, which have names.
"""

import csv
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from data_errors import DataError
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_dataset
from named_columns import TEXT_COLUMNS
from own_files import TEXTS, WORDS, OwnData, Row, read_columns, read_own

from elmo_hf.text.opened_files import suffix_of

# In a validation or test set with fewer rows, one row is worth more than a point of a score.
FEWEST = 100
# Labels that are named with their numbers of rows.
MOST_LABELS = 20
# A label of fewer rows may be a typing error.
FEWEST_OF_LABEL = 3
# The environment variable with the folder of the data sets (CONTRIBUTING.md); without it they come from the Hub.
VARIABLE = "ELMO_HF_DATA"

TREC = ["description", "entity", "abbreviation", "human", "location", "number"]
SST5 = ["very negative", "negative", "neutral", "positive", "very positive"]
AG_NEWS = ["world", "sports", "business", "science"]
SICK = ["neutral", "entailment", "contradiction"]
UPOS = [
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ"),
    *("SYM", "VERB", "X"),
]
WNUT = ["corporation", "creative-work", "group", "location", "person", "product"]
IOB = ["O", *(f"{prefix}-{kind}" for kind in WNUT for prefix in "BI")]


def load(
    task: str,
    rows: int | None = None,
    kinds: tuple[tuple[str, ...], ...] = (WORDS, TEXTS),
    options: OwnData | None = None,
) -> DatasetDict:
    """The data of a task. A missing validation or test set is a tenth of the training set.

    If a user's own texts have a label each, that tenth has each label as often as the training set has it. Those of the
    tasks are drawn without regard to labels, as they were for the published figures.

    Args:
        task: a key of `TASKS`, or a user's file or folder.
        rows: limit of rows per set, drawn with a fixed seed; None takes all.
        kinds: the kinds of columns that the recipe takes from a user's data, as in `own_files.py`.
        options: what a user says of their own data.

    Raises:
        DataError: if there is no such task, or if a user's data has an error.
    """
    if task in TASKS and options not in (None, OwnData()):
        raise DataError(
            "`--column`, `--validation`, `--test`, `--input-format` and `--encoding` are for files of your own, found "
            f"one with {task}."
        )
    if task in TASKS:
        read_local, load_from_hub = TASKS[task]
        folder = data_folder()
        data = load_from_hub() if folder is None else read_local(folder)
    else:
        own_files([task], OwnData())  # refuses what is neither a task nor a file
        data = read_own(Path(task), kinds, options or OwnData())
    if task not in TASKS:
        note_repeated_texts(data)
    split_off = split_off_missing(data, task)
    if task not in TASKS and "label" in data["train"].column_names:
        print_labels(data)
    if rows is not None:
        for name, part in data.items():
            data[name] = part.shuffle(seed=0).select(range(min(rows, len(part))))
    if task not in TASKS:
        note_small_sets(data, split_off)
    return data


def split_off_missing(data: DatasetDict, task: str) -> list[str]:
    """Sets aside a validation and a test set if data have none; returns the names of those that were set aside."""
    split_off = []
    for name in ("validation", "test"):
        if name in data:
            continue
        if len(data["train"]) < 2:
            raise DataError(f"{task} has too few rows for a {name} set; give one with `--{name} FILE`.")
        if task not in TASKS and "label" in data["train"].column_names:
            parts = split_by_label(data["train"])
        else:
            parts = data["train"].train_test_split(test_size=0.1, seed=0)
        data["train"] = parts["train"]
        data[name] = parts["test"]
        split_off.append(name)
    return split_off


def split_by_label(data: Dataset) -> DatasetDict:
    """Splits off a tenth as `test`, drawn with a fixed seed; each label's share in it is that in the data, nearly."""
    data = data.shuffle(seed=0)
    labels = data["label"][:]
    by_label = sorted(range(len(data)), key=labels.__getitem__)
    size = math.ceil(len(data) / 10)
    # The rows in the order of their labels, in as many equal stretches as there are test rows: the middle of each.
    chosen = {by_label[(2 * number + 1) * len(data) // (2 * size)] for number in range(size)}
    others = [index for index in range(len(data)) if index not in chosen]
    return DatasetDict({"train": data.select(others), "test": data.select(sorted(chosen))})


def print_labels(data: DatasetDict) -> None:
    """Prints how many rows each label has, and a note of labels that are so rare that they may be typing errors."""
    names = label_names(data)
    counts = Counter(names[label] for part in data.values() for label in part["label"])
    common = counts.most_common(MOST_LABELS)
    rest = f" and {len(counts) - MOST_LABELS} more" if len(counts) > MOST_LABELS else ""
    print(f"Labels: {', '.join(f'{name} ({count})' for name, count in common)}{rest}.")
    rare = [name for name, count in counts.items() if count < FEWEST_OF_LABEL]
    if len(counts) > MOST_LABELS and 2 * len(rare) > len(counts):
        num_rows = sum(counts.values())
        print(
            f"Note: there are {len(counts)} different labels in {num_rows} rows; is this the column of the labels?",
            file=sys.stderr,
        )
    elif rare:
        shown = ", ".join(sorted(rare)[:MOST_LABELS])
        print(
            f"Note: these labels have fewer than {FEWEST_OF_LABEL} rows and may be typing errors: {shown}.",
            file=sys.stderr,
        )


def note_repeated_texts(data: DatasetDict) -> None:
    """Prints a note if rows have the text of an earlier row, of the same set or of another one."""
    texts = []
    for part in data.values():
        part = part.select_columns([name for name in part.column_names if name in TEXT_COLUMNS])
        texts += [str(row) for row in part]
    num_repeated = len(texts) - len(set(texts))
    if num_repeated == 0:
        return
    verb = "repeats" if num_repeated == 1 else "repeat"
    print(
        f"Note: {num_repeated:,} of {len(texts):,} rows {verb} the text of an earlier row; if the model learns from "
        "one and is tested on its copy, the score is too good.",
        file=sys.stderr,
    )


def note_small_sets(data: DatasetDict, split_off: list[str]) -> None:
    """Prints a note if sets that were split off are so small that one row is worth more than a point of a score."""
    small = [name for name in ("test", "validation") if name in split_off and len(data[name]) < FEWEST]
    if not small:
        return
    purposes = {"test": "to test on", "validation": "to choose the epoch by"}
    sizes = " and ".join(f"{len(data[name])} {purposes[name]}" for name in small)
    advice = " and ".join(f"`--{name}`" for name in small)
    points = 100 / min(len(data[name]) for name in small)
    print(
        f"Note: few rows were set aside: {sizes}, so one row is worth up to {points:.1f} points of a score. For a "
        f"score to rely on, give {advice}.",
        file=sys.stderr,
    )


def own_files(tasks: Iterable[str], options: OwnData) -> list[Path]:
    """The files and folders of a user's own data: those among tasks, and those of the options.

    Raises:
        DataError: if something among tasks is neither a task nor a file.
    """
    paths = []
    for task in tasks:
        if task in TASKS:
            continue
        if not suffix_of(Path(task)) and not Path(task).exists():
            raise DataError(f"{task!r} is no task ({', '.join(TASKS)}), and there is no such file or folder.")
        paths.append(Path(task))
    paths += [path for path in (options.validation, options.test) if path is not None]
    return paths


def data_folder() -> Path | None:
    """The folder of the data sets that `ELMO_HF_DATA` names; None if it names none.

    Raises:
        DataError: if there is no such folder.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    if not Path(name).is_dir():
        raise DataError(
            f"{VARIABLE} must be the folder of the data sets, found {name}, which is no folder; unset it to load them "
            "from the Hub."
        )
    return Path(name)


def _file(folder: Path, *parts: str) -> Path:
    """A file of a data set; raises DataError if it is missing."""
    path = folder.joinpath(*parts)
    if not path.is_file():
        raise DataError(
            f"there is no file {path}, which this data set needs in the folder that {VARIABLE} names; put it there, or "
            f"unset {VARIABLE} to load the data set from the Hub."
        )
    return path


def label_names(data: DatasetDict) -> list[str]:
    """The names of the labels, in order."""
    features = data["train"].features
    return features["label"].names if "label" in features else features["labels"].feature.names


def _texts(splits: dict[str, Iterable[Row]], names: list[str], has_pairs: bool = False) -> DatasetDict:
    columns: dict[str, Any] = {"text": Value("string")}
    if has_pairs:
        columns["text_pair"] = Value("string")
    columns["label"] = ClassLabel(names=names)
    features = Features(columns)
    return DatasetDict({name: Dataset.from_list(list(rows), features) for name, rows in splits.items()})


def _labelled_words(splits: dict[str, Iterable[Row]], names: list[str]) -> DatasetDict:
    features = Features({"words": List(Value("string")), "labels": List(ClassLabel(names=names))})
    return DatasetDict({name: Dataset.from_list(list(rows), features) for name, rows in splits.items()})


def _local_trec(folder: Path) -> DatasetDict:
    def rows(name: str) -> Iterator[Row]:
        for line in _file(folder, "trec", name).read_text(encoding="latin-1").splitlines():
            label, _, text = line.partition(" ")
            yield {"text": text, "label": int(label)}

    return _texts({"train": rows("TREC.train.all"), "test": rows("TREC.test.all")}, TREC)


def _local_sst(folder: Path, labels: dict[int, int], names: list[str]) -> DatasetDict:
    """Sentences of the treebank; `labels` maps the digit at a tree's root to a label; other trees are left out."""

    def rows(name: str) -> Iterator[Row]:
        for tree in _file(folder, "sst5_trees", name).read_text(encoding="utf-8").splitlines():
            if int(tree[1]) in labels:
                words = re.findall(r"\(\d ([^()]+)\)", tree)
                yield {"text": " ".join(words), "label": labels[int(tree[1])]}

    return _texts({"train": rows("train.txt"), "validation": rows("dev.txt"), "test": rows("test.txt")}, names)


def _local_ag_news(folder: Path) -> DatasetDict:
    with _file(folder, "ag_news", "test.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            {"text": f"{title} {description}".replace("\\", " "), "label": int(label) - 1}
            for label, title, description in csv.reader(file)
        ]
    return _texts({"train": rows}, AG_NEWS)


def _local_sick(folder: Path) -> DatasetDict:
    def rows(name: str) -> Iterator[Row]:
        with _file(folder, "sick", name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                label = row["entailment_judgment"].lower()
                yield {"text": row["sentence_A"], "text_pair": row["sentence_B"], "label": label}

    names = {"train": "SICK_train.txt", "validation": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    return _texts({split: rows(name) for split, name in names.items()}, SICK, has_pairs=True)


def _local_wnut(folder: Path) -> DatasetDict:
    names = {"train": "wnut17train.conll", "validation": "emerging.dev.conll", "test": "emerging.test.annotated"}
    paths = {split: _file(folder, "wnut17", name) for split, name in names.items()}
    return _labelled_words({split: read_columns(path, 0, 1) for split, path in paths.items()}, IOB)


def _local_ewt(folder: Path) -> DatasetDict:
    names = {"train": "train", "validation": "dev", "test": "test"}
    paths = {split: _file(folder, "ud_english_ewt", f"en_ewt-ud-{name}.conllu.gz") for split, name in names.items()}
    return _labelled_words({split: read_columns(path, 1, 3) for split, path in paths.items()}, UPOS)


def _local_xquad(folder: Path) -> DatasetDict:
    articles = json.loads(_file(folder, "xquad", "xquad.en.json").read_text(encoding="utf-8"))["data"]
    rows = []
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answer = question["answers"][0]
                row = {"question": question["question"], "context": paragraph["context"]}
                rows.append(row | {"answer": answer["text"], "answer_start": answer["answer_start"]})
    return DatasetDict({"train": Dataset.from_list(rows)})


def _hub(name: str, config: str | None = None, renamed: dict[str, str] | None = None, **options: Any) -> DatasetDict:
    """A dataset of the Hub with only the columns above, renamed."""
    data = load_dataset(name, config, **options).rename_columns(renamed or {})
    ours = {"text", "text_pair", "label", "words", "labels", "question", "context", "answers"}
    return data.select_columns([column for column in data["train"].column_names if column in ours])


def _hub_with_names(dataset: str, names: list[str]) -> DatasetDict:
    return _hub(dataset).cast_column("label", ClassLabel(names=names))


def _hub_xquad() -> DatasetDict:
    data = load_dataset("google/xquad", "xquad.en")["validation"]

    def first_answer(row: Row) -> Row:
        answers = row["answers"]
        return {"answer": answers["text"][0], "answer_start": answers["answer_start"][0]}

    columns = ["question", "context", "answer", "answer_start"]
    return DatasetDict({"train": data.map(first_answer).select_columns(columns)})


# Datasets that were scripts have tables in this branch.
TABLES = {"revision": "refs/convert/parquet"}
TASKS: dict[str, tuple[Callable[[Path], DatasetDict], Callable[[], DatasetDict]]] = {
    "trec": (_local_trec, lambda: _hub("CogComp/trec", renamed={"coarse_label": "label"}, **TABLES)),
    "sst2": (
        lambda folder: _local_sst(folder, {0: 0, 1: 0, 3: 1, 4: 1}, ["negative", "positive"]),
        lambda: _hub_with_names("SetFit/sst2", ["negative", "positive"]),
    ),
    "sst5": (
        lambda folder: _local_sst(folder, {label: label for label in range(5)}, SST5),
        lambda: _hub_with_names("SetFit/sst5", SST5),
    ),
    "ag_news": (_local_ag_news, lambda: _hub("fancyzhx/ag_news")),
    "sick": (
        _local_sick,
        lambda: _hub("RobZamp/sick", renamed={"sentence_A": "text", "sentence_B": "text_pair"}, **TABLES),
    ),
    "wnut17": (
        _local_wnut,
        lambda: _hub("leondz/wnut_17", renamed={"tokens": "words", "ner_tags": "labels"}, **TABLES),
    ),
    "ewt": (
        _local_ewt,
        lambda: _hub(
            "universal-dependencies/universal_dependencies", "en_ewt", renamed={"tokens": "words", "upos": "labels"}
        ),
    ),
    "xquad": (_local_xquad, _hub_xquad),
}
