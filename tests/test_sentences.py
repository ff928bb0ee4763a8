"""Reading sentences: every format, plain and gzipped, and the errors that name file and line."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elmo_hf.text import sentences
from elmo_hf.text.sentences import read_sentences

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


@pytest.mark.parametrize("suffix", [".jsonl", ".JSONL", ".json"])
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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"sentence": "d", "text": "c", "tokens": ["b"], "words": ["a"]}, ["a"]),
        ({"sentence": "d", "text": "c", "tokens": ["b"]}, ["b"]),
        ({"sentence": "d", "text": "c"}, "c"),
        ({"sentence": "d"}, "d"),
        ({"words": None, "text": "c"}, "c"),
        ({"words": [], "text": "c"}, []),
        ({"words": None, "text": None}, ""),
    ],
    ids=str,
)
def test_of_the_keys_of_an_object_the_first_one_with_a_value_is_read(
    value: dict, expected: object, tmp_path: Path
) -> None:
    path = write_plain(tmp_path / "corpus.jsonl", json.dumps(value).encode())
    assert list(read_sentences(path)) == [expected]


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
        (
            "bad.jsonl",
            b'"fine"\n{"text": \n',
            "PATH, line 2: not JSON (Expecting value: line 2 column 1 (char 10)); each",
        ),
        (
            "list.json",
            b'[\n"a"\n]\n',
            "PATH, line 1: not JSON (Expecting value: line 2 column 1 (char 2)); each line must",
        ),
        (
            "number.jsonl",
            b'"fine"\n["fine"]\n17\n',
            "PATH, line 3: must be a string, a list of words, or an object with one of them, found 17.",
        ),
        ("mixed.jsonl", b'["word", 3]\n', "PATH, line 1: must be a string, a list of words, or an object with one of"),
        ("value.jsonl", b'{"text": {}}\n', "PATH, line 1: must be a string, a list of words, or an object with one of"),
        (
            "keys.jsonl",
            b'{"id": 3, "body": "x"}\n',
            "PATH, line 1: must have 'words', 'tokens', 'text' or 'sentence', found 'body', 'id'.",
        ),
        ("none.jsonl", b"{}\n", "PATH, line 1: must have 'words', 'tokens', 'text' or 'sentence', found nothing."),
        ("deep.jsonl", b'"a"\n' + b"[" * 100_000 + b"\n", "PATH, line 2: not JSON (maximum recursion depth"),
        ("deep.jsonl", b'{"text":' * 100_000 + b"\n", "PATH, line 1: not JSON (maximum recursion depth"),
        ("digits.jsonl", b"1" * 5000 + b"\n", "PATH, line 1: Exceeds the limit (4300 digits) for integer string"),
        ("short.conllu", b"# text\n1\tOne\t_\t_\n", "PATH, line 2: CoNLL-U has 10 columns"),
        ("blanks.conllu", b"1 One _ _ _ _ _ _ _ _\n", "PATH, line 1: CoNLL-U has 10 columns"),
        (
            "number.conllu",
            b"one\tOne" + 8 * b"\t_" + b"\n",
            "PATH, line 1: CoNLL-U has 10 columns",
        ),
        ("word.conllu", b"1\t" + 8 * b"\t_" + b"\n", "PATH, line 1: CoNLL-U has 10 columns"),
        ("zero.txt", b"fine\na\0b\n", "PATH, line 2: holds the character 0; the file looks like UTF-16 without a byte"),
        ("16.txt", "fine\n".encode("utf-16-le"), "PATH, line 1: holds the character 0; the file looks like UTF-16 wi"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 15 else "",
)
def test_a_line_that_is_not_of_the_format_is_named(
    write: Callable[[Path, bytes], Path], tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match="^" + re.escape(message.replace("PATH", str(path)))):
        list(read_sentences(path))


def test_a_long_faulty_line_is_quoted_in_part(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "long.jsonl", b"[" + b"7, " * 100 + b"7]\n")
    with pytest.raises(ValueError, match=r"long\.jsonl, line 1: .*, found \[.{79}\.$"):
        list(read_sentences(path))


def test_a_line_without_end_is_refused_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "MAX_LINE_CHARACTERS", 1000)
    path = write_gzipped(tmp_path / "long.txt", b"a" * 998 + b"\n" + b"a" * 100_000)
    read = read_sentences(path)
    assert next(read) == "a" * 998
    with pytest.raises(ValueError, match=r"long\.txt\.gz, line 2: longer than 1,000 characters\.$"):
        next(read)


ADVICE = "Give the file's encoding, such as `--encoding latin-1`, or convert the file to UTF-8."


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        ("fine\nGröße\n".encode("latin-1"), "utf-8", f"PATH, line 2: not UTF-8 (byte 0xf6). {ADVICE}"),
        (b"fine\n" * 9000 + b"\xff\n", "utf-8", f"PATH, line 9001: not UTF-8 (byte 0xff). {ADVICE}"),
        (b"fine\n\xc3", "utf-8", f"PATH, line 2: not UTF-8 (byte 0xc3). {ADVICE}"),
        (b"a\nb\n\x81", "cp1252", f"PATH, line 3: not CP1252 (byte 0x81). {ADVICE}"),
        ("fine\n".encode("utf-16")[:-1], "utf-16", f"PATH, line 1: not UTF-16 (byte 0x0a). {ADVICE}"),
        ("fi\nfi\n".encode("utf-16")[:-1], "UTF-16", f"PATH, line 2: not UTF-16 (byte 0x0a). {ADVICE}"),
        ("fine".encode("utf-16"), "utf-8", "PATH, line 1: not UTF-8 (byte 0xff). It looks like UTF-16: give the enc"),
        ("fine".encode("utf-32"), "utf-8", "PATH, line 1: not UTF-8 (byte 0xff). It looks like UTF-32: give the enc"),
        (gzip.compress(b"a"), "utf-8", "PATH, line 1: not UTF-8 (byte 0x8b). It looks like a gzipped file: its name"),
        (b"\xfd7zXZ", "utf-8", "PATH, line 1: not UTF-8 (byte 0xfd). It looks like an xz archive: unpack it."),
        (b"PK\x03\x04\0", "utf-8", "PATH, line 1: holds the character 0; the file looks like a zip archive, or a doc"),
        (b"a", "utf-9", "there is no encoding of text 'utf-9'; well-known ones are utf-8, utf-16, latin-1, cp1252."),
        (b"a", "hex", "there is no encoding of text 'hex'; well-known ones are"),
        (b"a", "a\0b", "there is no encoding of text 'a\\x00b'; well-known ones are"),
        (b"a\nb\n\\x", "unicode_escape", f"PATH, line 3: not UNICODE_ESCAPE (byte 0x5c). {ADVICE}"),
        (b"a\xff", "undefined", "PATH: not UNDEFINED (undefined encoding)."),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 10 else "",
)
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".conllu"])
def test_text_of_another_encoding_is_named_with_its_line_and_with_what_to_do(
    suffix: str, content: bytes, encoding: str, message: str, tmp_path: Path
) -> None:
    if suffix != ".txt" and not message.startswith("PATH, line 1: not"):
        content, message = b'"a"\xff', f"PATH, line 1: not UTF-8 (byte 0xff). {ADVICE}"
        encoding = "utf-8"
    path = write_plain(tmp_path / f"corpus{suffix}", content)
    with pytest.raises(ValueError, match="^" + re.escape(message.replace("PATH", str(path)))):
        list(read_sentences(path, encoding=encoding))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "gb18030"])
def test_a_file_is_read_in_the_encoding_given(
    encoding: str, write: Callable[[Path, bytes], Path], tmp_path: Path
) -> None:
    path = write(tmp_path / "corpus.txt", "Größe\r\n\nà la\n".encode(encoding))
    assert list(read_sentences(path, encoding=encoding)) == ["Größe", "", "à la"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-9], "Compressed file ended before the end-of-stream marker was reached."),
        (lambda content: b"plain text\n", "Not a gzipped file (b'pl')."),
        (lambda content: content[:10] + b"\xff" * 30, "Error -3 while decompressing data"),
    ],
    ids=["truncated", "not gzipped", "corrupt"],
)
def test_a_damaged_gzipped_file_is_named(damage: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.txt.gz"
    path.write_bytes(damage(gzip.compress(b"One sentence .\n" * 50)))
    expected = f"{path} must be a gzipped file, because its name ends in .gz: {message}"
    with pytest.raises(ValueError, match="^" + re.escape(expected)):
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


def test_a_suffix_in_capitals_is_gzip_too(tmp_path: Path) -> None:
    (tmp_path / "A.TXT.GZ").write_bytes(gzip.compress(b"A ferry .\n"))
    assert [*read_sentences(tmp_path / "A.TXT.GZ")] == ["A ferry ."]


def test_a_dataset_with_damaged_compression_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")

    def rows(*_: object, **__: object) -> Iterator[dict[str, str]]:
        yield {"text": "Yes"}
        raise zlib.error("incorrect data check")

    monkeypatch.setattr(datasets, "load_dataset", rows)
    with pytest.raises(ValueError, match="x cannot be read as a dataset: incorrect data check"):
        list(sentences.read_dataset("x", "train", lambda row: row["text"]))
