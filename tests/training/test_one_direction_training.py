"""The commands with a language model of one direction, bilm-tf's with `bidirectional` false."""

import re
from pathlib import Path

from commands import output_of
from newcomer import files_of, pretrain, write_files


def perplexities(output: str) -> list[dict[str, str]]:
    """What each line of perplexities names."""
    lines = [line for line in output.splitlines() if line.startswith("perplexity")]
    return [dict(re.findall(r"(forward|backward|mean) +([\d.]+)", line)) for line in lines]


def test_the_commands_pretrain_score_and_describe_it(tmp_path: Path) -> None:
    write_files(tmp_path, bidirectional=False)
    options = (*files_of(tmp_path), "--held-out", tmp_path / "held-out.txt")
    printed = perplexities(pretrain(tmp_path, tmp_path / "lm", *options))
    assert [sorted(line) for line in printed] == [["forward", "mean"]] * 2
    assert "backward" not in (tmp_path / "lm" / "log.json").read_text()
    scored = output_of("score", tmp_path / "lm", tmp_path / "held-out.txt", "--per-word", tmp_path / "bits.tsv")
    assert perplexities(scored) == printed
    assert "2 layers, with skip connections, forward only" in output_of("info", tmp_path / "lm")
