"""The command `elmo-hf score`: its table, its errors and its bar; perplexities are checked where models are trained."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from commands import run
from pretraining_runs import VOCABULARY
from typer.testing import Result

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining


@pytest.mark.parametrize("carries_state", [False, True])
@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_score_writes_the_surprisal_of_each_word(
    suffix: str, carries_state: bool, pretrained: tuple[Path, Result], work: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"table{suffix}"
    options = ("--carry-state", "--rows", 2) if carries_state else ()
    result = run("score", pretrained[0], work / "held-out.txt", "--per-word", path, *options)
    assert result.exit_code == 0, result.output
    assert f"Wrote {path}.\n" in result.stdout
    if suffix == ".tsv":
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file, delimiter="\t"))
    else:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    assert list(rows[0])[:6] == ["sentence", "position", "word", "is_unknown", "forward_bits", "backward_bits"]
    lines = (work / "held-out.txt").read_text().splitlines()
    words = [(n, k, w) for n, line in enumerate(lines) if line for k, w in enumerate(["<S>", *line.split(), "</S>"])]
    assert [(int(row["sentence"]), int(row["position"]), row["word"]) for row in rows] == words
    assert [str(row["is_unknown"]).lower() == "true" for row in rows] == [
        w not in VOCABULARY or w == "<UNK>" for *_, w in words
    ]
    model = ElmoForPreTraining.from_pretrained(pretrained[0]).eval()
    tokenizer = ElmoTokenizer.from_pretrained(pretrained[0])
    sentences = [line.split() for line in lines if line]
    scores = model.score(sentences, tokenizer, carries_state=carries_state, num_rows=2)
    for name, places in (("forward", slice(1, None)), ("backward", slice(0, -1))):
        index = 0 if name == "forward" else 1
        for number, line in enumerate(line for line in lines if line):
            cells = [row[f"{name}_bits"] for row in rows if lines[int(row["sentence"])] == line]
            bits = np.array([np.nan if cell in (None, "") else float(cell) for cell in cells])
            np.testing.assert_allclose(bits[places], scores.surprisals(number)[index], rtol=1e-5)
            assert np.isnan(np.delete(bits, np.arange(len(bits))[places])).all()


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_bar_of_score_ends_where_it_should(rows: int, pretrained: tuple[Path, Result], work: Path) -> None:
    result = run("score", pretrained[0], work / "corpus.txt", "--rows", rows)
    count, total = re.findall(r"(\d+)/(\d+) \[", result.stderr)[-1]
    assert count == total
    scored = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) of [\d,]+ predictions", result.stdout)]
    assert int(total) == sum(scored)
