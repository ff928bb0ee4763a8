"""A user's own data for the recipes, as `datasets` with the columns of `task_data.py`.

Files are read as the commands read them (docs/files.md):

    reviews.csv  .tsv                         a table; its first line names the columns
    reviews.jsonl  .ndjson  .json             JSON: an object a line, or an array of objects
    reviews.parquet                           Parquet
    train.conll  .conllu  .bio  .iob  .txt    words in columns, one a line, a blank line after each text
    folder/                                   of `save_to_disk`, or with files that `load_dataset` reads

`--column NAME=COLUMN` names the column of a user's data for `NAME`, a column of `task_data.py`; for words in columns,
COLUMN is a number, from 0, or from -1 backwards. Lists of words and labels may be strings with blanks, or lists written
as text. Labels of entities may follow any scheme of `label_schemes.py`; they become IOB2.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from data_errors import DataError
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError
from named_columns import parse_columns

from elmo_hf.folder.saved_json import one_line
from elmo_hf.tasks.label_schemes import to_iob2
from elmo_hf.text.columns import conll_blocks, conllu_blocks, looks_like_conllu, word_column
from elmo_hf.text.fasta import looks_like_fasta
from elmo_hf.text.formats import FORMAT_OF, LOOKED_AT, Format, is_parquet, refuse_foreign, seen_in
from elmo_hf.text.json_lines import json_values
from elmo_hf.text.opened_files import opened, suffix_of
from elmo_hf.text.tables import table_rows
from elmo_hf.text.text_files import TextFile
from elmo_hf.text.values import Sentences, list_of

Row = dict[str, Any]

# The columns of each kind of task; `text_pair` may be left out.
TEXTS = ("text", "text_pair", "label")
WORDS = ("words", "labels")
QUESTIONS = ("question", "context", "answer", "answer_start")
OPTIONAL = "text_pair"
# The columns of CoNLL-U that are read by default, and of other columns that of the labels.
CONLLU_COLUMNS = {"words": "1", "labels": "3"}
LAST = "-1"
# What a message says of files that can be read.
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
SUFFIXES_OF_WORDS = (".conll", ".conllu", ".bio", ".iob", ".txt")
INTEGERS = re.compile(r"\[\s*\d+(?:\s*,\s*\d+)*\s*\]")


@dataclass(frozen=True)
class OwnData:
    """What a user says of data of their own, beside the file or folder.

    Attributes:
        columns: `NAME=COLUMN` for each column that has another name in the data.
        validation: a file of the validation set.
        test: a file of the test set.
        input_format: format of the files, whatever their names; None: by their names or first lines.
        encoding: the encoding of files.
    """

    columns: list[str] | None = None
    validation: Path | None = None
    test: Path | None = None
    input_format: Format | None = None
    encoding: str = "utf-8"

    def settings(self) -> dict[str, Any]:
        """What decides which rows are read from files, for `check_settings`."""
        settings: dict[str, Any] = {
            "column": self.columns,
            "validation": None,
            "test": None,
            "input_format": self.input_format,
            "encoding": self.encoding,
        }
        if self.validation is not None:
            settings["validation"] = str(self.validation)
        if self.test is not None:
            settings["test"] = str(self.test)
        return settings


def read_own(path: Path, kinds: tuple[tuple[str, ...], ...], options: OwnData) -> DatasetDict:
    """Reads a user's data.

    Args:
        path: a file of training data, or a folder of all sets.
        kinds: those of `TEXTS`, `WORDS` and `QUESTIONS` that a recipe takes; the first that fits the data is used.
        options: what the user says of them.

    Raises:
        DataError: if a file or a column is missing, or a row is wrong; the message has the place.
    """
    sets = {"train": path, "validation": options.validation, "test": options.test}
    paths = {name: file for name, file in sets.items() if file is not None}
    for file in paths.values():
        if not file.exists():
            raise DataError(f"there is no file or folder {file}.")
    renamed = parse_columns(options.columns or [], {name for kind in kinds for name in kind})
    tables = _folder(path) if path.is_dir() else {}
    files = {name: file for name, file in paths.items() if not (tables and file == path)}
    tables |= {name: _table(file, options, renamed, kinds) for name, file in files.items()}
    paths = dict.fromkeys(tables, path) | paths
    if tables and "train" in tables and tables["train"].column_names == [*WORDS]:
        renamed = {name: column for name, column in renamed.items() if not re.fullmatch("-?[0-9]+", column)}
    if "train" not in tables:
        raise DataError(f"{path} needs a set `train`, found {', '.join(tables)}.")
    for name, table in tables.items():
        if len(table) == 0:
            raise DataError(f"{paths[name]} holds no rows.")
    found = tables["train"].column_names
    kind = next((kind for kind in kinds if renamed.get(kind[0], kind[0]) in found), kinds[-1])
    rows = {name: [*_rows(table, paths[name], kind, renamed)] for name, table in tables.items()}
    return _with_features(rows, kind, _names(tables["train"], renamed, kind))


def _folder(path: Path) -> dict[str, Dataset]:
    is_saved = (path / "dataset_dict.json").exists() or (path / "state.json").exists()
    load = load_from_disk if is_saved else load_dataset
    try:
        data = load(str(path))
    except (DatasetsError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return {"train": data} if isinstance(data, Dataset) else dict(data)


def _table(path: Path, options: OwnData, renamed: dict[str, str], kinds: tuple[tuple[str, ...], ...]) -> Dataset:
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    try:
        with opened(path) as file:
            refuse_foreign(file)
            input_format = options.input_format
            if input_format is None:
                input_format = FORMAT_OF.get(suffix_of(path))
            if input_format == "parquet" or (input_format is None and is_parquet(file)):
                return load_dataset("parquet", data_files={"train": str(path)}, split="train")
            text = TextFile(file, options.encoding)
            names = {renamed.get(name, name) for kind in kinds for name in kind}
            return _dataset(_rows_of(text, options.input_format, renamed, WORDS in kinds, names))
    except DataError:
        raise
    except (DatasetsError, OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _rows_of(
    file: TextFile, input_format: Format | None, renamed: dict[str, str], has_words: bool, names: set[str]
) -> Iterator[Row]:
    """The rows of a file of text, in the format that the user, its name or its first lines say."""
    suffix = suffix_of(Path(file.name))
    known = input_format
    if known is None:
        known = FORMAT_OF.get(suffix)
    if known is None:
        known = seen_in(file, names)
    if known is None and looks_like_fasta(file.first_lines(LOOKED_AT)) == "possible":
        known = "fasta"
    if known is None and suffix == ".txt" and has_words:
        known = "conll"
    if known == "table":
        return (row for _, row in table_rows(file, ()))
    if known == "jsonl":
        return _objects(file)
    if known in ("conll", "conllu") and has_words:
        return _labelled_words(file, known, renamed)
    if known == "fasta":
        raise DataError(
            f"{file.path} has proteins without labels; write a file with a label for each protein or each residue "
            "(docs/proteins.md, Train on proteins)."
        )
    suffixes = (*SUFFIXES, *SUFFIXES_OF_WORDS) if has_words else SUFFIXES
    raise DataError(f"{file.path} must end in one of {', '.join(suffixes)}, or be a folder; rename or convert it.")


def _objects(file: TextFile) -> Iterator[Row]:
    for number, value in json_values(file):
        if isinstance(value, dict):
            yield value
        elif value != "":  # a blank line
            raise file.fault(f"expected an object with the columns of a row, found {str(value)[:80]!r}.", number)


def _dataset(rows: Iterable[Row]) -> Dataset:
    """Rows as a dataset with the columns of all of them."""
    rows = list(rows)
    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        columns[name] = [row.get(name) for row in rows]
    return Dataset.from_dict(columns)


def _unreadable(path: Path, error: Exception) -> DataError:
    cause: BaseException = error
    if isinstance(error, DatasetsError) and error.__cause__ is not None:
        cause = error.__cause__
    reason = one_line(cause).rstrip(".")
    if reason.startswith(str(path)):
        return DataError(f"{reason}.")
    return DataError(f"{path} cannot be read: {reason}.")


def read_columns(path: Path, words_column: int, labels_column: int) -> Iterator[Row]:
    """The `words` and `labels` of each text in a file of columns.

    Lines of documents (`-DOCSTART-`) are left out, and in .conllu files all lines without a word.

    Raises:
        OSError: if there is no such file.
        ValueError: if lines have different numbers of columns, or too few, or the file is not UTF-8.
    """
    with opened(path) as file:
        text = TextFile(file, "utf-8")
        known = "conllu" if suffix_of(path) == ".conllu" else "conll"
        yield from _labelled_words(text, known, {"words": str(words_column), "labels": str(labels_column)})


def _labelled_words(file: TextFile, known: Format, renamed: dict[str, str]) -> Iterator[Row]:
    lines = file.first_lines(LOOKED_AT)
    if known == "conllu" or looks_like_conllu(lines):
        columns = CONLLU_COLUMNS | renamed
        read: Callable[..., Iterator[list[list[str]]]] = conllu_blocks
    else:
        columns = {"words": str(word_column(lines)), "labels": LAST} | renamed
        read = conll_blocks
    try:
        words, labels = int(columns["words"]), int(columns["labels"])
    except ValueError as error:
        found = f"words={columns['words']} and labels={columns['labels']}"
        raise DataError(
            f"columns of {file.path} are given by their numbers, such as words=0, found {found}."
        ) from error
    for block in read(file, [words, labels]):
        yield {"words": [cells[words] for cells in block], "labels": [cells[labels] for cells in block]}


def _rows(table: Dataset, path: Path, kind: tuple[str, ...], renamed: dict[str, str]) -> Iterator[Row]:
    """The rows of one set with the columns of `task_data.py`; labels are text."""
    if kind == QUESTIONS and "answers" in table.column_names:  # lists, as SQuAD has them; the first counts
        parts = {"answer": "text", "answer_start": "answer_start"}
        table = table.map(lambda row: {name: next(iter(row["answers"][part]), None) for name, part in parts.items()})
    columns = {name: renamed.get(name, name) for name in kind}
    for name, column in columns.items():
        if column not in table.column_names and (name != OPTIONAL or OPTIONAL in renamed):
            raise DataError(
                f"{path} has no column {column!r}, found {', '.join(table.column_names)}; say which it is with "
                f"`--column {name}=...`."
            )
    columns = {name: column for name, column in columns.items() if column in table.column_names}
    features = {name: table.features[column] for name, column in columns.items()}
    readers = {name: Sentences(f"{path}, column {column},") for name, column in columns.items()}
    for number, cells in enumerate(table.select_columns([*columns.values()]), start=1):
        place = f"{path}, row {number}"
        row = {name: cells[column] for name, column in columns.items()}
        for name, value in row.items():
            if value is None or (value == "" and name in ("label", "answer", "answer_start")):
                raise DataError(f"{place}: `{columns[name]}` is missing.")
        try:
            row = {name: _without_lists(name, value, readers[name]) for name, value in row.items()}
        except ValueError as error:
            raise DataError(f"{place}: `{error}") from error
        yield _checked(row, features, place)


def _without_lists(name: str, value: Any, read: Sentences) -> Any:
    """A value in which no list is written as text: words and labels are read from such lists.

    Raises:
        ValueError: if it cannot be read, or is or holds a list in place of a text.
    """
    if isinstance(value, list | dict) and name not in WORDS:
        raise ValueError(f"{name}` must be one text, found {str(value)[:80]}; write its words with blanks between.")
    if not isinstance(value, str):
        return value
    if name not in WORDS:
        if list_of(value) is not None:
            raise ValueError(f"{name}` is a list written as text, {value[:80]!r}; write its words with blanks between.")
        return value
    if INTEGERS.fullmatch(value):
        return re.findall("[0-9]+", value)
    items = read(value)
    if isinstance(items, str) and items.startswith("[") and items.endswith("]"):
        raise ValueError(f"{name}` is a list written as text, {value[:80]!r}; write its items with blanks between.")
    return items


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


def _names(table: Dataset, renamed: dict[str, str], kind: tuple[str, ...]) -> list[str]:
    """The names of labels in their order, if the data has one."""
    feature = table.features.get(renamed.get(kind[-1], kind[-1]))
    feature = getattr(feature, "feature", feature)
    return feature.names if isinstance(feature, ClassLabel) else []


def _with_features(sets: dict[str, list[Row]], kind: tuple[str, ...], names: list[str]) -> DatasetDict:
    if kind == QUESTIONS:
        return DatasetDict({name: Dataset.from_list(rows) for name, rows in sets.items()})
    rows = list(chain.from_iterable(sets.values()))
    if kind == TEXTS:
        if not names:
            names = sorted({row["label"] for row in rows})
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
