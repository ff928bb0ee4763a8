"""R itself reads the tables of commands, with the options that the pages give."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from elmo_hf.disk.tables import write_text_table
from tests.helpers.commands import output_of

pytestmark = pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R: `apt-get install r-base-core`")

PAGES = Path(__file__).parents[2] / "docs"
WORDS = [
    "NA",
    "null",
    "None",
    "Inf",
    "TRUE",
    "T",
    "007",
    '"',
    'a"b',
    "it's",
    "a,b",
    "a\tb",
    "#",
    "\\",
    'a\\"',
    " a ",
    "",
]
WORDS += ["a\nb", "a\rb", "\u00e9"]


def r(code: str, folder: Path) -> list[str]:
    """The lines that R prints."""
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    command = ["Rscript", "--vanilla", "-e", code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


def block_of(page: str) -> str:
    """The one block of R in a page."""
    (block,) = re.findall(r"```r\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)
    return block


def test_r_reads_words_numbers_and_logical_values_as_they_are(tmp_path: Path) -> None:
    count = len(WORDS)
    columns = {"word": WORDS, "is_unknown": [number % 2 == 0 for number in range(count)]}
    columns |= {"bits": [None, float("inf"), *(number / 4 for number in range(2, count))]}
    write_text_table(tmp_path / "surprisal.csv", pa.table(columns))
    code = """
        cat(sapply(d, class), fill = 200)
        cat(is.na(d$bits), is.infinite(d$bits), fill = 1000)
        cat(nrow(subset(d, is_unknown == FALSE)), fill = 200)
        cat(encodeString(d$word, quote = '"'), sep = "\n")
    """
    classes, numbers, known, *words = r(block_of("linguists.md") + code, tmp_path)
    assert classes.split() == ["character", "logical", "numeric"]
    assert numbers.split() == ["TRUE", *["FALSE"] * count, "TRUE", *["FALSE"] * (count - 2)]
    assert int(known) == count // 2
    assert [json.loads(word) for word in words] == [word.replace("\r", "\n") for word in WORDS]


def test_r_reads_a_table_whose_words_all_look_like_numbers_or_logical_values(tmp_path: Path) -> None:
    for word in ("007", "T", "NA"):
        (tmp_path / "surprisal.csv").unlink(missing_ok=True)
        write_text_table(tmp_path / "surprisal.csv", pa.table({"word": [word, word], "bits": [1.5, 2.5]}))
        assert r(f"{block_of('linguists.md')}cat(d$word, class(d$word))", tmp_path) == [f"{word} {word} character"]


def test_r_joins_regions_to_reading_times(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("NA is null .\n\nThe NA , xqzv .\n", encoding="utf-8")
    command = ("score", "tiny", tmp_path / "a.txt", "--words", "whitespace")
    output_of(*command, "--per-word", tmp_path / "regions.tsv", "--regions", "--documents", "--skip-unknown")
    times = "times <- data.frame(document = c(0, 1), document_sentence = 0, region = c(0, 1), ms = c(187, 302))\n"
    code = "cat(joined$word, class(joined$forward_bits), class(joined$is_unknown), joined$ms)"
    assert r(times + block_of("surprisal.md") + code, tmp_path) == ["NA NA numeric logical 187 302"]
