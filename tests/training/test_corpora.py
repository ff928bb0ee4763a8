"""Corpora out of files and datasets, and vocabularies out of corpora."""

import gzip
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from checkpoints import run_python

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.surprisal_table import place_sentences
from elmo_hf.text.sentences import read_sentences
from elmo_hf.training.corpora import count_words, make_vocabulary, read_corpora

LINES = ["The ferry left .", "", "  ", "\tIt   is\u00a0late\u2028now .", "x"]
SENTENCES = [["The", "ferry", "left", "."], ["It", "is", "late", "now", "."], ["x"]]


def read(*sources: object, **settings: str) -> list[list[str]]:
    return list(read_corpora([str(source) for source in sources], **settings))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb")
    with opened as file:
        file.write(text.encode("utf-8"))
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a", "corpus.tok", "v1.json.txt", "a[1]*.txt", "ä b.txt"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_is_a_sentence_a_line_split_on_white_space_without_blank_lines(
    name: str, end: str, tmp_path: Path
) -> None:
    assert read(write(tmp_path / name, end.join(LINES) + end)) == SENTENCES
    assert read(write(tmp_path / name, end.join(LINES))) == SENTENCES


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", "\ufeff" + "\n".join(LINES))) == SENTENCES


def test_an_empty_file_has_no_sentences(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", "")) == []
    assert read(write(tmp_path / "b.txt", "\n\n")) == []


def test_raw_text_is_split_as_the_treebank_is_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "It isn't late.\n\n")
    assert read(path, word_splitter="ptb") == [["It", "is", "n't", "late", "."]]
    assert read(path) == [["It", "isn't", "late."]]


def test_half_a_character_is_split_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "half \\ud83d, here."}\n')
    assert read(path, word_splitter="ptb") == [["half", "\ud83d", ",", "here", "."]]
    (placed,) = place_sentences(read_sentences(path), "ptb")
    assert (placed.words, [*placed.regions]) == (["half", "\ud83d", ",", "here", "."], [0, 1, 1, 2, 2])


def test_files_come_in_the_order_given_and_those_of_a_pattern_by_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt.gz", "c.jsonl", "deep/er/d.txt", "ignored.md"):
        write(tmp_path / name, json.dumps({"text": name}) if name.endswith(".jsonl") else name)
    assert read(tmp_path / "*.*t*", tmp_path / "b.txt") == [["a.txt.gz"], ["b.txt"], ["b.txt"]]
    assert read(tmp_path / "[abc].*") == [["a.txt.gz"], ["b.txt"], ["c.jsonl"]]
    assert read(tmp_path / "**" / "*.txt") == [["b.txt"], ["deep/er/d.txt"]]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json"])
@pytest.mark.parametrize("column", ["words", "tokens", "text", "sentence"])
def test_json_lines_are_read_by_the_names_of_their_columns(column: str, suffix: str, tmp_path: Path) -> None:
    values: list[Any] = ["It is", "", "late ."]
    if column in ("words", "tokens"):
        values = [value.split() for value in values]
    path = write_rows(tmp_path / f"a{suffix}", [{"id": 3, column: value, "title": "no"} for value in values])
    assert read(path) == [["It", "is"], ["late", "."]]


def test_words_go_before_text_and_missing_values_are_passed_over(tmp_path: Path) -> None:
    rows = [
        {"text": "a b.", "words": ["a", "b", "."]},
        {"text": "c d.", "words": None},
        {"text": "e f."},
        {"words": ["g", "h i"]},
        {"text": None},
    ]
    assert read(write_rows(tmp_path / "a.jsonl", rows)) == [["a", "b", "."], ["c", "d."], ["e", "f."], ["g", "h i"]]


def test_datasets_on_disk_are_read_by_the_names_of_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "my" / "corpus"
    write_rows(folder / "train.jsonl", [{"text": "a b"}, {"text": "c"}])
    write_rows(folder / "test.jsonl", [{"text": "d"}])
    assert read(folder) == [["a", "b"], ["c"]]
    assert read(folder, split="test") == [["d"]]
    parquet = tmp_path / "other"
    parquet.mkdir()
    datasets.Dataset.from_dict({"tokens": [["a", "b"], [], ["c d"]]}).to_parquet(parquet / "train.parquet")
    assert read(parquet, folder) == [["a", "b"], ["c d"], ["a", "b"], ["c"]]


CONLLU = (
    "# text = Al mar .\n1-2\tAl"
    + "\t_" * 8
    + "".join(f"\n{number}\t{word}" + "\t_" * 8 for number, word in enumerate(("A", "el", "mar", "."), start=1))
)


@pytest.mark.parametrize("name", ["a.conllu", "a.CONLLU", "a.conllu.gz"])
def test_conllu_is_read_by_its_second_column(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, f"{CONLLU}\n\n{CONLLU}\n")
    assert read(path) == [["A", "el", "mar", "."]] * 2
    assert read(tmp_path / "*.*", word_splitter="ptb") == read(path)


def test_json_lines_may_hold_strings_and_lists(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.jsonl", '"a b"\n\n["c d"]\n[]\n')) == [["a", "b"], ["c d"]]
    assert read(write(tmp_path / "b.jsonl", "")) == []


def test_files_are_read_in_the_encoding_given(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Größe é\n".encode("latin-1"))
    assert read(tmp_path / "*.txt", encoding="latin-1") == [["Größe", "é"]]


def test_files_are_read_without_the_datasets_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    write(tmp_path / "a.txt.gz", "a b\n")
    write_rows(tmp_path / "b.jsonl", [{"text": "c"}])
    assert read(tmp_path / "*") == [["a", "b"], ["c"]]


def test_a_hub_dataset_is_asked_for_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        asked.append((args, kwargs))
        return [{"sentence": "a b"}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert read("org/name.v1-0", "name", split="validation") == [["a", "b"]] * 2
    assert asked == [((name,), {"split": "validation", "streaming": True}) for name in ("org/name.v1-0", "name")]


def test_reading_leaves_no_copy_of_the_text_behind(tmp_path: Path) -> None:
    write(tmp_path / "text" / "a.txt.gz", "a b\n")
    write_rows(tmp_path / "data" / "train.jsonl", [{"text": "c"}])
    code = (
        f"import os; os.environ['HF_HOME'] = {str(tmp_path / 'home')!r}\n"
        "from elmo_hf.training.corpora import read_corpora; import sys; print(list(read_corpora(sys.argv[1:])))"
    )
    assert run_python(code, tmp_path, tmp_path / "text" / "*.gz", tmp_path / "data") == "[['a', 'b'], ['c']]\n"
    # `datasets` leaves empty lock files.
    assert {path.name for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 0} == {
        "a.txt.gz",
        "train.jsonl",
    }


def truncate_gzip(path: Path) -> None:
    data = gzip.compress(os.urandom(200_000).hex().encode())
    path.write_bytes(data[: len(data) // 2])


def flip_gzip(path: Path) -> None:
    data = bytearray(gzip.compress(b"a b c\n" * 1000))
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.txt", lambda path: None),
        ("deep/er", lambda path: None),
        ("*.txt", lambda path: None),
        ("b.conllu", lambda path: None),
        ("a.txt", lambda path: path.write_bytes(b"a\nb\xff\n")),
        ("a.jsonl", lambda path: path.write_text("{'text'")),
        ("a.gz", truncate_gzip),
        ("a.gz", flip_gzip),
        ("a", lambda path: path.mkdir()),
        ("a", lambda path: write_rows(path / "train.jsonl", [{"id": 1, "body": "a b"}])),
        ("a", lambda path: write_rows(path / "train.jsonl", [{"text": 5}])),
        ("a", lambda path: write(path / "train.jsonl", "")),
        ("a", lambda path: write(path / "train.jsonl", "{")),
        ("a", lambda path: write(path / "a.py", "")),
    ],
)
def test_what_cannot_be_read_is_named(name: str, make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / name)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / name))):
        read(tmp_path / name)


def test_a_name_that_the_hub_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match=r"^org/nothing cannot be read as a dataset: .*nothing"):
        read("org/nothing")


def test_a_missing_file_of_the_working_folder_is_no_hub_dataset() -> None:
    with pytest.raises(ValueError, match=r"^there is no file corpus\.txt\.$"):
        read("corpus.txt")


def test_an_unknown_splitter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`word_splitter` must be one of"):
        read(tmp_path / "a.txt", word_splitter="moses")


COUNTS = Counter({"b": 3, "a": 3, "Z": 3, "ä": 3, "often": 9, "<UNK>": 99, "<S>": 1, "</S>": 2, "once": 1, "twice": 2})


def test_words_are_counted_as_they_stand() -> None:
    assert count_words([["a", "A", "a"], [], ["a"]]) == {"a": 3, "A": 1}


def test_a_vocabulary_is_by_frequency_then_by_code_point_with_the_three_special_words_first() -> None:
    assert make_vocabulary(COUNTS) == ["<S>", "</S>", "<UNK>", "often", "Z", "a", "b", "ä", "twice", "once"]


def test_a_vocabulary_is_cut_by_size_and_by_frequency() -> None:
    assert make_vocabulary(COUNTS, max_size=6) == ["<S>", "</S>", "<UNK>", "often", "Z", "a"]
    assert make_vocabulary(COUNTS, min_count=3) == ["<S>", "</S>", "<UNK>", "often", "Z", "a", "b", "ä"]
    assert make_vocabulary(COUNTS, max_size=5, min_count=4) == ["<S>", "</S>", "<UNK>", "often"]


def test_a_vocabulary_holds_no_word_that_its_file_would_not_give_back(tmp_path: Path) -> None:
    odd = ["", " a", "a ", "b\nc", "b\rc", "<pad>", "!!!MAXTERMID", "\u2028", "a\ud800"]
    kept = ["d e", "naïve", "日本", "\u200b", "#", '"']
    vocabulary = make_vocabulary(Counter([*odd, *kept]))
    assert sorted(vocabulary[3:]) == sorted(kept)
    path = write(tmp_path / "words.txt", "".join(f"{word}\n" for word in vocabulary))
    tokenizer = ElmoTokenizer(words_file=str(path))
    assert tokenizer.predicted_words == vocabulary
    assert tokenizer.word_classes(vocabulary).tolist() == list(range(len(vocabulary)))


@pytest.mark.parametrize(
    ("counts", "settings"),
    [({}, {}), ({"a": 1, "b": 2}, {"min_count": 3}), ({"a": 1, "b": 2}, {"max_size": 3}), ({"<S>": 4}, {})],
    ids=str,
)
def test_an_empty_vocabulary_is_refused(counts: dict[str, int], settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"no word is left for the vocabulary: {len(counts)} distinct words"):
        make_vocabulary(Counter(counts), **settings)
