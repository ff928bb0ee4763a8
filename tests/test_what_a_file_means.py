"""A file is read as its writer meant it, or refused with what to do: formats, cells, encodings, line ends."""

import csv
import gzip
import io
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmo_hf.text.first_look import are_wrapped
from elmo_hf.text.sentences import read_sentences
from elmo_hf.training.corpora import read_sources
from tests.helpers.checkpoints import shared
from tests.helpers.commands import output_of, run

SENTENCES: list[Any] = [["The", "old", "sailor", "slept", "."], ["Ada", "left", "."]]
COUPLES: list[Any] = [["The", "old"], ["sailor", "slept"]]
CONLL2003 = (
    "-DOCSTART- -X- O O\n\nThe DT B-NP O\nold JJ I-NP O\nsailor NN I-NP O\nslept VBD B-VP O\n. . O O\n\n"
    "Ada NNP B-NP B-PER\nleft VBD B-VP O\n. . O O\n"
)
BLANKS = "\t_" * 8
CONLLU = "".join(
    "# sent_id = x\n" + "".join(f"{number}\t{word}{BLANKS}\n" for number, word in enumerate(words, 1)) + "\n"
    for words in SENTENCES
)
# CoNLL-2009 has 14 columns and more, CoNLL-2012 counts in the third column.
CONLL2009 = CONLLU.replace(BLANKS, "\t_" * 12).replace("# sent_id = x\n", "")
CONLL2012 = "#begin document (a); part 000\n" + "".join(
    "".join(f"a  0  {number}  {word}  X  *\n" for number, word in enumerate(words)) + "\n" for words in SENTENCES
)
TWO_COLUMNS = "The\tO\nold\tO\nsailor\tO\nslept\tO\n.\tO\n\nAda\tB-PER\nleft\tO\n.\tO\n"
TAGS = "The DET\nold ADJ\nsailor NOUN\nslept VERB\n. PUNCT\n\nAda PROPN\nleft VERB\n. PUNCT\n"
OBJECTS = '{"text": "We sat."}\n{"text": "They left."}\n'
FASTA = ">sp|P1|A a protein\nMKTAYIAKQRQISFVKSHFSRQ\nLEER\n>sp|P2|B\nMSEQ\n"
PROTEINS: list[Any] = [list("MKTAYIAKQRQISFVKSHFSRQLEER"), list("MSEQ")]
TEXTS: list[Any] = ["We sat.", "They left."]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def notes() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("elmo_hf.text")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("names", "content", "expected", "note"),
    [
        (".jsonl .ndjson .NDJSON .json .jl", OBJECTS, TEXTS, ""),
        (".conllu .conll-u", CONLLU, SENTENCES, ""),
        (".conll .conllx .CoNLL03 .bio .iob2", CONLL2003, SENTENCES, ""),
        (".conll .conllx .conll09", CONLLU, SENTENCES, ""),
        (".conll .conll09", CONLL2009, SENTENCES, ""),
        (".conll .conll12", CONLL2012, SENTENCES, ""),
        (".conll .bio", TWO_COLUMNS, SENTENCES, ""),
        (".fasta .fa .faa .fas .FAS .pep .fna .ffn .frn .seq", FASTA, PROTEINS, ""),
        (".tsv .tab", "id\ttext\n1\tWe sat.\n2\tThey left.\n", TEXTS, ""),
        (".txt .corpus", OBJECTS, TEXTS, "looks like JSON lines"),
        (".txt", '[\n  "We sat.",\n  "They left."\n]\n', TEXTS, "looks like JSON lines"),
        (".txt .train", CONLLU, SENTENCES, "looks like CoNLL-U"),
        (".txt .train", CONLL2003, SENTENCES, "looks like words in columns"),
        (".txt .testa", CONLL2003.partition("\n\n")[2], SENTENCES, "looks like words in columns"),
        (".txt .train", TWO_COLUMNS, SENTENCES, "looks like words in columns"),
        (".train", CONLL2009, SENTENCES, "looks like words in columns"),
        (".gold", CONLL2012, SENTENCES, "looks like words in columns"),
        (".pos", TAGS, SENTENCES, "looks like words in columns"),
        (".pos", "The DT\nold JJ\n\nsailor NN\nslept VBD\n", COUPLES, "looks like words in columns"),
        (".txt", "The B-NP\nold I-NP\n\nsailor I-NP\nslept B-VP\n", COUPLES, "looks like words in columns"),
        (
            ".txt",
            "The DT I-NP\nold JJ I-NP\n\nsailor NN I-NP\nslept VBD I-VP\n",
            COUPLES,
            "looks like words in columns",
        ),
        (".txt", '[["The", "old"], ["sailor", "slept"]]\n', COUPLES, "looks like JSON lines"),
        (".txt", '[\n [\n  "The",\n  "old"\n ],\n ["sailor", "slept"]\n]\n', COUPLES, "looks like JSON lines"),
        (".txt", '[\n ["The", "old"],\n ["sailor", "slept"]\n]\n', COUPLES, "looks like JSON lines"),
        (".txt .prot", FASTA, PROTEINS, "looks like FASTA"),
        (".txt .dat", "id\ttext\n1\tWe sat.\n2\tThey left.\n", TEXTS, "looks like a table"),
        (".txt", "id;text\n1;We sat.\n2;They left.\n", TEXTS, "looks like a table"),
    ],
)
def test_a_format_is_recognised_by_its_suffix_or_by_first_lines_that_no_text_has(
    names: str, content: str, expected: list[Any], note: str, tmp_path: Path, notes: list[str]
) -> None:
    for suffix in names.split():
        for path in (written(tmp_path / f"x{suffix}", content), tmp_path / f"x{suffix}.gz", tmp_path / f"y{suffix}"):
            if path.name.startswith("y") or path.suffix == ".gz":
                written(path, gzip.compress(content.encode()))  # gzipped files may lack their suffix
            notes.clear()
            assert list(read_sentences(path)) == expected, path.name
            assert [f"{path} {note}" in line for line in notes[:1]] == [True] * bool(note)


RAW = {
    "tabs in a text": "A\tb c.\nNo tab here.\nTwo\ttabs\there.\n",
    "one line with a tab": "A\tb c.",
    "braces": "{laughs} Yes.\n{door closes} No.\n",
    "brackets": "[1] Yes.\n[2] No.\n",
    "references": "[1]\n[2]\n",
    "quoted mail": "> Are you there?\n\nYes\n",
    "quoted mail without blanks": ">Are you there?\nI am.\n",
    "an answer in small letters below quoted mail": ">you there\nyes\n>when\nsoon\n",
    "one long word below quoted mail": "> Wohin?\nDonaudampfschifffahrt!\n",
    "a long cry below quoted mail": ">no\nnooooooooooooooooooooo\n",
    "Markdown": "# Title\n\n> quote\n\n- one\n- two\n",
    "two words a line": "Hello world\nGood night\n",
    "names in capitals": "JOHN SMITH\nMARY JONES\n",
    "commas": "Words, text\nHello, world\n",
    "quotes": '"No!"\n"Yes," he said.\n',
    "one line": "anarchism originated as a term of abuse",
    "capitals": "I O\nU O\nYOU WIN\n",
    "a semicolon": "text; words\nmore\n",
    "zero width": "a\ufeffb c\n",
    "next line": "a\x85b\n",
    "separators": "a\x1cb \u2028 c\n",
    "numbers": "1 2 3\n4 5 6\n",
    "a numbered list": "1 apple\n2 pears\n3 plums\n",
    "blank": "\n\n",
    "prose that begins like a header": "text, more text\nI said, hello\n",
    "prose of two equal words": "words,words\nmore,less\n",
    "braces on lines of their own": '{\n"hello" he said\n}\n',
    "brackets on lines of their own": '[\n"Hello," he said.\n]\n',
    "prose on CoNLL": "-DOCSTART- is a token\nof a corpus\n",
    "prose on documents": "# begin document markers are used\nin some corpora\n",
    "paragraphs with a tab": "\tThe morning came.\n\tWe left.\n",
    "tabs at ends of lines": "The morning came.\t\nWe left.\t\n",
    "a poem of two words a line": "Old sailor,\nCold harbour.\n\nGrey morning,\nLong water.\n\nNo rest,\nNo shore.\n",
    "two words with marks": "Hello !\nBye .\n? !\nOh ...\n",
    "a railway in German": "die U-Bahn\ndie S-Bahn\n",
    "a word with a tag": "The DT\n",
    "frequencies": "the 123\n, 120\n. 119\nof 100\n",
    "tags of a sentence": "__label__1 good film\n__label__2 bad film\n",
    "PAR1": "PAR1 is a gene.\n",
    "BZh": "BZh is no word.\n",
}


@pytest.mark.parametrize("name", RAW)
def test_raw_text_is_read_line_by_line_whatever_is_in_it(name: str, tmp_path: Path) -> None:
    for suffix in ("txt", "text", "en", ""):
        path = written(tmp_path / f"x.{suffix}", RAW[name])
        assert list(read_sentences(path)) == RAW[name].removesuffix("\n").split("\n")


def test_a_format_that_is_said_outright_is_read_whatever_name_and_first_lines_are(tmp_path: Path) -> None:
    for input_format, content, expected in (
        ("text", OBJECTS, OBJECTS.splitlines()),
        ("text", FASTA, FASTA.splitlines()),
        ("jsonl", '"a"\n', ["a"]),
        ("table", "text,id\na,1\n", ["a"]),
        ("conllu", CONLLU, SENTENCES),
        ("conll", "a b\n\nc d\n", [["a"], ["c"]]),
        ("fasta", ">a\nOK\n", [["O", "K"]]),
    ):
        for name in ("x.txt", "x.jsonl", "x.csv", "x.parquet", "x"):
            path = written(tmp_path / name, content)
            assert list(read_sentences(path, input_format=input_format)) == expected, (name, input_format)


@pytest.mark.parametrize(("column", "words"), [("1", ["x", "y"]), ("-1", ["O", "B-PER"]), ("0", ["a", "b"])])
def test_another_column_of_words_is_given_by_its_number(column: str, words: list[str], tmp_path: Path) -> None:
    assert list(read_sentences(written(tmp_path / "x.bio", "a x O\nb y B-PER\n"), column=column)) == [words]


COLUMNS_OR_TEXT = ("looks like words in columns", "input_format='conll'", "input_format='text'")
ENCODING_UNKNOWN = ("Find out its encoding", "encoding='NAME'")
# What has two meanings, or none, and words of the line that says what to do.
REFUSED: list[tuple[str, str | bytes, tuple[str, ...]]] = [
    ("x.txt", ">a\nOK\n", ("looks like FASTA", "input_format='fasta'", "input_format='text'")),
    ("x.txt", "1\teng\tLet's go.\n2\teng\tI have to.\n", ("a table of 3 columns", "input_format='table'", "text")),
    ("x.txt", "the\t5\nof\t4\n", ("a table of 2 columns", "input_format='table'", "input_format='text'")),
    ("x.txt", "the\t5\nof\t4\n\na\t3\n", ("a table of 2 columns", "input_format='conll'", "input_format='text'")),
    ("x.txt", "the O\nold O\n", COLUMNS_OR_TEXT),
    ("x.txt", "the DT\nold JJ\n", COLUMNS_OR_TEXT),
    ("x.txt", "Ada B-person\nleft B-other\n", COLUMNS_OR_TEXT),
    ("x.txt", "Der ART\nalte ADJA\nMann NN\n. $.\n", COLUMNS_OR_TEXT),
    ("x.txt", "the det\nold adj\nman noun\n\na det\nbig adj\nship noun\n\nno det\nway noun\nup adj\n", COLUMNS_OR_TEXT),
    ("x.txt", "WAIT NOW\n! HELP\nOLD MAN\nRED SEA\n", COLUMNS_OR_TEXT),
    ("x.txt", ">no\nNOOOOOOOOOOOOOOOOOOOOOOO\n", ("looks like FASTA", "input_format='fasta'", "input_format='text'")),
    ("x.txt", ">a\nmktayiakqrqisfvkshfsr\nlee\n", ("looks like FASTA", "input_format='fasta'", "input_format='text'")),
    ("x.txt", ">a\nMKTAYIAKQrqisfvkshFSRQ\n", ("looks like FASTA", "input_format='fasta'", "input_format='text'")),
    # Several lines without a header may be one protein or several.
    ("x.fasta", "SEQWENCE\nPROTEIN\n", ("line 2: several lines of residues", "Put a line `>NAME` above each protein.")),
    ("x.fasta", "\n;a\nSEQW\n\nENCE\n>a\nW\n", ("line 5: several lines of residues", "one protein or several")),
    ("x.txt", "id\ttext\n1\ta\n2\tb\tc\n3\td\n", ("line 3: expected 2 columns, found 3",)),
    ("x.txt", "<!DOCTYPE html>\n<p>a</p>\n", ("HTML", "input_format='text'")),
    ("x.bio", "a x O\nb O\n", ("line 2: expected 3 columns as before, found 2",)),
    ("x.docx", b"PK\x03\x04" + bytes(20), ("x.docx is not text but a zip file", "unpack")),
    ("x.bz2", b"BZh91AY&SY\x01", ("bzip2", "bunzip2")),
    ("x.xz", b"\xfd7zXZ\x00\x00", ("xz", "unxz")),
    ("x.zst", b"\x28\xb5\x2f\xfd\x00", ("zstandard",)),
    ("x.pdf", b"%PDF-1.7\n\xff", ("a PDF", "pdftotext")),
    ("x.h5", b"\x89HDF\r\n\x1a\n\x00", ("HDF5",)),
    ("x.pkl", b"\x80\x04\x95\x00", ("pickle",)),
    ("x.parquet", b"PAR1 no more", ("x.parquet",)),
    # cells
    (
        "x.csv",
        "id,text,words\n1,We sat.,8\n2,They left.,5\n",
        ("'words' holds numbers", "column='NAME'", "id, text, words"),
    ),
    ("x.csv", 'id,tokens\n1,"[3, 5]"\n', ("'tokens' holds lists of numbers", "column='NAME'")),
    ("x.csv", "id,tokens\n1,\"['a', 'b']\"\n2,a b\n", ("line 3", "list written as text")),
    ("x.csv", "id,tokens\n1,a b\n2,\"['a', 'b']\"\n", ("line 3", "list written as text")),
    ("x.csv", "id,tokens\n1,a b\n2,['a' 'b']\n", ("line 3", "list written as text")),
    ("x.csv", 'id,text\n1,"We left\n2,It was cold\n3,We came back"\n4,No\n', ("line 4", "line 2", "rows")),
    ("x.tsv", 'id\ttext\n1\t"a\tb\n2\tc"\n3\t"d\te"\n', ("line 3", "rows")),
    ("x.csv", "text,text\na,b\n", ("'text' twice",)),
    ("x.csv", 'text\na\rb\n"c"\n', ("line 2", "carriage return")),
    ("x.json", '["New York", "left"]\n', ("may be a list of words or of texts", "one value a line")),
    ("x.jsonl", '["We sat on the bank.", "He left the room."]\n["a", "b"]\n', ("line 1", "a list of texts")),
    ("x.jsonl", '{"data": {"text": "We sat."}}\n', ("line 1", "found {'data'")),
    ("x.json", '{\n "data": [1]\n}\n', ("line 1", "found {'data': [1]}")),
    ("x.json", '[\n {"text": "a"},\n {"text"}\n]\n', ("line 3",)),
    # encodings
    ("x.txt", "Apple doesn’t want it.\nShe said “no” – again.\n".encode("cp1252"), ("line 1", "encoding='cp1252'")),
    ("x.txt", "Über den Fluss.\n".encode("latin-1"), ("line 1", "encoding='cp1252'")),
    ("x.txt", "Мы сидели на берегу реки, и вода была холодной.\n".encode("cp1251"), ("encoding='cp1251'",)),
    ("x.txt", "Żółta łódź płynie po rzece.\n".encode("iso8859-2"), ENCODING_UNKNOWN),
    ("x.txt", "é naïve café\n".encode() * 3 + b"\xff\n", ("line 4", "text before it is UTF-8", "repair")),
    ("x.txt", "We sat.\n".encode("utf-16-le"), ("encoding='utf-16-le'",)),
    ("x.txt", "We sat.\n".encode("utf-32-be"), ("encoding='utf-32-be'",)),
]


@pytest.mark.parametrize(("name", "content", "words"), REFUSED, ids=[f"{row[0]} {row[1]!r:.40}" for row in REFUSED])
def test_what_may_mean_two_things_or_nothing_is_refused_in_one_line_with_what_to_do(
    name: str, content: str | bytes, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(ValueError, match=name) as caught:
        list(read_sentences(path))
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        (
            '1\t"We left early .\n2\tIt was cold .\n3\tWe came back ."\n',
            ['"We left early .', "It was cold .", 'We came back ."'],
        ),
        ('1\t"No!"\n2\tYes.\n', ['"No!"', "Yes."]),
        ('1\t"We left .\n2\t"It was .\n', ['"We left .', '"It was .']),
        ('1\tYes.\n2\t"No!"\n3\t"a\n', ["Yes.", '"No!"', '"a']),
        ('1\t"We left ""it"" ."\n2\tYes.\n', ['We left "it" .', "Yes."]),
        ('1\t"We left ""it"" ."\n2\tYes, "no".\n', ['"We left ""it"" ."', 'Yes, "no".']),
        ('1\t"We left."\n2\t"No."\n', ["We left.", "No."]),
        ('1\t"We\nleft."\n2\tNo.\n', ["We\nleft.", "No."]),
        ('1\t"We\tleft."\n2\tNo.\n', ["We\tleft.", "No."]),
    ],
)
def test_a_quote_in_a_tsv_is_a_letter_unless_all_quotes_are_a_writers(
    content: str, cells: list[str], tmp_path: Path
) -> None:
    assert list(read_sentences(written(tmp_path / "x.tsv", f"id\ttext\n{content}"))) == cells


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_cells_that_a_writer_quoted_come_back(suffix: str, quoting: Any, tmp_path: Path) -> None:
    texts = ['He said "no", and left.', 'It rained,\nall day, "they" said.', "007", "NA", "", "'single'", '"', "a, b"]
    stream = io.StringIO()
    writer = csv.writer(stream, "excel" if suffix == ".csv" else "excel-tab", quoting=quoting)
    writer.writerows([["id", "text"], *([number, text] for number, text in enumerate(texts))])
    path = written(tmp_path / f"x{suffix}", stream.getvalue())
    assert list(read_sentences(path)) == texts


def test_lists_that_a_table_holds_as_text_are_read_if_all_rows_are_such_lists(tmp_path: Path, notes: list[str]) -> None:
    lists = [["The", "old", "can't", '"', "."], [], ["Ada", "left", "."]]
    content = "".join(f'{number},"{str(words).replace(chr(34), chr(34) * 2)}"\n' for number, words in enumerate(lists))
    assert list(read_sentences(written(tmp_path / "x.csv", f"id,tokens\n{content}"))) == lists
    assert "lists written as text" in notes[0]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.json", '["We sat on the bank.", "They left."]', ["We sat on the bank.", "They left."]),
        ("x.json", '["The", "old", "sailor"]\n', [["The", "old", "sailor"]]),
        ("x.json", '[{"text": "a b"}, {"text": "c"}]', ["a b", "c"]),
        ("x.json", '[\n {"text": "a b"},\n {"text": "c"}\n]\n', ["a b", "c"]),
        ("x.json", '[["a", "b"], ["c"]]', [["a", "b"], ["c"]]),
        ("x.json", '{\n "text": "a b"\n}\n', ["a b"]),
        ("x.json", '["a", "b"]\n["c"]\n', [["a", "b"], ["c"]]),
        ("x.jsonl", '["xã hội", "New York"]\n["c d"]\n', [["xã hội", "New York"], ["c d"]]),
    ],
)
def test_a_json_document_is_read_value_by_value(name: str, content: str, expected: list[Any], tmp_path: Path) -> None:
    assert list(read_sentences(written(tmp_path / name, content))) == expected


@pytest.mark.parametrize("is_piped", [False, True])
def test_parquet_is_read_by_its_column(is_piped: bool, tmp_path: Path) -> None:
    columns = {"id": [1, 2, 3], "text": ["a b", "", None], "said": [["a", "b"], [], ["c d"]]}
    path = tmp_path / ("x.parquet.gz" if is_piped else "x.pq")
    pq.write_table(pa.table(columns), tmp_path / "t")
    written(path, gzip.compress((tmp_path / "t").read_bytes()) if is_piped else (tmp_path / "t").read_bytes())
    assert list(read_sentences(path)) == ["a b", "", ""]
    assert list(read_sentences(path, column="said")) == columns["said"]
    assert list(read_sentences(tmp_path / "t")) == ["a b", "", ""]  # by its first bytes
    for column, words in (("id", "neither texts nor lists"), ("none", "id (int64), text (string)")):
        with pytest.raises(ValueError, match="x\\.") as caught:
            list(read_sentences(path, column=column))
        assert words in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_the_mark_of_an_encoding_decides_and_is_dropped(encoding: str, tmp_path: Path, notes: list[str]) -> None:
    codec = encoding.removesuffix("-sig")
    content = (
        "\ufeffGröße\nà la\n".encode(codec) if codec not in ("utf-16", "utf-32") else "Größe\nà la\n".encode(codec)
    )
    path = written(tmp_path / "x.txt", content)
    assert list(read_sentences(path)) == ["Größe", "à la"]
    assert list(read_sentences(path, encoding=codec)) == ["Größe", "à la"]
    with pytest.raises(ValueError, match=r"begins with the mark of UTF-(8|16|32).*encoding='utf-"):
        list(read_sentences(path, encoding="latin-1"))


def test_the_marks_of_files_that_were_joined_are_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "x.txt", "\ufeffOne.\n" * 2 + "\ufeff")
    assert list(read_sentences(path)) == ["One."] * 2
    assert list(read_sentences(written(tmp_path / "y.txt", "\ufeffOne.\n".encode("utf-16-le") * 2))) == ["One."] * 2


# What the readers of text, tables, JSON lines and words in columns read of a file in UTF-8.
QUOTED = "She said “no”."
UTF8_FILES = {
    "x.txt": f"fine\n{QUOTED}\n",
    "x.csv": f'text\n"{QUOTED}"\n',
    "x.tsv": f"text\tn\n{QUOTED}\t1\n",
    "x.jsonl": f'{{"text": "{QUOTED}"}}\n',
    "x.conll": "She O\n“no” O\n",
    "x.txt.gz": f"fine\n{QUOTED}\n",
}


@pytest.mark.parametrize("name", UTF8_FILES)
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "cp1251", "mac_roman"])
def test_utf8_is_not_read_in_an_encoding_of_one_byte_a_character(encoding: str, name: str, tmp_path: Path) -> None:
    content = UTF8_FILES[name].encode()
    path = written(tmp_path / name, gzip.compress(content) if name.endswith(".gz") else content)
    advice = f"{name}: is UTF-8, not {encoding}, in which '“no”"
    with pytest.raises(ValueError, match=re.escape(advice)) as caught:
        list(read_sentences(path, encoding=encoding))
    assert f"Give no encoding, because UTF-8 is the default; if the text is in {encoding}" in str(caught.value)


@pytest.mark.parametrize("num_marks", [1, 9, 10])
def test_a_long_file_in_utf8_is_refused_at_its_end_or_where_ten_characters_are_utf8(
    num_marks: int, tmp_path: Path
) -> None:
    before = "plain text\n" * 30_000  # longer than the beginning that is looked at
    path = written(tmp_path / "x.txt", before + "café\n" * num_marks + "plain text\n" * 500)
    read: list[Any] = []
    shown = r"x\.txt(, line 30010)?: is UTF-8, not cp1252, in which 'café' would be read as 'cafÃ©'"
    with pytest.raises(ValueError, match=shown):
        read.extend(read_sentences(path, encoding="cp1252"))
    assert len(read) == (30_009 if num_marks == 10 else 30_500 + num_marks)


def test_a_text_of_one_byte_a_character_may_have_pairs_that_are_utf8(tmp_path: Path) -> None:
    text = "In UTF-8 é is read as Ã©.\n"
    for lines in (text, "Ã©\n" + "plain text\n" * 30_000 + text):
        path = written(tmp_path / "x.txt", lines.encode("cp1252"))
        assert list(read_sentences(path, encoding="cp1252")) == lines.splitlines()
    japanese = written(tmp_path / "japanese.txt", "ﾃｩ\n".encode("shift_jis"))  # b"\xc3\xa9", which is é in UTF-8
    assert list(read_sentences(japanese, encoding="shift_jis")) == ["ﾃｩ"]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("iso2022_jp", "日本 文 ."),
        ("iso2022_kr", "한국 문 ."),
        ("hz", "中文 ."),
        ("unicode_escape", "café ł ."),
        ("raw_unicode_escape", "ł ."),
    ],
)
def test_an_encoding_that_writes_all_characters_in_ascii_is_read(encoding: str, text: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.txt", f"{text}\n".encode(encoding).replace(rb"\n", b"\n"))
    assert list(read_sentences(path, encoding=encoding)) == [text]


LONG = b"plain text\n" * 30_000  # longer than the beginning that is looked at


@pytest.mark.parametrize(
    ("content", "encoding", "fault"),
    [
        (b"\x81abc\n" + LONG, "cp1252", "line 1: not CP1252 (byte 0x81)"),
        (LONG + b"\xe9", "ascii", "line 30001: not ASCII (byte 0xe9)"),
        (LONG + b"\xd2", "cp1253", "line 30001: not CP1253 (byte 0xd2)"),
        (b"a" * 8191 + b"\n\x81" + LONG, "cp1252", "line 2: not CP1252 (byte 0x81)"),
        ("“no”\n".encode(), "ascii", "line 1: not ASCII (byte 0xe2)"),
    ],
)
def test_an_illegal_byte_without_a_character_in_utf8_does_not_show_that_a_file_is_utf8(
    content: bytes, encoding: str, fault: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.txt", content)
    with pytest.raises(ValueError, match=re.escape(f"x.txt, {fault}. ")):
        list(read_sentences(path, encoding=encoding))


def test_a_character_in_utf8_may_be_cut_where_bytes_are_decoded_in_pieces(tmp_path: Path) -> None:
    path = written(tmp_path / "x.txt", "“no\n".encode() + b"a" * 8184 + "\n”\n".encode() + LONG)
    with pytest.raises(ValueError, match=r"x\.txt: is UTF-8, not cp1252, in which '“no' would be"):
        list(read_sentences(path, encoding="cp1252"))


def test_control_characters_of_another_encoding_are_no_text(tmp_path: Path, notes: list[str]) -> None:
    path = written(tmp_path / "x.txt", "fine\nApple doesn’t.\n".encode("cp1252"))
    for encoding in ("latin-1", "iso-8859-15"):
        with pytest.raises(ValueError, match=r"x\.txt, line 2: holds U\+0092.*’.*encoding='cp1252'"):
            list(read_sentences(path, encoding=encoding))
    assert notes == []
    assert list(read_sentences(path, encoding="cp1252")) == ["fine", "Apple doesn’t."]
    notes.clear()
    assert list(read_sentences(written(tmp_path / "y.txt", "a\x92b\n" * 2))) == ["a\x92b"] * 2
    assert len(notes) == 1
    assert "U+0092" in notes[0]


@pytest.mark.parametrize(
    ("written_in", "read_in", "shown"),
    [
        ("cp1252", "cp1252", "'café.'"),
        ("cp1252", "mac_roman", "'cafÈ.'"),
        ("mac_roman", "cp1252", "'cafŽ.'"),
        ("cp1252", "koi8-r", "'cafИ.'"),
        ("gb18030", "gbk", "'café.'"),
        ("utf-8", "utf-8", None),
        ("utf-16", "utf-16", None),
        ("gb18030", "gb18030", None),
    ],
)
def test_a_note_shows_the_first_word_beyond_ascii_as_an_encoding_other_than_unicode_reads_it(
    written_in: str, read_in: str, shown: str | None, tmp_path: Path, notes: list[str]
) -> None:
    path = written(tmp_path / "x.txt", "It rained.\nA small café.\nThe fiancé, too.\n".encode(written_in))
    assert len(list(read_sentences(path, encoding=read_in))) == 3
    expected = []
    if shown is not None:
        expected.append(
            f"Note: {path} is read in {read_in}, its first letters beyond ASCII as {shown}. If they are wrong, give "
            "another encoding (`encoding='NAME'`)."
        )
    assert notes == expected


GERMAN = "Der Fluß fließt durch die Stadt, und die Brücke über ihn ist schön – „alt“, sagt er.\n"
POLISH = "Żółta łódź płynie po rzece, a dzieci śpią. Wczoraj kupiłem chleb i mleko.\n"
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Děti si hrají na hřišti vedle školy.\n"
HUNGARIAN = "Árvíztűrő tükörfúrógép. Tegnap este későn értem haza a városból.\n"
TURKISH = "Çocuklar bahçede oynuyor, güneş batıyor. Şu ağaç çok yüksek.\n"
RUSSIAN = "Мы сидели на берегу реки, и вода была холодной. Он ушёл домой, потому что было поздно.\n"
GREEK = "Καθίσαμε στην όχθη του ποταμού. Τα παιδιά έπαιζαν στον κήπο όλη την ημέρα.\n"
JAPANESE = "私たちは川の岸に座っていました。彼は遅くまで働いて、家に帰りました。\n"


@pytest.mark.parametrize(
    ("text", "encodings", "is_known"),
    [
        (GERMAN, "cp1252", True),
        (GERMAN, "mac_roman cp850 cp437", False),
        ("She said “no” – again. The boys’ café isn’t open.\n", "cp1252", True),
        ("She said “no” – again. The boys’ café isn’t open.\n", "mac_roman", False),
        ("The café is closed today.\n", "cp1252 latin-1 iso8859-2", True),
        ("The café is closed today.\n", "mac_roman cp850 mac_latin2", False),
        (POLISH, "iso8859-2 cp1250 mac_latin2", False),
        (CZECH, "iso8859-2 cp1250 mac_latin2", False),
        (HUNGARIAN, "iso8859-2 cp1250 mac_latin2", False),
        (TURKISH, "cp1254 iso8859-9", False),
        (RUSSIAN, "cp1251 iso8859-5", True),
        (GREEK, "cp1253 iso8859-7", True),
        (RUSSIAN, "koi8-r", None),  # it depends on the detector's version
        (JAPANESE, "shift_jis euc_jp", None),
    ],
)
def test_an_encoding_is_proposed_only_if_it_reads_the_text_well(
    text: str, encodings: str, is_known: bool | None, tmp_path: Path
) -> None:
    for encoding in encodings.split():
        written(tmp_path / "x.txt", (text * 3).encode(encoding, "ignore"))
        with pytest.raises(ValueError, match=r"x\.txt") as caught:
            list(read_sentences(tmp_path / "x.txt"))
        proposed = re.search("`encoding='([a-z0-9_-]+)'`", str(caught.value))
        assert is_known in (None, proposed is not None), (encoding, str(caught.value))
        if proposed is not None:
            read = list(read_sentences(tmp_path / "x.txt", encoding=proposed[1]))
            assert read == [(text * 3).encode(encoding, "ignore").decode(encoding).split("\n")[0]] * 3


def test_carriage_returns_end_lines_where_there_are_no_line_feeds(tmp_path: Path, notes: list[str]) -> None:
    assert list(read_sentences(written(tmp_path / "x.txt", "We sat.\rThey left.\r"))) == TEXTS
    assert list(read_sentences(written(tmp_path / "x.csv", "id,text\r1,We sat.\r2,They left.\r"))) == TEXTS
    assert list(read_sentences(written(tmp_path / "x.jsonl", OBJECTS.replace("\n", "\r")))) == TEXTS
    assert [("carriage returns" in line) for line in notes] == [True] * 3
    notes.clear()
    assert list(read_sentences(written(tmp_path / "x.txt", "a\r\nb\r"))) == ["a", "b"]
    assert notes == []


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "x.conllu",
            f"0.1{BLANKS}\t_\n1-2\tgonna{BLANKS}\n1\tgon{BLANKS}\n2\tna{BLANKS}\n \n1\tHi{BLANKS}\n",
            [["gon", "na"], ["Hi"]],
        ),
        ("x.fasta", ";old comment\n>a\nSEQ\n;more\nW\n", [list("SEQW")]),
        ("x.fasta", "SEQW\n\n>a\nSEQ\nW\n>\nS\nW\n", [list("SEQW"), list("SEQW"), list("SW")]),
        ("x.fasta", ">a\nSEQ--W*\n>empty\n>u\nuzo\n", [list("SEQ--W*"), [], list("UZO")]),
        ("x.csv", "id;text\n1;a, b\n", ["a, b"]),
        ("x.csv", "id\ttext\n1\ta, b\n", ["a, b"]),
        ("x.csv", 'id,text\n1,"a, b\nc, d"\n', ["a, b\nc, d"]),
        (
            "x.csv",
            'text,label\n"It was good, we\nthought, and long.\n\nBut, no.",1\n',
            ["It was good, we\nthought, and long.\n\nBut, no."],
        ),
    ],
)
def test_what_looks_odd_and_has_one_meaning_is_read(
    name: str, content: str, expected: list[Any], tmp_path: Path
) -> None:
    assert list(read_sentences(written(tmp_path / name, content))) == expected


def test_a_pipe_is_read_once_from_its_beginning(tmp_path: Path) -> None:
    for content in (b"One.\nTwo.\n", gzip.compress(b"One.\nTwo.\n")):
        read_end, write_end = os.pipe()

        def write(end: int = write_end, content: bytes = content) -> None:
            with os.fdopen(end, "wb") as file:
                for place in range(0, len(content), 3):  # as a slow program writes
                    file.write(content[place : place + 3])
                    file.flush()

        thread = threading.Thread(target=write)
        thread.start()
        assert list(read_sources([f"/dev/fd/{read_end}"])) == ["One.", "Two."]
        thread.join()
        os.close(read_end)


WRAPPED = [
    "The ferry left the harbour at seven in the",
    "morning. It was late, and nobody on the quay",
    "knew why. The captain had been asleep, they",
    "said, when the tide turned. So the ferry was",
    "late.",
]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (WRAPPED, True),
        ([f"{line}." for line in WRAPPED], False),
        (["mr. <unk> is chairman of", "a dutch group", "the old sailor", "left", "and slept"], False),
        (["We left.", "they came", "No.", "yes"], False),
        (WRAPPED[:2], False),
    ],
)
def test_running_text_that_is_cut_at_a_width_is_told_from_sentences(texts: list[str], expected: bool) -> None:
    assert are_wrapped(texts) is expected


COMMANDS = {
    "embed": "embed tiny FILE -o v.npz --layers pooled",
    "score": "score tiny FILE",
    "vocab": "vocab FILE -o words.txt",
    "usages": "usages tiny FILE --word the -o u.csv",
}


@pytest.mark.parametrize("command", ["embed", "score"])
def test_every_command_notes_cut_lines_and_counts_blank_ones(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("x.txt"), "\n".join([*WRAPPED, "", "No."]))
    result = run(*COMMANDS[command].replace("FILE", "x.txt").split())
    assert "most lines of" in result.stderr
    assert "end within a sentence" in result.stderr
    assert "7 sentences (1 of them blank)" in result.stdout


@pytest.mark.parametrize("command", ["vocab", "usages"])
def test_every_command_takes_the_format_of_its_input(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("x.dat"), "the/old\tO\n")
    words = COMMANDS[command].replace("FILE", "x.dat").split()
    results = [run(*words, option, "fasta") for option in ("--input-format", "--format")]
    assert [result.exit_code for result in results] == [1, 1]
    # Above it there may be a progress bar, with times.
    first, second = (result.stderr.splitlines()[-1] for result in results)
    assert "FASTA has a line `>NAME`, then lines of letters, gaps (`-`) and stops (`*`), found `/` in" in first
    assert second == first


def test_embed_shows_how_it_reads_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("x.csv"), f"id,text\n1,The ferry left.\n2,\n3,{'x' * 60}\n")
    assert output_of("embed", "tiny", "x.csv", "--dry-run").splitlines() == [
        "input     x.csv",
        "format    a table",
        "encoding  utf-8",
        "columns   text, of id, text",
        "holds     3 sentences (1 of them blank)",
        "words     5, 5 of them different",
        f"unknown   1 word, such as {'x' * 60}",
        f"cut       1 word, such as {'x' * 60}",
        "  0: The | ferry | left | .",
        "  1:",
        f"  2: {'x' * 60}",
    ]
    assert os.listdir() == ["x.csv"]


# What each file of public bug reports holds: its sentences by their numbers of words or as they are; or words of the
# line that refuses it.
CASES: dict[str, Any] = {
    "speech.tsv": ['"We left early .', "It was cold .", 'We came back late ."', "That was all ."],
    "counts.csv": "holds numbers",
    "lists.csv": [5, 3],
    "ner.csv": [2],
    "array.json": ["We sat on the bank of the river.", "The bank is closed today."],
    "eng.conll": [5, 3],
    "texts.ndjson": ["We sat on the bank.", "They left."],
    "prot.fas": [70, 4],
    "provo.txt": "encoding='cp1252'",
    "gapname.fasta": [3, 7],
    "t.parquet": ["We sat.", "They left."],
    "cr.txt": ["We sat on the bank of the river.", "The bank is closed today.", "He left the room."],
    "cr.csv": ["We sat.", "They left."],
    "bomcat.txt": ["The bank is closed."] * 2,
    "comment.fasta": [3],
    "empty.conllu": [2, 1],
    "gaps.fasta": [11, 8, 7, 0, 5],
    "semi.csv": ["We sat."],
    "nested.jsonl": "line 1: must be a string",
    "tatoeba.txt": "a table of 3 columns",
    "story80.tsv": "'words' or 'tokens'",
}


@pytest.mark.parametrize(
    ("residues", "counts"),
    [
        ("SE--Q\nW-*\n>b\nA*\n", "`-` (gap) 3, `*` (stop) 2."),
        ("SEQ*\n", ": `*` (stop) 1."),
        ("SE-Q\n", ": `-` (gap) 1."),
    ],
)
def test_one_note_counts_the_gaps_and_stops_of_a_file(
    residues: str, counts: str, tmp_path: Path, notes: list[str]
) -> None:
    path = tmp_path / "x.fasta"
    path.write_text(f">a-b*\n{residues}", encoding="utf-8")
    list(read_sentences(path))
    assert len(notes) == 1
    assert counts in notes[0]
    path.write_text(">a-b*\nSEQ\n;-*\nW\n", encoding="utf-8")
    notes.clear()
    list(read_sentences(path))
    assert notes == []


@pytest.mark.parametrize("name", CASES)
def test_the_files_of_public_bug_reports_are_read_or_refused(name: str) -> None:
    path = shared("cases", "text") / name
    expected = CASES[name]
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            list(read_sentences(path))
        return
    sentences = list(read_sentences(path))
    if isinstance(expected[0], int):
        assert [len(words) for words in sentences] == expected
    else:
        assert sentences == expected
