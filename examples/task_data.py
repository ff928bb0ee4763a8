"""The recipes' data as `datasets`: from `../shared/data` if that folder exists, from the Hub, or a user's own.

    load("trec")         ->  DatasetDict of train, validation and test
    load("reviews.csv")  ->  the same; see `own_files.py`

Columns: `text` and `label`; for pairs also `text_pair`; for labelled words `words` and `labels`; for questions
`question`, `context`, `answer` and `answer_start`. Labels are `ClassLabel`s, which have names.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_dataset
from own_files import TEXTS, WORDS, DataError, OwnData, Row, read_columns, read_own

from elmo_hf.text.opened_files import suffix_of

LOCAL = Path(__file__).parents[2] / "shared" / "data"

TREC = ["description", "entity", "abbreviation", "human", "location", "number"]
SST5 = ["very negative", "negative", "neutral", "positive", "very positive"]
AG_NEWS = ["world", "sports", "business", "science"]
SICK = ["neutral", "entailment", "contradiction"]
UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()
WNUT = ["corporation", "creative-work", "group", "location", "person", "product"]
IOB = ["O", *(f"{prefix}-{kind}" for kind in WNUT for prefix in "BI")]


def load(
    task: str,
    rows: int | None = None,
    kinds: tuple[tuple[str, ...], ...] = (WORDS, TEXTS),
    options: OwnData | None = None,
) -> DatasetDict:
    """The data of a task. A missing validation or test set is a tenth of the training set.

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
        local, hub = TASKS[task]
        data = local() if LOCAL.exists() else hub()
    elif suffix_of(Path(task)) or Path(task).exists():
        data = read_own(Path(task), kinds, options or OwnData())
    else:
        raise DataError(f"{task!r} is no task ({', '.join(TASKS)}), and there is no such file or folder.")
    for missing in (name for name in ("validation", "test") if name not in data):
        if len(data["train"]) < 2:
            raise DataError(f"{task} has too few rows for a {missing} set; give one with `--{missing} FILE`.")
        parts = data["train"].train_test_split(test_size=0.1, seed=0)
        data["train"], data[missing] = parts["train"], parts["test"]
    if rows is not None:
        data = DatasetDict(
            {name: part.shuffle(seed=0).select(range(min(rows, len(part)))) for name, part in data.items()}
        )
    return data


def label_names(data: DatasetDict) -> list[str]:
    """The names of the labels, in order."""
    features = data["train"].features
    return features["label"].names if "label" in features else features["labels"].feature.names


def _texts(splits: dict[str, Iterable[Row]], names: list[str], has_pairs: bool = False) -> DatasetDict:
    columns = {"text": Value("string")} | ({"text_pair": Value("string")} if has_pairs else {})
    features = Features({**columns, "label": ClassLabel(names=names)})
    return DatasetDict({name: Dataset.from_list(list(rows), features) for name, rows in splits.items()})


def _labelled_words(splits: dict[str, Iterable[Row]], names: list[str]) -> DatasetDict:
    features = Features({"words": List(Value("string")), "labels": List(ClassLabel(names=names))})
    return DatasetDict({name: Dataset.from_list(list(rows), features) for name, rows in splits.items()})


def _local_trec() -> DatasetDict:
    def rows(name: str) -> Iterator[Row]:
        for line in (LOCAL / "trec" / name).read_text(encoding="latin-1").splitlines():
            label, _, text = line.partition(" ")
            yield {"text": text, "label": int(label)}

    return _texts({"train": rows("TREC.train.all"), "test": rows("TREC.test.all")}, TREC)


def _local_sst(labels: dict[int, int], names: list[str]) -> DatasetDict:
    """Sentences of the treebank; `labels` maps the digit at a tree's root to a label; other trees are left out."""

    def rows(name: str) -> Iterator[Row]:
        for tree in (LOCAL / "sst5_trees" / name).read_text(encoding="utf-8").splitlines():
            if int(tree[1]) in labels:
                words = re.findall(r"\(\d ([^()]+)\)", tree)
                yield {"text": " ".join(words), "label": labels[int(tree[1])]}

    return _texts({"train": rows("train.txt"), "validation": rows("dev.txt"), "test": rows("test.txt")}, names)


def _local_ag_news() -> DatasetDict:
    with (LOCAL / "ag_news" / "test.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            {"text": f"{title} {description}".replace("\\", " "), "label": int(label) - 1}
            for label, title, description in csv.reader(file)
        ]
    return _texts({"train": rows}, AG_NEWS)


def _local_sick() -> DatasetDict:
    def rows(name: str) -> Iterator[Row]:
        with (LOCAL / "sick" / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                label = row["entailment_judgment"].lower()
                yield {"text": row["sentence_A"], "text_pair": row["sentence_B"], "label": label}

    names = {"train": "SICK_train.txt", "validation": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    return _texts({split: rows(name) for split, name in names.items()}, SICK, has_pairs=True)


def _local_wnut() -> DatasetDict:
    names = {"train": "wnut17train.conll", "validation": "emerging.dev.conll", "test": "emerging.test.annotated"}
    paths = {split: LOCAL / "wnut17" / name for split, name in names.items()}
    return _labelled_words({split: read_columns(path, 0, 1) for split, path in paths.items()}, IOB)


def _local_ewt() -> DatasetDict:
    names = {"train": "train", "validation": "dev", "test": "test"}
    paths = {split: LOCAL / "ud_english_ewt" / f"en_ewt-ud-{name}.conllu.gz" for split, name in names.items()}
    return _labelled_words({split: read_columns(path, 1, 3) for split, path in paths.items()}, UPOS)


def _local_xquad() -> DatasetDict:
    articles = json.loads((LOCAL / "xquad" / "xquad.en.json").read_text(encoding="utf-8"))["data"]
    rows = [
        {
            "question": question["question"],
            "context": paragraph["context"],
            "answer": question["answers"][0]["text"],
            "answer_start": question["answers"][0]["answer_start"],
        }
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    return DatasetDict({"train": Dataset.from_list(rows)})


def _hub(name: str, config: str | None = None, renamed: dict[str, str] | None = None, **options: Any) -> DatasetDict:
    """A dataset of the Hub with only the columns above, renamed."""
    data = load_dataset(name, config, **options).rename_columns(renamed or {})
    ours = {"text", "text_pair", "label", "words", "labels", "question", "context", "answers"}
    return data.select_columns([column for column in data["train"].column_names if column in ours])


def _hub_with_names(names: list[str], *args: Any) -> DatasetDict:
    return _hub(*args).cast_column("label", ClassLabel(names=names))


def _hub_xquad() -> DatasetDict:
    data = load_dataset("google/xquad", "xquad.en")["validation"]
    first = {
        "answer": lambda row: row["answers"]["text"][0],
        "answer_start": lambda row: row["answers"]["answer_start"][0],
    }
    data = data.map(lambda row: {name: of(row) for name, of in first.items()})
    return DatasetDict({"train": data.select_columns(["question", "context", *first])})


# Datasets that were scripts have tables in this branch.
TABLES = {"revision": "refs/convert/parquet"}
TASKS: dict[str, tuple[Callable[[], DatasetDict], Callable[[], DatasetDict]]] = {
    "trec": (_local_trec, lambda: _hub("CogComp/trec", renamed={"coarse_label": "label"}, **TABLES)),
    "sst2": (
        lambda: _local_sst({0: 0, 1: 0, 3: 1, 4: 1}, ["negative", "positive"]),
        lambda: _hub_with_names(["negative", "positive"], "SetFit/sst2"),
    ),
    "sst5": (
        lambda: _local_sst({label: label for label in range(5)}, SST5),
        lambda: _hub_with_names(SST5, "SetFit/sst5"),
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
