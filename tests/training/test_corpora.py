"""Corpora out of files and datasets, and vocabularies out of corpora; `tests/text` reads each kind of file."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from elmo_hf import ElmoTokenizer
from elmo_hf.training.corpora import make_vocabulary, read_sources


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def read(*sources: object, **settings: str) -> list[Any]:
    return list(read_sources([str(source) for source in sources], **settings))


def test_files_come_in_the_order_given_and_those_of_a_pattern_by_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.text", "c.jsonl", "deep/er/d.txt", "a[1]*.txt", "ignored.md"):
        write(tmp_path / name, json.dumps({"text": name}) if name.endswith(".jsonl") else name)
    assert read(tmp_path / "*b.t*t", tmp_path / "[abc].*") == ["b.txt", "a.text", "b.txt", "c.jsonl"]
    assert read(tmp_path / "**" / "[bd].txt") == ["b.txt", "deep/er/d.txt"]
    assert read(tmp_path / "a[1]*.txt") == ["a[1]*.txt"]  # a file of that name, before a pattern
    write(tmp_path / "latin.txt", "").write_bytes("Größe\n".encode("latin-1"))
    assert read(tmp_path / "l*.txt", encoding="latin-1") == ["Größe"]


def test_datasets_on_disk_are_read_by_the_names_of_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "my" / "corpus"
    write_rows(folder / "train.jsonl", [{"text": "a b"}, {"text": "c"}])
    write_rows(folder / "test.jsonl", [{"text": "d"}])
    parquet = tmp_path / "other"
    parquet.mkdir()
    datasets.Dataset.from_dict({"tokens": [["a", "b"], [], ["c d"]]}).to_parquet(parquet / "train.parquet")
    table = write(tmp_path / "table.csv", "text,said\na b,c\n")
    assert read(table, folder, column="text") == ["a b", "a b", "c"]
    assert read(table, write_rows(tmp_path / "x.jsonl", [{"said": "d"}]), column="said") == ["c", "d"]
    assert read(parquet, folder) == [["a", "b"], [], ["c d"], "a b", "c"]


def test_a_hub_dataset_is_asked_for_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        asked.append((args, kwargs))
        return [{"sentence": "a b"}]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert read("org/name.v1-0", "name") == ["a b", "a b"]
    assert asked == [((name,), {"split": "train", "streaming": True}) for name in ("org/name.v1-0", "name")]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("broken.txt", lambda path: path.write_bytes(b"a\nb\xff\n")),
        ("broken", lambda path: path.mkdir()),
        ("broken", lambda path: write_rows(path / "train.jsonl", [{"id": 1, "body": "a b"}])),
        ("broken", lambda path: write(path / "a.py", "")),
        ("org/nothing", None),
        ("none.txt", None),
        ("none-*", None),
    ],
)
def test_what_cannot_be_read_is_named_and_a_missing_file_before_anything_is_read(
    name: str, make: Callable[[Path], object] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if make is not None:
        make(Path(name))
    sentences = read_sources([str(write(Path("a.txt"), "a b\n")), name])
    if not name.startswith("none"):
        assert next(sentences) == "a b"
    with pytest.raises(ValueError, match=re.escape(name)):
        list(sentences)


COUNTS = Counter({"b": 3, "a": 3, "Z": 3, "ä": 3, "often": 9, "<UNK>": 99, "<S>": 1, "</S>": 2, "once": 1, "twice": 2})


def test_a_vocabulary_is_by_frequency_then_by_code_point_with_the_three_special_words_first() -> None:
    assert make_vocabulary(COUNTS) == ["<S>", "</S>", "<UNK>", "often", "Z", "a", "b", "ä", "twice", "once"]
    assert make_vocabulary(COUNTS, max_size=6) == ["<S>", "</S>", "<UNK>", "often", "Z", "a"]
    assert make_vocabulary(COUNTS, min_count=3) == ["<S>", "</S>", "<UNK>", "often", "Z", "a", "b", "ä"]
    assert make_vocabulary(COUNTS, max_size=5, min_count=4) == ["<S>", "</S>", "<UNK>", "often"]
    for counts, settings in ((COUNTS, {"min_count": 10}), (COUNTS, {"max_size": 3}), (Counter({"<S>": 4}), {})):
        with pytest.raises(ValueError, match="no word is left of"):
            make_vocabulary(counts, **settings)


def test_a_vocabulary_holds_no_word_that_its_file_would_not_give_back(tmp_path: Path) -> None:
    odd = ["", " a", "a ", "b\nc", "b\rc", "<pad>", "!!!MAXTERMID", "\u2028", "a\ud800"]
    kept = ["d e", "naïve", "日本", "\u200b", "#", '"']
    vocabulary = make_vocabulary(Counter([*odd, *kept]))
    assert sorted(vocabulary[3:]) == sorted(kept)
    path = write(tmp_path / "words.txt", "".join(f"{word}\n" for word in vocabulary))
    tokenizer = ElmoTokenizer(words_file=str(path))
    assert tokenizer.predicted_words == vocabulary
    assert tokenizer.word_classes(vocabulary).tolist() == list(range(len(vocabulary)))
