"""Tables of text: what is written is read back equal by Python's csv and by pandas; `tests/neighbours` has R."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elmo_hf.disk.tables import ROWS, SEPARATORS, write_text_table

# Words that readers take for something else, or that break a row.
WORDS = ["NA", "null", "None", "nan", "inf", "TRUE", "T", "007", "1e5", "-", "#", "=1+1", "<S>", "\u00e9", "\ufeffx"]
WORDS += [
    "a,b",
    "a\tb",
    "a;b",
    '"',
    '""',
    '"a" b',
    "it's",
    "'",
    "\\",
    'a\\"',
    " a",
    "a ",
    "a\nb",
    "a\rb",
    "\r",
    "a\r\nb",
]
WORDS += ["\x00", "\x1c", "\x85", "\u2028", ""]
COUNT = len(WORDS)
BITS = [None, np.inf, -np.inf, 0.1, 1e-20, 1e10, 7.0, np.nan, *np.linspace(-1, 1, COUNT - 8)]


def table() -> pa.Table:
    columns = {"number": range(COUNT), "word": WORDS, "is_unknown": [number % 2 == 0 for number in range(COUNT)]}
    columns |= {"bits": pa.array(BITS, pa.float32()), "region": [None, *range(1, COUNT)]}
    return pa.table(columns)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_python_reads_each_cell_back_equal(name: str, tmp_path: Path) -> None:
    write_text_table(tmp_path / name, table())
    with open(tmp_path / name, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter=SEPARATORS[name[1:]])
    assert header == ["number", "word", "is_unknown", "bits", "region"]
    numbers, words, unknown, bits, regions = zip(*rows, strict=True)
    assert [int(number) for number in numbers] == [*range(COUNT)]
    assert [*words] == WORDS
    assert [*unknown] == ["TRUE", "FALSE"] * (COUNT // 2) + ["TRUE"] * (COUNT % 2)
    read = np.array([cell or "nan" for cell in bits], dtype=np.float32)
    np.testing.assert_array_equal(read, np.array(BITS, dtype=np.float32))
    assert [cell for cell in bits if "n" in cell.lower()] == ["Inf", "-Inf"]
    assert [*regions] == ["", *map(str, range(1, COUNT))]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_pandas_reads_each_cell_back_equal_with_the_options_of_the_page(name: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_text_table(tmp_path / name, table())
    options: dict[str, Any] = {"keep_default_na": False, "na_values": "", "dtype": {"word": str}}
    read = pandas.read_csv(tmp_path / name, sep=SEPARATORS[name[1:]], **options)
    assert read["word"].fillna("").tolist() == WORDS
    assert read["is_unknown"].tolist() == [number % 2 == 0 for number in range(COUNT)]
    np.testing.assert_array_equal(read["bits"].to_numpy(np.float32), np.array(BITS, dtype=np.float32))
    assert read["region"].isna().tolist() == [True] + [False] * (COUNT - 1)


def test_only_texts_have_quotes(tmp_path: Path) -> None:
    write_text_table(tmp_path / "t.csv", table().slice(0, 2))
    expected = 'number,word,is_unknown,bits,region\n0,"NA",TRUE,,\n1,"null",FALSE,Inf,1\n'
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == expected


def test_an_empty_text_differs_from_a_missing_one(tmp_path: Path) -> None:
    write_text_table(tmp_path / "t.csv", pa.table({"a": ["", None], "b": [1, 2]}))
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == 'a,b\n"",1\n,2\n'


def test_a_long_table_has_all_its_rows(tmp_path: Path) -> None:
    numbers = range(2 * ROWS + 1)
    write_text_table(tmp_path / "t.csv", pa.table({"number": numbers}))
    assert (tmp_path / "t.csv").read_text(encoding="utf-8").split() == ["number", *map(str, numbers)]
