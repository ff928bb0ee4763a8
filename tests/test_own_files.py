"""The recipes read a user's own files: each format, each kind of task, and one line for what is wrong."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from own_files import QUESTIONS, TEXTS, WORDS, DataError, OwnData
from task_data import TASKS, VARIABLE, label_names, load

FILMS = [{"text": "A lovely film .", "label": "good"}, {"text": "NA", "label": "bad"}, {"text": "007", "label": "bad"}]
NAMES = [
    {"words": ["Ada", "Lovelace", "wrote"], "labels": ["B-PER", "I-PER", "O"]},
    {"words": ["Oslo"], "labels": ["B-LOC"]},
    {"words": ["It"], "labels": ["O"]},
]
QUESTION = {"question": "When ?", "context": "It left at noon .", "answer": "noon", "answer_start": 11}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def rows_of(data: datasets.DatasetDict) -> list[dict[str, Any]]:
    """The training set with labels by name."""
    names = label_names(data)
    rows = [*data["train"]]
    for row in rows:
        row |= {"label": names[row["label"]]} if "label" in row else {"labels": [names[each] for each in row["labels"]]}
    return rows


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


COMMA = b"text,label\nA lovely film .,good\nNA,bad\n007,bad\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("films.csv", COMMA),
        ("films.csv.gz", gzip.compress(b"\xef\xbb\xbf" + COMMA.replace(b"\n", b"\r\n").replace(b"NA", b'"NA"'))),
        ("films.tsv", COMMA.replace(b",", b"\t")),
        ("films.jsonl", json_lines(FILMS)),
        ("films.parquet", lambda path: datasets.Dataset.from_list(FILMS).to_parquet(path)),
        ("films", lambda path: datasets.DatasetDict(train=datasets.Dataset.from_list(FILMS)).save_to_disk(path)),
    ],
    ids=["csv", "gzip, mark and quotes", "tsv", "jsonl", "parquet", "saved"],
)
def test_texts_are_read_from_each_format(name: str, content: Any) -> None:
    Path(name).write_bytes(content) if isinstance(content, bytes) else content(Path(name))
    Path("test.csv").write_bytes(COMMA)
    data = load(name, options=OwnData(validation=Path("test.csv"), test=Path("test.csv")))
    assert rows_of(data) == FILMS
    assert label_names(data) == ["bad", "good"]
    assert set(data) == {"train", "validation", "test"}


def test_a_column_may_have_another_name_and_texts_may_be_pairs() -> None:
    Path("pairs.csv").write_text("one,two,same\na,b,1\nc,d,0\ne,f,0\n")
    options = OwnData(["text=one", "text_pair=two", "label=same"], test=Path("pairs.csv"))
    data = load("pairs.csv", None, (TEXTS,), options)
    assert rows_of(data)[0].keys() == {"text", "text_pair", "label"}
    assert data["test"][0] == {"text": "a", "text_pair": "b", "label": 1}


CONLL = "-DOCSTART- -X- O O\n\nx Ada B-PER y\nx Lovelace E-PER y\nx wrote O y\n \n\nx Oslo S-LOC y\n\nx It O y\n"
CONLLU = "# text\n1-2 one _ _\n1 Ada _ B-PER\n2 Lovelace _ E-PER\n3 wrote _ O\n\n1 Oslo _ S-LOC\n\n1 It _ O\n"


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("names.conll", CONLL, ["words=1", "labels=-2"]),
        ("names.conllu", CONLLU.replace(" ", "\t"), None),
        ("names.csv", "words,labels\nAda Lovelace wrote,B-PER E-PER O\nOslo,S-LOC\nIt,O\n", None),
    ],
)
def test_labelled_words_of_each_format_become_iob2(name: str, content: str, columns: list[str] | None) -> None:
    Path(name).write_text(content)
    data = load(name, None, (WORDS, TEXTS), OwnData(columns, Path(name), Path(name)))
    assert rows_of(data) == NAMES
    assert sorted(label_names(data)) == ["B-LOC", "B-PER", "I-PER", "O"]


def test_labels_that_a_saved_folder_has_by_their_numbers_become_iob2() -> None:
    labels = datasets.ClassLabel(names=["B-PER", "E-PER", "O", "S-LOC"])
    types = {"tokens": datasets.List(datasets.Value("string")), "tags": datasets.List(labels)}
    rows = [{"tokens": row["words"], "tags": tags} for row, tags in zip(NAMES, ([0, 1, 2], [3], [2]), strict=True)]
    part = datasets.Dataset.from_list(rows, datasets.Features(types))
    datasets.DatasetDict(train=part, validation=part, test=part).save_to_disk("names")
    assert rows_of(load("names", None, (WORDS, TEXTS), OwnData(["words=tokens", "labels=tags"]))) == NAMES


@pytest.mark.parametrize("as_squad", [True, False])
def test_questions_are_read(as_squad: bool) -> None:
    answers = {"answers": {"text": ["noon", "at noon"], "answer_start": [11, 8]}}
    row = {"question": "When ?", "context": QUESTION["context"]} | answers if as_squad else QUESTION
    Path("q.jsonl").write_bytes(json_lines([row] * 3))
    assert load("q.jsonl", None, (QUESTIONS,), OwnData(test=Path("q.jsonl")))["test"][0] == QUESTION


def write_labelled(name: str, counts: dict[str, int], first: int = 0) -> None:
    """Texts that end with their numbers, from `first` on, so that those of one label differ."""
    rows = []
    for label, count in counts.items():
        rows += [{"text": f"{label} {number}", "label": label} for number in range(first, first + count)]
    Path(name).write_bytes(json_lines(rows))


@pytest.mark.parametrize(
    ("counts", "validation", "test"),
    [
        ({"sea": 10, "house": 10}, {"sea": 1, "house": 1}, {"sea": 1, "house": 1}),
        ({"a": 60, "b": 30, "c": 10}, {"a": 6, "b": 3, "c": 1}, {"a": 5, "b": 3, "c": 1}),
    ],
)
def test_a_tenth_that_is_set_aside_has_the_labels_in_the_shares_of_the_whole(
    counts: dict[str, int], validation: dict[str, int], test: dict[str, int]
) -> None:
    write_labelled("t.jsonl", counts)
    data = load("t.jsonl")
    names = label_names(data)
    expected = {"validation": validation, "test": test}
    for part, labels in expected.items():
        assert Counter(names[label] for label in data[part]["label"]) == labels
    texts = [text for part in data.values() for text in part["text"]]
    assert len(set(texts)) == len(texts) == sum(counts.values())
    assert load("t.jsonl")["train"]["text"][:] == data["train"]["text"][:]
    drawn = [text.split()[1] for part in expected for text in data[part]["text"]]
    assert len(set(drawn)) > 1  # not the first of each label


def test_a_set_of_a_task_is_drawn_as_for_the_published_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = datasets.ClassLabel(names=["no", "yes"])
    rows = {"text": [str(number) for number in range(40)], "label": [0] * 30 + [1] * 10}
    features = datasets.Features({"text": datasets.Value("string"), "label": labels})
    train = datasets.Dataset.from_dict(rows, features)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(TASKS, "trec", (None, lambda: datasets.DatasetDict(train=train, test=train)))
    assert load("trec")["validation"]["text"][:] == train.train_test_split(test_size=0.1, seed=0)["test"]["text"][:]


def test_a_note_says_which_sets_that_were_set_aside_are_small(capsys: pytest.CaptureFixture[str]) -> None:
    write_labelled("few.jsonl", {"sea": 10, "house": 10})
    write_labelled("enough.jsonl", {"sea": 600, "house": 600})
    load("few.jsonl")
    sizes = "2 to test on and 2 to choose the epoch by"
    points = "so one row is worth up to 50.0 points of a score. For a score to rely on, give"
    note = f"Note: few rows were set aside: {sizes}, {points} `--test` and `--validation`.\n"
    assert capsys.readouterr().err == note
    write_labelled("other.jsonl", {"sea": 2}, first=10)
    write_labelled("third.jsonl", {"sea": 2}, first=12)
    load("few.jsonl", options=OwnData(test=Path("other.jsonl")))
    note = f"Note: few rows were set aside: 2 to choose the epoch by, {points} `--validation`.\n"
    assert capsys.readouterr().err == note
    load("few.jsonl", options=OwnData(test=Path("other.jsonl"), validation=Path("third.jsonl")))
    load("enough.jsonl")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("rows", "kind", "start"),
    [
        ([("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")], ("text", "label"), "2 of 5 rows repeat"),
        ([("a b", "x x"), ("b a", "x x"), ("a b", "y y")], ("words", "labels"), "1 of 4 rows repeats"),
        ([("a", "b", "x"), ("a", "c", "x"), ("a", "b", "y")], ("text", "text_pair", "label"), "1 of 4 rows repeats"),
    ],
)
def test_a_note_counts_the_rows_of_all_sets_that_repeat_a_text(
    rows: list[tuple[str, ...]], kind: tuple[str, ...], start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *texts, label = kind
    tested = dict.fromkeys(texts, "c") | {label: "x"}
    Path("train.jsonl").write_bytes(json_lines([dict(zip(kind, row, strict=True)) for row in rows]))
    Path("test.jsonl").write_bytes(json_lines([tested]))
    load("train.jsonl", options=OwnData(validation=Path("test.jsonl")))
    end = "the text of an earlier row; if the model learns from one and is tested on its copy, the score is too good."
    notes = [line for line in capsys.readouterr().err.splitlines() if "earlier row" in line]
    assert notes == [f"Note: {start} {end}"]
    load("train.jsonl", options=OwnData(validation=Path("test.jsonl"), test=Path("test.jsonl")))
    assert f"{int(start[0]) + 1} of {len(rows) + 2} rows repeat the text" in capsys.readouterr().err


def test_labels_are_counted_over_all_sets_and_rare_ones_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    write_labelled("t.jsonl", {"sea": 110, "house": 20, "hose": 2})
    load("t.jsonl")
    said = capsys.readouterr()
    assert said.out == "Labels: sea (110), house (20), hose (2).\n"
    note = "Note: these labels have fewer than 3 rows and may be typing errors: hose.\n"
    assert [line for line in said.err.splitlines(keepends=True) if "typing" in line] == [note]
    write_labelled("t.jsonl", {f"kind {number:02}": 3 + number for number in range(21)})
    load("t.jsonl", rows=5)  # which decides what is read, not what the file has
    said = capsys.readouterr()
    assert said.out.startswith("Labels: kind 20 (23), kind 19 (22), ")
    assert said.out.endswith(", kind 01 (4) and 1 more.\n")
    assert "typing" not in said.err
    write_labelled("t.jsonl", {f"a whole text {number}": 1 for number in range(24)})
    load("t.jsonl")
    said = capsys.readouterr()
    assert said.err.startswith("Note: there are 24 different labels in 24 rows; is this the column of the labels?\n")
    assert "typing" not in said.err


@pytest.mark.parametrize(
    "option",
    [
        {"columns": ["text=review"]},
        {"validation": Path("v.csv")},
        {"test": Path("t.csv")},
        {"input_format": "csv"},
        {"encoding": "latin-1"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_settings_that_are_recorded_tell_every_option_apart_and_are_json(option: dict[str, Any]) -> None:
    settings = OwnData(**option).settings()
    assert settings != OwnData().settings()
    assert json.loads(json.dumps(settings)) == settings


# A file, what it holds, and words of the one line that says what is wrong.
WRONG: list[tuple[str, bytes | None, tuple[str, ...]]] = [
    ("a.csv", b"", ("a.csv is empty",)),
    ("a.csv", b"text,label\na,b,c\nd,e,f\n", ("a.csv, line 2", "expected 2 columns, found 3")),
    ("a.csv", b"review,label\na,b\n", ("a.csv has no column 'text', found review, label", "--column")),
    ("a.csv", b"text,label\n\xff,b\n", ("a.csv, line 2", "UTF-8")),
    ("a.jsonl", b'{"text": "a"}\n{"text": "b", "label": 1}\n', ("a.jsonl, row 1", "`label`")),
    ("a.jsonl", b'{"text": ["S", "E"], "label": "a"}\n', ("row 1: `text` must be one text, found ['S', 'E']",)),
    ("a.jsonl", b'{"text": "S E", "label": ["a", "b"]}\n', ("row 1: `label` must be one text, found ['a', 'b']",)),
    ("a.fasta", b">P1\nSEQW\n", ("a.fasta has proteins without labels", "docs/proteins.md, Train on proteins")),
    ("a.txt", b">P1\nSEQW\n", ("a.txt has proteins without labels", "docs/proteins.md, Train on proteins")),
    ("a.txt", b">P1\nmktayiakqrqisfvkshfsrq\n", ("a.txt has proteins without labels",)),
    ("a.xml", b"a", ("a.xml must end in one of .csv, .tsv, .json",)),
    ("a.conll", b"a x O\nb O\n", ("a.conll, line 2", "expected 3 columns as before, found 2")),
    ("a.csv", b"words,labels\na b,O\n", ("a.csv, row 1", "['O'] for ['a', 'b']")),
    ("a.csv", b"text,label\na,b\n", ("a.csv has too few rows", "--validation FILE")),
    ("missing", None, ("'missing'", "trec, sst2")),
    ("q.jsonl", json_lines([QUESTION | {"answer_start": "x"}]), ("q.jsonl, row 1", "`answer_start`", "'x'")),
    ("q.jsonl", json_lines([QUESTION | {"answer_start": 10}]), ("q.jsonl, row 1", "'noon' is not at 10, found ' noo'")),
    # with --column
    ("a.conll text", b"a O\n", ("NAME=COLUMN", "'text'")),
    ("a.csv text=text text=label", b"text,label\na,b\n", ("the column of text is given twice",)),
    ("a.conll labels=tag", b"a O\n", ("by their numbers", "words=0 and labels=tag")),
    ("trec text=a", None, ("--column", "trec")),
]


@pytest.mark.parametrize(("given", "content", "words"), WRONG, ids=[f"{each[0]} {each[1]!r:.40}" for each in WRONG])
def test_what_is_wrong_with_a_file_is_one_line(given: str, content: bytes | None, words: tuple[str, ...]) -> None:
    name, *columns = given.split()
    if content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(DataError) as error:
        load(name, None, (QUESTIONS,) if name == "q.jsonl" else (WORDS, TEXTS), OwnData(columns or None))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)
