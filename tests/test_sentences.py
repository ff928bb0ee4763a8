"""Reading sentences in every format, with errors that name file and line; corpora and vocabularies made of them."""

import gzip
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from elmo_hf import ElmoTokenizer
from elmo_hf.embedding.stores import InputFile
from elmo_hf.text.sentences import read_dataset, read_sentences
from elmo_hf.training.corpora import make_vocabulary, read_sources

CONLLU = """\
# sent_id = 1
# text = Vámonos al mar .
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_
5.1\tfue\tir\tVERB\t_\t_\t_\t_\t1:conj\t_
6\t.\t.\tPUNCT\t_\t_\t1\tpunct\t_\t_

# sent_id = 2
1\tNew York\tNew York\tPROPN\t_\t_\t0\troot\t_\t_
# a comment among the words
2\t!\t!\tPUNCT\t_\t_\t1\tpunct\t_\t_
"""
CONLLU_SENTENCES: list[Any] = [["Vamos", "nos", "a", "el", "mar", "."], ["New York", "!"]]
FASTA = """\
>sp|P1|A first protein
MKV
lX *

>second
>third\tone
W
"""
PROTEINS: list[Any] = [["M", "K", "V", "L", "X", "*"], [], ["W"]]
# Values of JSON lines, and what is read of each; of the keys of an object the first one with a value.
JSON: list[tuple[Any, Any]] = [
    ("The ferry left.", "The ferry left."),
    (["New York", "!"], ["New York", "!"]),
    ({"id": 3, "text": "Größe"}, "Größe"),
    ({"words": ["日本", "."], "label": 1}, ["日本", "."]),
    ("", ""),
    ([], []),
    ({"text": "line\nbreak"}, "line\nbreak"),
    ({"sentence": "d", "text": "c", "tokens": ["b"], "words": ["a"]}, ["a"]),
    ({"sentence": "d", "text": "c", "tokens": ["b"]}, ["b"]),
    ({"sentence": "d", "text": "c"}, "c"),
    ({"sentence": "d"}, "d"),
    ({"words": None, "text": "c"}, "c"),
    ({"words": [], "text": "c"}, []),
    ({"words": None, "text": None}, ""),
]
JSON_LINES = "\n".join(json.dumps(value) for value, _ in JSON)
JSON_SENTENCES = [sentence for _, sentence in JSON]
BLANKS = "_\t" * 8
TEXT = "The ferry left .\n\n  Größe 日本 \n\nEnd"


@pytest.mark.parametrize("is_gzipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        *((name, TEXT, TEXT.split("\n")) for name in ("corpus.txt", "corpus", "corpus.v1.tok", "A.TXT")),
        ("last line break.txt", "One\nTwo\n", ["One", "Two"]),
        ("empty.txt", "", []),
        ("windows.txt", "One here\r\n\r\nTwo\r\n", ["One here", "", "Two"]),
        ("carriage returns.txt", "one\rstill one\n\r\ntwo\r\n", ["one\rstill one", "", "two"]),
        *((f"corpus{suffix}", JSON_LINES, JSON_SENTENCES) for suffix in (".jsonl", ".JSONL", ".json")),
        ("blank.jsonl", '"one"\n\n["two"]\n', ["one", "", ["two"]]),
        ("corpus.conllu", CONLLU, CONLLU_SENTENCES),
        ("windows.conllu", "\n\n" + CONLLU.replace("\n", "\r\n") + "\r\n\r\n", CONLLU_SENTENCES),
        ("proteins.faa", FASTA, PROTEINS),
        ("windows.fasta", "\ufeff\n" + FASTA.replace("\n", "\r\n"), PROTEINS),
        ("no name.fa", "mk V\n\n", [["M", "K", "V"]]),
        ("a.csv", '\ufeffid,text\r\n007,"One, ""two""\nlines"\r\n\r\nNA,\r\n', ['One, "two"\nlines', ""]),
        ("a.tsv", "tokens\tsentence\nOne, two\tno\n", ["One, two"]),
        ("semicolons.csv", "id;text\n1;a\n", ["a"]),
        ("quote.tsv", 'text\n"a\nb\n', ['"a', "b"]),
        ("mark.txt", "\ufeffOne\nTwo", ["One", "Two"]),
        ("mark.conllu", f"\ufeff1\tOne\t{BLANKS[:-1]}\n", [["One"]]),
    ],
)
def test_sentences_of_every_format(
    name: str, content: str, expected: list[Any], is_gzipped: bool, tmp_path: Path
) -> None:
    path = tmp_path / (name + (".GZ" if name.isupper() else ".gz") * is_gzipped)
    path.write_bytes(gzip.compress(content.encode()) if is_gzipped else content.encode())
    assert list(read_sentences(path)) == expected


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "gb18030"])
def test_a_file_is_read_in_the_encoding_given(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt.gz"
    path.write_bytes(gzip.compress("Größe\r\n\nà la\n".encode(encoding)))
    assert list(read_sentences(path, encoding=encoding)) == ["Größe", "", "à la"]


ZIPPED = gzip.compress(b"One sentence .\n" * 50)
NO_COLUMN = "PATH: the first line must name a column 'words' or 'tokens' or 'text' or 'sentence',"
REFUSED: list[tuple[str, bytes, str, str]] = [
    ("bad.jsonl", b'"fine"\n{"text": \n', "utf-8", "PATH, line 2: Expecting value"),
    ("number.jsonl", b'"fine"\n["fine"]\n17\n', "utf-8", "PATH, line 3: must be a string, a list of words"),
    ("mixed.jsonl", b'["word", 3]\n', "utf-8", "PATH, line 1: must be a string"),
    ("deep.jsonl", b'"a"\n' + b"[" * 100_000 + b"\n", "utf-8", "PATH, line 2: is nested too deeply"),
    ("cells.csv", b"id,text\n1,It left, then\n", "utf-8", "PATH, line 2: expected 2 columns, found 3"),
    ("columns.csv", b"id,body\n1,a\n", "utf-8", f"{NO_COLUMN} found id, body, separated by ','"),
    ("semicolons.csv", b"id;body\n1;a\n", "utf-8", f"{NO_COLUMN} found id, body, separated by ';'; choose one"),
    ("excel.csv", b"\r\nsep=;\r\nid;sentence\r\n1;a\r\n", "utf-8", "PATH, line 2: the line sep=; is for Excel alone;"),
    ("excel-tabs.tsv", b"sep=\t\nid\tsentence\n1\ta\n", "utf-8", "PATH, line 1: the line sep= is for Excel alone;"),
    ("excel-commas.csv", b"sep=,\nid,sentence\n1,a\n", "utf-8", "PATH, line 1: the line sep=, is for Excel alone;"),
    ("quote.csv", b'text\n"a\nb\n', "utf-8", "PATH, line 3: unexpected end of data"),
    ("short.conllu", b"# text\n1\tOne\t_\t_\n", "utf-8", "PATH, line 2: CoNLL-U has 10 columns"),
    ("word.conllu", f"1\t\t{BLANKS[:-1]}\n".encode(), "utf-8", "PATH, line 1: CoNLL-U has 10 columns"),
    ("zero.txt", b"fine\na\0b\n", "utf-8", "PATH, line 2: holds the character 0"),
    ("latin.txt", "fine\nGröße\n".encode("latin-1"), "utf-8", "PATH, line 2: not UTF-8 (byte 0xf6)"),
    ("far.txt", b"fine\n" * 9000 + b"\xff\n", "utf-8", "PATH, line 9001: not UTF-8 (byte 0xff)"),
    ("cp.txt", b"a\nb\n\x81", "cp1252", "PATH, line 3: not CP1252 (byte 0x81)"),
    ("cp.txt", "Größe\n".encode("cp1252") + b"\x81", "cp1252", "PATH, line 2: not CP1252 (byte 0x81). Find out its"),
    ("9.txt", b"a", "utf-9", "PATH: unknown encoding: utf-9. Use a name such as utf-8, cp1252 (Windows"),
    ("ansi.txt", b"a", "ansi", "PATH: unknown encoding: ansi. Use a name such as utf-8, cp1252 (Windows"),
    ("undefined.txt", b"a\xff", "undefined", "PATH: undefined encoding"),
    ("truncated.txt.gz", ZIPPED[:-9], "utf-8", "PATH, line 50: Compressed file ended before"),
    ("plain.txt.gz", b"plain text\n", "utf-8", "PATH: Not a gzipped file"),
    ("corrupt.txt.gz", ZIPPED[:10] + b"\xff" * 30, "utf-8", "PATH: Error -3 while decompressing data"),
]


@pytest.mark.parametrize(("name", "content", "encoding", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_read_is_named_with_its_line(
    name: str, content: bytes, encoding: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match="^" + re.escape(message.replace("PATH", str(path)))) as caught:
        list(read_sentences(path, encoding=encoding))
    assert len(str(caught.value)) < len(str(path)) + 300


TOO_LONG = "a row, sentence or protein of more than 134,217,728 characters"


@pytest.mark.parametrize(
    ("name", "content", "times", "message"),
    [
        ("a.txt", b"a", 1 << 27, ", line 1: holds the character 0, or more than 134,217,727 characters"),
        ("a.txt", b"a ", 20_000_001, ", line 1: holds the character 0, or more than .* or 20,000,000 b"),
        ("a.jsonl", b"[],", (1 << 21) + 1, ", line 1: holds more than 2,097,152 commas"),
        ("a.txt", b"a\t", 20_000_001, ", line 1: holds the character 0, or more than .* or 20,000,000 b"),
        ("a.conllu", f"1\t{'a' * (1 << 20)}\t{BLANKS[:-1]}\n".encode(), 128, f": {TOO_LONG}"),
        ("a.csv", b"text,", 1 << 21, f", line 1: {TOO_LONG}"),
        ("a.csv", b'"text\n"' + b"," * 1000, 2100, f", line 206\\d: {TOO_LONG}"),
        ("a.fasta", b"A", 2_100_000, f": {TOO_LONG}"),
    ],
)
def test_a_line_that_would_fill_memory_is_refused(name: str, content: bytes, times: int, message: str) -> None:
    file: Any = InputFile(name, io.BytesIO(content * times))
    with pytest.raises(ValueError, match=f"^standard input{message}"):
        list(read_sentences(file))


def test_a_protein_of_many_lines_that_would_fill_memory_is_refused() -> None:
    lines = b"A" * 1000 + b"\n"
    file: Any = InputFile("a.fasta", io.BytesIO(b">a\n" + lines * 2100))
    with pytest.raises(ValueError, match=f"^standard input: {TOO_LONG}"):
        list(read_sentences(file))


def test_a_dataset_without_its_library_is_refused_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    advice = r"this needs datasets, not installed here: pip install datasets, or in a clone .*'\.\[train\]'"
    with pytest.raises(ImportError, match=f"^org/films is no file, so it is read as a dataset: {advice}$"):
        list(read_dataset("org/films", "train"))


def test_a_dataset_with_damaged_compression_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Yes"}\n' * 50)[:12] + b"\xff" * 30)
    with pytest.raises(ValueError, match=f"{tmp_path} cannot be read as a dataset: Compressed"):
        list(read_dataset(str(tmp_path), "train"))


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


def test_a_dataset_without_its_library_is_refused_by_a_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"org/films is no file, .* pip install '\.\[train\]'"):
        next(read_dataset("org/films", "train"))
