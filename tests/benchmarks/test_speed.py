"""The benchmark of speed runs every group on a tiny model and compares the values of all contestants."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import compare
import forked_workers
import pytest
import scaling
import speed
import speed_loading
import timing
import torch
import typer
import worker
from projected_lstm import ProjectedLstms
from typer.testing import CliRunner
from workload import batches_of, flops, random_model

from elmo_hf import ElmoConfig, ElmoModel


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """More sentences than any group draws, with one to five words each."""
    texts = [[f"word{(number * place) % 17}" for place in range(1, 2 + number % 5)] for number in range(450)]
    path = tmp_path / "sentences.jsonl"
    path.write_text("".join(f"{json.dumps(words)}\n" for words in texts), encoding="utf-8")
    return path


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks the benchmarks' processes, which would each import torch."""
    for module in (worker, speed_loading):
        monkeypatch.setattr(module, "subprocess", forked_workers)


@pytest.fixture
def allennlp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose `allennlp` is our drop-in for it."""
    package = tmp_path / "allennlp" / "modules"
    package.mkdir(parents=True)
    (package / "elmo.py").write_text("from elmo_hf.allennlp import Elmo\n", encoding="utf-8")
    (package / "lstm_cell_with_projection.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Path(sys.executable)


def run(main: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("group", "rows"),
    [
        ("frozen", ["inference", "training step"]),
        ("fine-tuning", ["ours", "AllenNLP-style loop"]),
        ("pretraining", ["ours", "ours, autocast to bfloat16", "AllenNLP-style loop"]),
    ],
)
def test_each_group_prints_its_rows(sentences: Path, group: str, rows: list[str]) -> None:
    output = run(speed.main, str(sentences), "--small", "--rounds", "1", "--threads", "1", "--only", group)
    assert "tiny model" in output
    assert rows_of(output) == rows


def rows_of(output: str) -> list[str]:
    return re.findall(r"^\| ([^|]+) \|(?: [\d.,e+-]+ \|)+$", output, re.MULTILINE)


@pytest.mark.usefixtures("_forked")
def test_embedding_takes_turns_with_the_peers(sentences: Path, allennlp: Path) -> None:
    options = ["--small", "--rounds", "1", "--threads", "1", "--only", "embedding", "--allennlp", str(allennlp)]
    options += ["--only", "by-length", "--batch-size", "1", "--batch-size", "3"]
    output = run(speed.main, str(sentences), *options)
    labels = ["1", "3", "1, by length", "3, by length"]
    assert re.findall(r"^\| ([^|]+) \|(?: [\d.,]+ \|){7} \d+% \|$", output, re.MULTILINE) == labels
    assert re.findall(r"^\| ([^|]+) \|(?: [\d.,]+ \|){3}$", output, re.MULTILINE) == labels
    assert output.count("AllenNLP 2.10.1: Python") == 2


@pytest.mark.usefixtures("_forked")
def test_loading_prints_its_rows_with_the_real_allennlp_and_without(
    sentences: Path, allennlp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run takes the memory of the first, and so needs no process."""
    peaks = []
    measure = speed_loading.peaks_of_embedding
    monkeypatch.setattr(speed_loading, "peaks_of_embedding", lambda *paths: peaks.append(measure(*paths)) or peaks[-1])
    options = [str(sentences), "--small", "--rounds", "1", "--threads", "1", "--only", "loading"]
    output = run(speed.main, *options, "--allennlp", str(allennlp))
    assert rows_of(output) == ["cached", "from disk", "AllenNLP 2.10.1", "fresh process"]
    assert len(re.findall(r"^\| AllenNLP 2\.10\.1 \| [\d.]+ \| \d+ \|$", output, re.MULTILINE)) == 1
    monkeypatch.setattr(speed_loading, "peaks_of_embedding", lambda *paths: peaks[0])
    output = run(speed.main, *options)
    assert "tiny model" in output
    assert rows_of(output) == ["cached", "from disk", "fresh process"]


def test_a_contestant_with_other_values_stops_the_benchmark() -> None:
    with pytest.raises(SystemExit, match=r"the loop differs from ours by 5\.0e-04; nothing is timed\."):
        timing.check_equal("the loop", torch.tensor([1.0005]), torch.tensor([1.0]))
    with pytest.raises(SystemExit, match="nan; nothing is timed"):
        timing.check_equal("the loop", torch.tensor([float("nan")]), torch.tensor([1.0]))


def test_torchs_lstms_are_our_bilm_without_clips(tiny_config: ElmoConfig) -> None:
    tiny_config.cell_clip = tiny_config.projection_clip = None
    model = ElmoModel(tiny_config).eval()
    mask = torch.arange(5) < torch.tensor([[3], [5], [1]])
    ours = model(inputs_embeds=torch.randn(3, 5, 7), attention_mask=mask, output_hidden_states=True).hidden_states
    theirs = ProjectedLstms(model)(ours[0][..., :7], mask)
    torch.testing.assert_close(theirs, list(ours[1:]), atol=1e-6, rtol=0)


def test_arithmetic_is_counted_once_for_each_word_and_each_distinct_word() -> None:
    config = random_model(small=True).config  # C 50, E 5, 8 filters of 1 and 12 of 2, P 16, H 24, L 2, one highway
    bilm = 2 * 2 * (2 * 4 * 24 * 16 + 24 * 16)
    characters = 50 * 1 * 5 * 8 + 49 * 2 * 5 * 12 + 2 * 20**2 + 20 * 16
    batches = batches_of([["a", "b", "a"], ["c"]], 2)  # with boundaries 8 words, of which a, b, c, <S>, </S> differ
    assert flops(config, batches) == 2 * (8 * bilm + 5 * characters)


def test_scaling_draws_a_picture(sentences: Path, tmp_path: Path) -> None:
    options = ["--small", "--rounds", "1", "--threads", "1"]
    output = run(scaling.main, str(sentences), "-o", str(tmp_path / "scaling.png"), *options)
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    points = re.findall(r"^\| (\w+) .*: (\d+) \|(?: [\d.,]+ \|){3}$", output, re.MULTILINE)
    assert points == [("sentences", "1"), ("sentences", "3"), ("words", "2"), ("words", "5"), ("threads", "1")]


@pytest.mark.usefixtures("_forked")
def test_compare_times_another_commits_own_package(
    sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(compare.ROOT / "elmo_hf", repository / "elmo_hf", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compare, "ROOT", repository)
    module, imported = repository / "elmo_hf" / "__init__.py", tmp_path / "imported"
    now = module.read_text(encoding="utf-8")
    module.write_text(f"{now}\nopen({str(imported)!r}, 'w').close()\n", encoding="utf-8")
    for command in ("init -q -b main", "add .", "commit -q -m one"):
        git(repository, command)
    module.write_text(now, encoding="utf-8")
    output = run(compare.main, "main", str(sentences), "--small", "--rounds", "1", "--threads", "1")
    assert re.findall(r"^\| ([^|]+) \|(?: [\d.,]+ \|){5}$", output, re.MULTILINE) == list(compare.CASES)
    assert imported.exists()
    assert len(git(repository, "worktree list")) == 1


def git(repository: Path, command: str) -> list[str]:
    options = ["-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b"]
    result = subprocess.run(["git", *options, *command.split()], check=True, stdout=subprocess.PIPE, text=True)
    return result.stdout.splitlines()


def test_rounds_take_turns_and_ratios_are_of_the_same_round() -> None:
    calls = []
    seconds = iter([2, 1, 8, 2, 3, 3])

    def contestant(name: str) -> float:
        calls.append(name)
        return next(seconds)

    turns = timing.Rounds({name: (lambda name=name: contestant(name)) for name in "ab"}, 3)
    assert "".join(calls) == "ababab"
    assert turns.median("a") == 3
    assert turns.ratios("a", "b") == [2, 4, 1]
    assert turns.ratio("a", "b") == 2
