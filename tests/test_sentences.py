"""Reading sentences: every format, plain and gzipped, and the errors that name file and line."""

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from elmo_hf.embedding.stores import InputFile
from elmo_hf.text.sentences import read_dataset, read_sentences

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
        ("no name.fa", "mk\nV", [["M", "K", "V"]]),
        ("a.csv", '\ufeffid,text\r\n007,"One, ""two""\nlines"\r\n\r\nNA,\r\n', ['One, "two"\nlines', ""]),
        ("a.tsv", "tokens\tsentence\nOne, two\tno\n", ["One, two"]),
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
    ("deep.jsonl", b'"a"\n' + b"[" * 100_000 + b"\n", "utf-8", "PATH, line 2: maximum recursion depth"),
    ("cells.csv", b"id,text\n1,It left, then\n", "utf-8", "PATH, line 2: expected 2 columns, found 3"),
    ("columns.csv", b"id,body\n1,a\n", "utf-8", f"{NO_COLUMN} found id, body, separated by ','"),
    ("semicolons.csv", b"id;text\n1;a\n", "utf-8", f"{NO_COLUMN} found id;text, separated by ','"),
    ("quote.tsv", b'text\n"a\nb\n', "utf-8", "PATH, line 3: unexpected end of data"),
    ("short.conllu", b"# text\n1\tOne\t_\t_\n", "utf-8", "PATH, line 2: CoNLL-U has 10 columns"),
    ("word.conllu", f"1\t\t{BLANKS[:-1]}\n".encode(), "utf-8", "PATH, line 1: CoNLL-U has 10 columns"),
    ("zero.txt", b"fine\na\0b\n", "utf-8", "PATH, line 2: holds the character 0"),
    ("latin.txt", "fine\nGröße\n".encode("latin-1"), "utf-8", "PATH, line 2: not UTF-8 (byte 0xf6)"),
    ("far.txt", b"fine\n" * 9000 + b"\xff\n", "utf-8", "PATH, line 9001: not UTF-8 (byte 0xff)"),
    ("cp.txt", b"a\nb\n\x81", "cp1252", "PATH, line 3: not CP1252 (byte 0x81)"),
    ("9.txt", b"a", "utf-9", "PATH: unknown encoding: utf-9"),
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
        ("a.fasta", b"A" * 1000 + b"\n", 2100, f": {TOO_LONG}"),
    ],
)
def test_a_line_that_would_fill_memory_is_refused(name: str, content: bytes, times: int, message: str) -> None:
    file: Any = InputFile(name, io.BytesIO(content * times))
    with pytest.raises(ValueError, match=f"^standard input{message}"):
        list(read_sentences(file))


def test_a_dataset_with_damaged_compression_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Yes"}\n' * 50)[:12] + b"\xff" * 30)
    with pytest.raises(ValueError, match=f"{tmp_path} cannot be read as a dataset: Compressed"):
        list(read_dataset(str(tmp_path), "train"))
