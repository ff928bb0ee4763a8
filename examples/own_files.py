"""A user's own data for the recipes, as `datasets` with the columns of `task_data.py`.

    reviews.csv  .tsv                         a table; its first line names the columns
    reviews.json  .jsonl  .parquet            the rows that `load_dataset` reads
    train.conll  .conllu  .bio  .iob  .txt    words in columns, one a line, a blank line after each text
    folder/                                   of `save_to_disk`, or with files that `load_dataset` reads

`--column NAME=COLUMN` names the column of a user's data for `NAME`, a column of `task_data.py`; for words in columns,
COLUMN is a number, from 0, or from -1 backwards. Lists of words and labels may be strings with blanks. Labels of
entities may follow any scheme of `label_schemes.py`; they become IOB2.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from elmo_hf.tasks.label_schemes import to_iob2
from elmo_hf.text.sentences import SEPARATORS, read_lines, read_table, suffix_of

Row = dict[str, Any]

# The columns of each kind of task; `text_pair` may be left out.
TEXTS = ("text", "text_pair", "label")
WORDS = ("words", "labels")
QUESTIONS = ("question", "context", "answer", "answer_start")
OPTIONAL = "text_pair"
# By suffix: the character between columns in text files, and the name that `datasets` has for other tables.
KINDS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}
# The default columns of words and labels.
CONLL = {suffix: {"words": "0", "labels": "-1"} for suffix in (".conll", ".bio", ".iob", ".txt")}
CONLL[".conllu"] = {"words": "1", "labels": "3"}


class DataError(ValueError):
    """Something is wrong with a user's data; the message is for the user."""


def read_own(
    path: Path, kinds: tuple[tuple[str, ...], ...], columns: list[str] | None, others: dict[str, Path | None]
) -> DatasetDict:
    """Reads a user's data.

    Args:
        path: a file of training data, or a folder of all sets.
        kinds: those of `TEXTS`, `WORDS` and `QUESTIONS` that a recipe takes; the first that fits the data is used.
        columns: `NAME=COLUMN` for each column that has another name in the data.
        others: files of the validation and test sets by name, if there are any.

    Raises:
        DataError: if a file or a column is missing, or a row is wrong; the message has the place.
    """
    paths = {name: each for name, each in {"train": path, **others}.items() if each is not None}
    for each in paths.values():
        if not each.exists():
            raise DataError(f"there is no file or folder {each}.")
    given = _parsed(columns or [], {name for kind in kinds for name in kind})
    tables = _folder(path) if path.is_dir() else {}
    tables |= {name: _table(each, given, WORDS in kinds) for name, each in paths.items() if each != path or not tables}
    paths = dict.fromkeys(tables, path) | paths
    given = {} if suffix_of(path) in CONLL else given  # the columns of words are already read by number
    if "train" not in tables:
        raise DataError(f"{path} needs a set `train`, found {', '.join(tables)}.")
    for name, table in tables.items():
        if len(table) == 0:
            raise DataError(f"{paths[name]} holds no rows.")
    found = tables["train"].column_names
    kind = next((kind for kind in kinds if given.get(kind[0], kind[0]) in found), kinds[-1])
    rows = {name: [*_rows(table, paths[name], kind, given)] for name, table in tables.items()}
    return _with_features(rows, kind, _names(tables["train"], given, kind))


def _parsed(columns: list[str], names: set[str]) -> dict[str, str]:
    """`NAME=COLUMN` as a dict."""
    pairs = [column.partition("=") for column in columns]
    for name, sign, column in pairs:
        if name not in names or not sign or not column:
            raise DataError(
                f"a column is given as NAME=COLUMN, where NAME is one of {', '.join(sorted(names))}; "
                f"found {name + sign + column!r}."
            )
    return {name: column for name, _, column in pairs}


def _folder(path: Path) -> dict[str, Dataset]:
    is_saved = (path / "dataset_dict.json").exists() or (path / "state.json").exists()
    try:
        data = load_from_disk(str(path)) if is_saved else load_dataset(str(path))
    except (DatasetsError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return {"train": data} if isinstance(data, Dataset) else dict(data)


def _table(path: Path, given: dict[str, str], has_words: bool) -> Dataset:
    suffix, known = suffix_of(path), [*SEPARATORS, *KINDS, *(CONLL if has_words else ())]
    if suffix not in known:
        raise DataError(f"{path} must end in one of {', '.join(known)}, or be a folder; rename or convert it.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    if suffix in CONLL:
        return _conll(path, CONLL[suffix] | given)
    try:
        if suffix in SEPARATORS:
            return Dataset.from_list([*read_table(path)])
        return load_dataset(KINDS[suffix], data_files={"train": str(path)}, split="train")
    except (DatasetsError, OSError, ValueError) as error:
        raise error if isinstance(error, DataError) else _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    cause = error.__cause__ or error if isinstance(error, DatasetsError) else error
    return DataError(f"{path} cannot be read: {' '.join(str(cause).split())}.")


def read_columns(path: Path, words_column: int, labels_column: int) -> Iterator[Row]:
    """The `words` and `labels` of each text in a file of columns.

    Lines of documents (`-DOCSTART-`) are left out, and in .conllu files all lines without a word.

    Raises:
        DataError: if lines have different numbers of columns, or too few.
        OSError: if there is no such file.
        ValueError: if it is not UTF-8.
    """
    is_conllu = suffix_of(path) == ".conllu"
    words: list[str] = []
    labels: list[str] = []
    num_columns = 0
    for number, line in enumerate(chain(read_lines(path), [""]), start=1):
        cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        if not any(cells) or cells[0].startswith("-DOCSTART-"):
            if words:
                yield {"words": words, "labels": labels}
            words, labels = [], []
        elif not is_conllu or cells[0].isdecimal():
            num_columns = num_columns or len(cells)
            least = max(column + 1 if column >= 0 else -column for column in (words_column, labels_column))
            if len(cells) != num_columns or num_columns < least:
                expected = f"at least {least} columns" if num_columns < least else f"{num_columns} columns as before"
                raise DataError(f"{path}, line {number}: expected {expected}, found {len(cells)}.")
            words.append(cells[words_column])
            labels.append(cells[labels_column])


def _conll(path: Path, columns: dict[str, str]) -> Dataset:
    try:
        places = int(columns["words"]), int(columns["labels"])
    except ValueError as error:
        found = f"words={columns['words']} and labels={columns['labels']}"
        raise DataError(f"columns of {path} are given by their numbers, such as words=0, found {found}.") from error
    try:
        return Dataset.from_list([*read_columns(path, *places)])
    except (OSError, ValueError) as error:
        raise DataError(str(error)) from error


def _rows(table: Dataset, path: Path, kind: tuple[str, ...], given: dict[str, str]) -> Iterator[Row]:
    """The rows of one set with the columns of `task_data.py`; labels are text."""
    if kind == QUESTIONS and "answers" in table.column_names:  # lists, as SQuAD has them; the first counts
        parts = {"answer": "text", "answer_start": "answer_start"}
        table = table.map(lambda row: {name: next(iter(row["answers"][part]), None) for name, part in parts.items()})
    columns = {name: given.get(name, name) for name in kind}
    for name, column in columns.items():
        if column not in table.column_names and (name != OPTIONAL or OPTIONAL in given):
            raise DataError(
                f"{path} has no column {column!r}, found {', '.join(table.column_names)}; say which it is with "
                f"`--column {name}=...`."
            )
    columns = {name: column for name, column in columns.items() if column in table.column_names}
    features = {name: table.features[column] for name, column in columns.items()}
    for number, cells in enumerate(table.select_columns([*columns.values()]), start=1):
        place = f"{path}, row {number}"
        row = {name: cells[column] for name, column in columns.items()}
        for name, value in row.items():
            if value is None or (value == "" and name in ("label", "answer", "answer_start")):
                raise DataError(f"{place}: `{columns[name]}` is missing.")
        yield _checked(row, features, place)


def _checked(row: Row, features: dict[str, Any], place: str) -> Row:
    """A row with values of the right types."""
    if "words" in row:
        words, labels = (value.split() if isinstance(value, str) else value for value in row.values())
        if not isinstance(words, list) or not isinstance(labels, list) or len(words) != len(labels):
            raise DataError(f"{place}: needs as many labels as words, found {labels!r:.80} for {words!r:.80}.")
        feature = getattr(features["labels"], "feature", None)
        labels = [feature.int2str(label) if isinstance(feature, ClassLabel) else str(label) for label in labels]
        return {"words": [*map(str, words)], "labels": labels}
    if "label" in row:
        feature = features["label"]
        label = feature.int2str(row["label"]) if isinstance(feature, ClassLabel) else str(row["label"])
        return {name: str(value) for name, value in row.items()} | {"label": label}
    start = str(row["answer_start"])
    if not start.isdecimal():
        raise DataError(f"{place}: `answer_start` must be a whole number, found {start[:80]!r}.")
    row = {name: str(value) for name, value in row.items()} | {"answer_start": int(start)}
    if not row["context"].startswith(row["answer"], row["answer_start"]):
        found = row["context"][row["answer_start"] :][: len(row["answer"])]
        raise DataError(f"{place}: the answer {row['answer']!r} is not at {row['answer_start']}, found {found!r}.")
    return row


def _names(table: Dataset, given: dict[str, str], kind: tuple[str, ...]) -> list[str]:
    """The names of labels in their order, if the data has one."""
    feature = table.features.get(given.get(kind[-1], kind[-1]))
    feature = getattr(feature, "feature", feature)
    return feature.names if isinstance(feature, ClassLabel) else []


def _with_features(sets: dict[str, list[Row]], kind: tuple[str, ...], names: list[str]) -> DatasetDict:
    if kind == QUESTIONS:
        return DatasetDict({name: Dataset.from_list(rows) for name, rows in sets.items()})
    rows = [*chain(*sets.values())]
    if kind == TEXTS:
        names = names or sorted({row["label"] for row in rows})
        texts = {name: Value("string") for name in rows[0] if name != "label"}
        features = Features({**texts, "label": ClassLabel(names=names)})
        return DatasetDict({name: Dataset.from_list(rows, features) for name, rows in sets.items()})
    labels = {label for row in rows for label in row["labels"]}
    if "O" in labels:
        for row in rows:
            row["labels"] = to_iob2(row["labels"])
        labels = {label for row in rows for label in row["labels"]}
    if not labels <= set(names):
        # `O` first, and each B- before its I-.
        names = sorted(labels, key=lambda label: (label != "O", label[2:] if label[1:2] == "-" else "", label))
    features = Features({"words": List(Value("string")), "labels": List(ClassLabel(names=names))})
    return DatasetDict({name: Dataset.from_list(rows, features) for name, rows in sets.items()})
