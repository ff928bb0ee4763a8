"""R itself reads the tables of commands, with the options that the pages give."""

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
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


def block_with(text: str, page: str = "linguists.md") -> str:
    """The one block of R in a page that has a text."""
    blocks = re.findall(r"```r\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if text in block]
    return block


READING = block_with('read.csv("surprisal.csv"')


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
    classes, numbers, known, *words = r(READING + code, tmp_path)
    assert classes.split() == ["character", "logical", "numeric"]
    assert numbers.split() == ["TRUE", *["FALSE"] * count, "TRUE", *["FALSE"] * (count - 2)]
    assert int(known) == count // 2
    assert [json.loads(word) for word in words] == [word.replace("\r", "\n") for word in WORDS]


def test_r_reads_a_table_whose_words_all_look_like_numbers_or_logical_values(tmp_path: Path) -> None:
    for word in ("007", "T", "NA"):
        (tmp_path / "surprisal.csv").unlink(missing_ok=True)
        write_text_table(tmp_path / "surprisal.csv", pa.table({"word": [word, word], "bits": [1.5, 2.5]}))
        assert r(f"{READING}cat(d$word, class(d$word))", tmp_path) == [f"{word} {word} character"]


def test_r_joins_regions_to_reading_times(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("NA is null .\n\nThe NA , xqzv .\n", encoding="utf-8")
    command = ("score", "tiny", tmp_path / "a.txt", "--words", "whitespace")
    output_of(*command, "--per-word", tmp_path / "regions.tsv", "--regions", "--documents", "--skip-unknown")
    times = "times <- data.frame(document = c(0, 1), document_sentence = 0, region = c(0, 1), ms = c(187, 302))\n"
    times += 'times$shown <- c("NA", "NA")\n'
    code = "cat(joined$word, class(joined$forward_bits), class(joined$is_unknown), joined$ms)"
    assert r(times + block_with("regions", "surprisal.md") + code, tmp_path) == ["NA NA numeric logical 187 302"]


def test_r_adds_the_columns_of_a_table_of_sentences_and_sums_the_words_of_each(tmp_path: Path) -> None:
    sentences = ["We don't know .", '"He paid \u20ac500; she left ."', "It\u2019s a na\u00efve \u201cold\u201d bank ."]
    rows = [f"{number};{'ab'[number % 2]};{sentence}\r\n" for number, sentence in enumerate(sentences, start=7)]
    (tmp_path / "stimuli.csv").write_bytes("".join(["item;condition;sentence\r\n", *rows]).encode("cp1252"))
    surprisals = tmp_path / "stimuli_surprisal.csv"
    command = ("score", "tiny", tmp_path / "stimuli.csv", "--encoding", "cp1252", "--per-word")
    output_of(*command, surprisals)
    output_of(*command, tmp_path / "stimuli_regions.csv", "--regions", "--skip-unknown")
    code = """
        cat(m$item[m$position == 1], m$condition[m$position == 1], m$word[m$position == 1])
        cat("\n", nrow(m) == nrow(d), m$text[m$sentence == 1][1], "\n")
        cat(nrow(sums), sums$item, sums$forward_bits, "\n")
        cat(per_sentence$forward_bits, sep = "\n")
    """
    parts = ("read.csv2", "identical", "per_sentence", "stimuli_regions.csv")
    blocks = "".join(map(block_with, parts))
    printed = r(blocks + code, tmp_path)
    assert [line for line in printed if line.startswith("conditionb ")] != []  # the coefficients of the regression
    first, second, third, *sums = map(str.strip, printed[-6:])
    assert first == "7 8 9 b a b We He It"
    assert second == "TRUE He paid \u20ac500; she left ."
    table = pyarrow.csv.read_csv(surprisals).to_pylist()
    critical = []
    for number in range(len(sentences)):
        words = [row for row in table if row["sentence"] == number and row["region"] in (2, 3, 4)]
        is_known = not any(row["is_unknown"] for row in words)
        critical.append(sum(row["forward_bits"] for row in words) if is_known else "NA")
    num_rows, *items_and_bits = third.split()
    assert (num_rows, items_and_bits[:3]) == ("3", ["7", "8", "9"])
    for shown, expected in zip(items_and_bits[3:], critical, strict=True):
        if expected == "NA":
            assert shown == "NA"
        else:
            assert float(shown) == pytest.approx(expected, rel=1e-5)  # R prints seven digits
    for number, total in enumerate(sums):
        words = [row for row in table if row["sentence"] == number and row["word"] not in ("<S>", "</S>")]
        if any(row["is_unknown"] for row in words):
            assert total == "NA"
        else:
            bits = sum(row["forward_bits"] for row in words)
            assert float(total) == pytest.approx(bits, rel=1e-5)  # R prints seven digits
    assert "NA" in sums
    assert sums != ["NA"] * 3
    assert len(sums) == 3


def test_r_stops_if_a_table_of_sentences_was_sorted_or_changed_since_it_was_scored(tmp_path: Path) -> None:
    sentences = ["The old bank .", "", 'She said ""bank"" .', "A\nbank\u00a0?", "NA is null .", "", "The old bank ."]
    sentences *= 2  # with more than ten rows, numbers in the order of letters would be another order
    sentences += ["NA", "It\u2019s over ."]

    def write(folder: str, texts: list[str]) -> Path:
        rows = [f'{number};"{text}"\r\n' for number, text in enumerate(texts)]
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "stimuli.csv"
        path.write_bytes("".join(["item;sentence\r\n", *rows]).encode("cp1252"))
        return path

    scored = write("same", sentences)
    (tmp_path / "surprisals").mkdir()
    table = tmp_path / "surprisals" / "stimuli_surprisal.csv"
    output_of("score", "tiny", scored, "--encoding", "cp1252", "--column", "sentence", "--per-word", table)
    write("sorted", sorted(sentences))
    write("swapped", [sentences[0], *sentences[2:4], sentences[1], *sentences[4:]])
    write("without_blank", [*sentences[:1], *sentences[2:]])
    write("shorter", sentences[:-1])
    write("longer", [*sentences, "One more ."])
    blocks = block_with("read.csv2") + block_with("identical")
    code = f"""
        for (folder in c("same", "sorted", "swapped", "without_blank", "shorter", "longer")) {{
            file.copy("surprisals/stimuli_surprisal.csv", folder)
            setwd(folder)
            end <- tryCatch({{\n{blocks}"passed"\n}}, error = function(error) "stopped")
            setwd("..")
            cat(folder, end, "\\n")
        }}
    """
    ends = dict(line.split() for line in r(code, tmp_path))
    assert ends.pop("same") == "passed"
    assert ends == dict.fromkeys(("sorted", "swapped", "without_blank", "shorter", "longer"), "stopped")


def test_r_prints_the_rows_of_a_table_of_sentences_that_differ_from_what_was_scored(tmp_path: Path) -> None:
    table = """
        d <- data.frame(sentence = c(0, 0, 1, 3), region = c(0, 1, 0, 0), word = c("The", "bank", "Yes", "No"))
        stim <- data.frame(sentence = 0:3, text = c("The bank", "NA", "New", ""))
    """
    (tmp_path / "block.R").write_text(block_with("identical"), encoding="utf-8")
    code = """
        end <- tryCatch(source("block.R", print.eval = TRUE), error = function(error) "stopped")
        cat(end, "\n")
    """
    head, *rows, end = r(table + code, tmp_path)
    assert head.split() == ["sentence", "scored", "stim"]
    assert [row.split()[1:] for row in rows] == [["1", "Yes", "NA"], ["3", "No", "<NA>"], ["2", "<NA>", "New"]]
    assert end.split() == ["stopped"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ('c("1.312,5", "200,25", "190", "1.200.000")', "1312.5 200.25 190 1200000"),
        ("c(1312.5, 200.25, NA, 190)", "1312.5 200.25 NA 190"),
    ],
)
def test_r_compares_sums_with_times_that_have_decimal_commas_and_thousands(
    times: str, expected: str, tmp_path: Path
) -> None:
    table = f"sums <- data.frame(forward_bits = c(1, 2, 4, 7), rt = {times})\n"
    *model, last = r(f"{table}{block_with('lm(rt')}cat(sums$rt)", tmp_path)
    assert last == expected
    assert any(line.startswith("forward_bits ") for line in model)


def test_r_finds_a_word_at_its_place_in_each_sentence_and_the_surprisal_of_the_region_before(tmp_path: Path) -> None:
    table = """
        words <- c("The", "bank", "fell.", "Old", "banks", "The", "embankment", "bank.")
        regions <- data.frame(sentence = c(0, 0, 0, 1, 1, 11, 11, 11), word = words, forward_bits = c(1:4, NA, 6:8))
    """
    code = 'cat(banks$word, "\\n"); cat(regions$bits_before, "\\n")'
    blocks = block_with('grepl("^bank"') + block_with("regions$bits_before")
    banks, before = r(table + blocks + code, tmp_path)
    assert banks.split() == ["bank", "banks", "bank."]
    assert before.split() == ["NA", "1", "2", "NA", "4", "NA", "6", "7"]


def test_r_gives_each_row_of_reading_times_the_surprisal_of_the_row_before(tmp_path: Path) -> None:
    table = """
        d <- data.frame(item = c("1", "1", "1", "2", "2"), sentence = c("1", "1", "2", "1", "1"), forward_bits = 1:5)
        d$is_unknown <- c(FALSE, FALSE, FALSE, TRUE, FALSE)
    """
    code = "cat(d$bits_before)"
    assert r(table + block_with("d$bits_before") + code, tmp_path) == ["NA 1 NA NA NA"]


def test_r_writes_the_sentences_of_each_condition_in_utf_8_and_one_a_line(tmp_path: Path) -> None:
    table = """
        stim <- data.frame(condition = c("a", "b", "a"), text = c("A caf\u00e9 .", "Yes .", "One\nline ."))
    """
    assert r(table + block_with("writeLines"), tmp_path) == []
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "A caf\u00e9 .\nOne line .\n"
    assert (tmp_path / "b.txt").read_text(encoding="utf-8") == "Yes .\n"


def test_r_reads_the_words_for_gaps(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The ___ of the ___ .\n\nAn old ___ .\n", encoding="utf-8")
    output_of("fill", "tiny", tmp_path / "a.txt", "--top-k", 2, "-o", tmp_path / "gaps.csv")
    written = pyarrow.csv.read_csv(tmp_path / "gaps.csv").to_pylist()
    code = 'cat(best$sentence, best$position, "\\n"); cat(best$word, sep = "\n"); cat(words$forward_bits, sep = "\n")'
    places, *lines = r(block_with("gaps.csv", "cloze.md") + code, tmp_path)
    assert places.split() == ["0", "0", "2", "2", "5", "3"]
    assert lines[:3] == [row["word"] for row in written[::2]]
    bits = [-math.log2(row["forward"]) for row in written]
    assert [float(line) for line in lines[3:]] == pytest.approx(bits, rel=1e-5)  # R prints seven digits


@pytest.mark.parametrize("mark", [",", "."])
def test_r_compares_surprisals_with_times_that_have_decimal_commas_or_points(mark: str, tmp_path: Path) -> None:
    columns = {"word": ["a", "b", "c"], "forward_bits": [1.5, 2.5, 4.0], "is_unknown": [False, False, False]}
    columns["ms"] = [f"312{mark}5", f"200{mark}25", f"190{mark}75"]
    write_text_table(tmp_path / "scored.csv", pa.table(columns))
    assert r(f"{block_with('lm(ms')}cat(d$ms)", tmp_path)[-1] == "312.5 200.25 190.75"


def test_r_joins_the_vectors_of_usages_to_their_table_and_finds_the_same_distances(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("NA bank , an old bank .\nThe bank .\nBanks\n", encoding="utf-8")
    command = ("usages", "tiny", tmp_path / "a.txt", "--word", "bank", "--forms", "banks", "-o", tmp_path / "cells.csv")
    output_of(*command, "--vectors", tmp_path / "cell_vectors.csv")
    code = """
        cat(nrow(m), dim(vectors), class(v$group), all(d$position == v$position), "\n")
        cat(max(abs(rowSums(distances) / 3 - d$to_A_2)) < 6e-5)  # the table has four digits
    """
    assert r(block_with("cell_vectors.csv") + code, tmp_path) == ["4 4 384 integer TRUE ", "TRUE"]
