"""Reading sentences: every format, plain and gzipped, and the errors that name file and line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elmo_hf.embedding.sentences import read_sentences

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
CONLLU_SENTENCES = [["Vamos", "nos", "a", "el", "mar", "."], ["New York", "!"]]


def write_plain(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def write_gzipped(path: Path, content: bytes) -> Path:
    path = path.with_name(path.name + ".gz")
    path.write_bytes(gzip.compress(content))
    return path


@pytest.fixture(params=[write_plain, write_gzipped], ids=["plain", "gz"])
def write(request: pytest.FixtureRequest) -> Callable[[Path, bytes], Path]:
    return request.param


@pytest.mark.parametrize("name", ["corpus.txt", "corpus", "corpus.v1.tok"])
def test_text_is_one_sentence_a_line_with_blank_lines_kept(
    write: Callable[[Path, bytes], Path], tmp_path: Path, name: str
) -> None:
    path = write(tmp_path / name, "The ferry left .\n\n  Größe 日本 \n\nEnd".encode())
    assert list(read_sentences(path)) == ["The ferry left .", "", "  Größe 日本 ", "", "End"]


def test_a_last_line_break_starts_no_sentence(tmp_path: Path) -> None:
    assert list(read_sentences(write_plain(tmp_path / "corpus.txt", b"One\nTwo\n"))) == ["One", "Two"]


def test_an_empty_file_has_no_sentences(write: Callable[[Path, bytes], Path], tmp_path: Path) -> None:
    assert list(read_sentences(write(tmp_path / "corpus.txt", b""))) == []


def test_line_breaks_of_windows_are_no_part_of_a_sentence(write: Callable[[Path, bytes], Path], tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.txt", b"One here\r\n\r\nTwo\r\n")
    assert list(read_sentences(path)) == ["One here", "", "Two"]


def test_text_split_into_words_is_cut_at_every_run_of_blanks(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "corpus.txt", b" The  ferry\tleft.\n\nisn't it?\r\n")
    assert list(read_sentences(path, split_into_words=True)) == [["The", "ferry", "left."], [], ["isn't", "it?"]]


@pytest.mark.parametrize("suffix", [".jsonl", ".JSONL"])
def test_json_lines_hold_strings_words_or_objects(
    write: Callable[[Path, bytes], Path], tmp_path: Path, suffix: str
) -> None:
    values = [
        "The ferry left.",
        ["New York", "!"],
        {"id": 3, "text": "Größe"},
        {"words": ["日本", "."], "label": 1},
        "",
        [],
        {"text": "line\nbreak"},
    ]
    path = write(tmp_path / f"corpus{suffix}", "\n".join(json.dumps(value) for value in values).encode())
    expected = ["The ferry left.", ["New York", "!"], "Größe", ["日本", "."], "", [], "line\nbreak"]
    assert list(read_sentences(path)) == expected


def test_splitting_json_lines_leaves_words_alone(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "corpus.jsonl", b'"The ferry"\n["New York", "!"]\n{"text": "so it is"}\n')
    assert list(read_sentences(path, split_into_words=True)) == [
        ["The", "ferry"],
        ["New York", "!"],
        ["so", "it", "is"],
    ]


def test_conllu_gives_the_syntactic_words_only(write: Callable[[Path, bytes], Path], tmp_path: Path) -> None:
    assert list(read_sentences(write(tmp_path / "corpus.conllu", CONLLU.encode()))) == CONLLU_SENTENCES


def test_conllu_with_line_breaks_of_windows_and_spare_blank_lines_is_the_same(tmp_path: Path) -> None:
    content = "\n\n" + CONLLU.replace("\n", "\r\n") + "\r\n\r\n"
    path = write_plain(tmp_path / "corpus.conllu", content.encode())
    assert list(read_sentences(path, split_into_words=True)) == CONLLU_SENTENCES


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [("corpus.txt", "One\nTwo", ["One", "Two"]), ("corpus.conllu", "1\tOne" + 8 * "\t_" + "\n", [["One"]])],
    ids=["text", "conllu"],
)
def test_a_byte_order_mark_is_no_part_of_the_first_word(
    tmp_path: Path, name: str, content: str, expected: list
) -> None:
    assert list(read_sentences(write_plain(tmp_path / name, b"\xef\xbb\xbf" + content.encode()))) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.jsonl", b'"fine"\n{"text": \n', r"^bad\.jsonl, line 2: not JSON \(Expecting value: .*\)\.$"),
        (
            "number.jsonl",
            b'"fine"\n["fine"]\n17\n',
            r"^number\.jsonl, line 3: must be a string, a list of words, or an object with `text` or `words`, "
            r"found '17'\.$",
        ),
        ("mixed.jsonl", b'["word", 3]\n', r"^mixed\.jsonl, line 1: must be .* found '\[\"word\", 3\]'\.$"),
        ("keys.jsonl", b'{"sentence": "x"}\n', r"^keys\.jsonl, line 1: must be .* found '\{\"sentence\": \"x\"\}'\.$"),
        (
            "short.conllu",
            b"# text\n1\tOne\t_\t_\n",
            r"^short\.conllu, line 2: CoNLL-U has 10 columns, found 4\.$",
        ),
        ("blanks.conllu", b"1 One _ _ _ _ _ _ _ _\n", r"^blanks\.conllu, line 1: CoNLL-U has 10 columns, found 1\.$"),
    ],
    ids=["cut json", "number", "words and numbers", "other keys", "few columns", "no tabs"],
)
def test_a_line_that_is_not_of_the_format_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = write_plain(tmp_path / name, content)
    with pytest.raises(ValueError, match=message):
        list(read_sentences(path))


def test_a_long_faulty_line_is_quoted_in_part(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "long.jsonl", b"[" + b"7, " * 100 + b"7]\n")
    with pytest.raises(ValueError, match=r"long\.jsonl, line 1: .*, found '.{80}'\.$"):
        list(read_sentences(path))


def test_a_gzipped_file_is_named_in_full(tmp_path: Path) -> None:
    path = write_gzipped(tmp_path / "bad.jsonl", b"17")
    with pytest.raises(ValueError, match=r"^bad\.jsonl\.gz, line 1: "):
        list(read_sentences(path))


@pytest.mark.parametrize("name", ["latin.txt", "latin.jsonl", "latin.conllu"])
def test_a_file_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    path = write_plain(tmp_path / name, '"Größe"\n'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"^latin\.\w+"):
        list(read_sentences(path))


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-9], lambda content: b"plain text\n", lambda content: content[:12] + b"\xff" * 30],
    ids=["truncated", "not gzipped", "corrupt"],
)
def test_a_damaged_gzipped_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "damaged.txt.gz"
    path.write_bytes(damage(gzip.compress(b"One sentence .\n" * 50)))
    with pytest.raises(ValueError, match=r"^damaged\.txt\.gz"):
        list(read_sentences(path))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        list(read_sentences(tmp_path / "nowhere.txt"))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("lines.jsonl", b'"one"\n\n["two"]\n', ["one", "", ["two"]]),
        ("lines.txt", b"one\rstill one\n\r\ntwo\r\n", ["one\rstill one", "", "two"]),
    ],
    ids=["blank json line", "lone carriage return"],
)
def test_the_nth_sentence_is_the_nth_line(tmp_path: Path, name: str, content: bytes, expected: list) -> None:
    assert list(read_sentences(write_plain(tmp_path / name, content))) == expected
    assert list(read_sentences(write_gzipped(tmp_path / name, content))) == expected
