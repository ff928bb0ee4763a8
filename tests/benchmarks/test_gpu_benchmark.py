"""The benchmark of GPUs runs, and says where it cannot."""

import json
from pathlib import Path

import gpu
import pytest
import torch
import typer
from typer.testing import CliRunner


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.jsonl"
    texts = [[f"word{(number * place) % 17}" for place in range(1, 2 + number % 5)] for number in range(20)]
    path.write_text("".join(f"{json.dumps(words)}\n" for words in texts), encoding="utf-8")
    return path


def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(gpu.main)
    return app


def test_it_compares_values_and_times_every_format(sentences: Path) -> None:
    arguments = [str(sentences), "--device", "cpu", "--small", "--batch-size", "3", "--rounds", "1"]
    result = CliRunner().invoke(app(), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "no GPU, scan: portable" in result.output
    rows = [
        line.split(" | ")
        for line in result.output.splitlines()
        if line.startswith(tuple(f"| {n}" for n in gpu.FORMATS))
    ]
    assert [row[0].removeprefix("| ") for row in rows] == 3 * list(gpu.FORMATS)
    assert [len(row) for row in rows] == 4 * [10] + 4 * [3] + 4 * [4]
    assert float(rows[4][2].removesuffix(" |")) < 1e-5 < float(rows[6][2].removesuffix(" |")) < 0.1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(sentences: Path) -> None:
    result = CliRunner().invoke(app(), [str(sentences)])
    assert result.exit_code == 1
    assert result.output.strip().endswith("torch finds no GPU here, so there is nothing to measure.")
