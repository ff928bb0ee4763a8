"""A pretraining run resumes where it was killed: the final weights are those of an undisturbed run, bit for bit.

Runs here use all that could differ: dropout, a sampled softmax, resets, held-out text, several checkpoints, two passes.
"""

import gc
import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import bits
from language_models import state_of, words_file
from launching import fork_command
from pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text
from resumed_runs import interrupt, run
from typer.testing import CliRunner

from elmo_hf.cli import app
from elmo_hf.disk.checksums import SUMS, write_sums
from elmo_hf.training import run as pretrain_module
from elmo_hf.training import trainer as pretrainer
from elmo_hf.training.newest_checkpoint import newest_checkpoint
from elmo_hf.training.trainer import ElmoPretrainer


@pytest.fixture(autouse=True, scope="module")
def _spared_time() -> Iterator[None]:
    """Skips what takes most of a tiny run's time: drawing curves, and collecting the garbage of all imports."""
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain_module, "draw_curve", lambda log, path: None)
        yield
    gc.unfreeze()


def assert_same_run(folder: Path, expected: Path) -> None:
    last = max((path.name for path in (expected / "out").glob("checkpoint-*")), key=lambda name: int(name[11:]))
    for name in (".", last):  # the first may be of an earlier step, the best one
        assert bits(state_of(folder / "out" / name)) == bits(state_of(expected / "out" / name))
    assert sorted(path.name for path in (folder / "out").glob(".*")) == []
    assert (folder / "out" / "config.json").read_bytes() == (expected / "out" / "config.json").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    trainer = run(folder)
    assert trainer.state.global_step == 14
    return folder


@pytest.mark.parametrize(
    ("step", "settings"),
    # A run without a checkpoint may resume with other settings.
    [(2, {"learning_rate": 0.7, "lm_dropout": 0.1}), (6, {}), (10, {}), (13, {})],
)
def test_a_run_that_stops_at_a_step_resumes(
    step: int, settings: dict[str, Any], undisturbed: Path, tmp_path: Path
) -> None:
    interrupt(tmp_path, ElmoPretrainer, "training_step", step, **settings)
    trainer = run(tmp_path)
    assert_same_run(tmp_path, undisturbed)
    log = json.loads((tmp_path / "out" / "log.json").read_text())
    assert log == trainer.state.log_history
    assert [entry["step"] for entry in log if "loss" in entry] == list(range(1, 15))
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record == json.loads((undisturbed / "out" / "run.json").read_text())


@pytest.mark.parametrize("fused", [None, False])
def test_a_checkpoint_of_another_kind_of_device_resumes_with_the_fused_optimiser_of_this(
    fused: bool | None, stopped: Path, undisturbed: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "out" / "checkpoint-8" / "optimizer.pt"
    optimizer = torch.load(path, weights_only=True)
    assert {group["fused"] for group in optimizer["param_groups"]} == {True}
    for group in optimizer["param_groups"]:
        group["fused"] = fused
    torch.save(optimizer, path)
    write_sums(path.parent)
    trainer = run(tmp_path)
    assert {group["fused"] for group in trainer.optimizer.param_groups} == {True}
    assert_same_run(tmp_path, undisturbed)


def test_a_run_may_stop_again_and_again(undisturbed: Path, tmp_path: Path) -> None:
    for call in (3, 7, 9):
        interrupt(tmp_path, ElmoPretrainer, "training_step", call)
    run(tmp_path)
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize("num_windows", [2, 4])
def test_a_run_that_accumulates_windows_resumes(num_windows: int, tmp_path: Path) -> None:
    settings = {"gradient_accumulation_steps": num_windows, "save_steps": 2, "eval_steps": 2}
    run(tmp_path / "whole", **settings)
    interrupt(tmp_path / "cut", ElmoPretrainer, "training_step", 12, **settings)
    run(tmp_path / "cut", **settings)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_run_with_a_frozen_encoder_resumes(tmp_path: Path) -> None:
    settings = {"frozen_steps": 6, "save_steps": 2, "eval_steps": 2, "max_steps": 8}
    run(tmp_path / "whole", **settings)
    for step in (3, 7):
        interrupt(tmp_path / f"cut-{step}", ElmoPretrainer, "training_step", step, **settings)
        run(tmp_path / f"cut-{step}", **settings)
        assert_same_run(tmp_path / f"cut-{step}", tmp_path / "whole")


def test_a_checkpoint_that_was_being_written_is_skipped(
    stopped: Path, undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    folder = tmp_path / "run" / "out"
    interrupt(tmp_path / "run", pretrainer, "write_sums", 1)
    assert newest_checkpoint(folder) == folder / "checkpoint-8"
    assert caplog.messages[-1].startswith(f"{folder / 'checkpoint-12'} is incomplete")
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", undisturbed)


def test_folders_that_are_no_checkpoints_are_ignored(stopped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(stopped / "out", folder)
    for name in ("checkpoint-best", "checkpoint-", "checkpoint-99-old"):
        shutil.copytree(folder / "checkpoint-4", folder / name)
    (folder / "checkpoint-100").mkdir()
    shutil.copytree(folder / "checkpoint-4", folder / "checkpoint-10")
    assert newest_checkpoint(folder) == folder / "checkpoint-10"
    assert newest_checkpoint(tmp_path / "nothing") is None


@pytest.mark.parametrize("settings", [{}, {"max_steps": 11}, {"num_train_epochs": 1.3}], ids=str)
def test_a_run_that_stops_after_its_last_step_takes_no_further_one(
    settings: dict[str, Any], undisturbed: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole" if settings else undisturbed
    if settings:
        run(whole, **settings)
    interrupt(tmp_path / "cut", pretrain_module, "draw_curve", 1, **settings)
    if not settings:
        # The model was half written.
        out = tmp_path / "cut" / "out"
        (tmp_path / "cut" / ".out.partial").mkdir()
        (tmp_path / "cut" / ".out.partial" / "config.json").write_text("{}")
        (out / "tokenizer.json").write_text("{")
    trainer = run(tmp_path / "cut", **settings)
    assert trainer.state.global_step == trainer.state.max_steps
    assert_same_run(tmp_path / "cut", whole)


def perplexity_by_step(best: int) -> Callable[..., dict[str, float]]:
    """Replaces the scores of held-out text by some that are lowest after step `best`."""
    seen: list[int] = []

    def held_out_metrics(model: Any, corpus: Any) -> dict[str, float]:
        step = 4 * (len(seen) + 1)
        seen.append(step)
        return {name: float(abs(step - best) + 1) for name in ("perplexity", "forward_perplexity")}

    return held_out_metrics


def test_the_best_checkpoint_is_kept_over_stops_and_moves_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrainer, "held_out_metrics", perplexity_by_step(best=4))
    run(tmp_path / "whole")
    monkeypatch.setattr(pretrainer, "held_out_metrics", perplexity_by_step(best=4))
    interrupt(tmp_path / "cut", ElmoPretrainer, "training_step", 13)
    (tmp_path / "cut").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrainer, "held_out_metrics", perplexity_by_step(best=-99))
    trainer = run(Path("moved"))
    kept = sorted(path.name for path in Path("moved/out").glob("checkpoint-*"))
    assert (trainer.state.best_global_step, kept) == (4, ["checkpoint-14", "checkpoint-4"])
    assert_same_run(tmp_path / "moved", tmp_path / "whole")
    weights = {path.name: path.read_bytes() for path in Path("moved/out/checkpoint-4").glob("model*.safetensors")}
    assert weights == {path.name: path.read_bytes() for path in Path("moved/out").glob("model*.safetensors")}


def test_a_run_resumes_with_another_frequency_of_logs(stopped: Path, undisturbed: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    run(tmp_path / "run", logging_steps=3)
    assert_same_run(tmp_path / "run", undisturbed)


def test_a_finished_folder_is_refused(undisturbed: Path) -> None:
    with pytest.raises(ValueError, match="/out holds a finished model"):
        run(undisturbed)


@pytest.mark.parametrize("learning", ["", " --optimizer adamw --schedule linear"], ids=["adagrad", "adamw"])
def test_a_command_that_was_killed_resumes_when_given_again(learning: str, tmp_path: Path) -> None:
    text = write_text(tmp_path / "corpus.txt", make_sentences(50))
    (tmp_path / "config.json").write_text(json.dumps(FIELDS | {"lm_dropout": 0.3}))

    def arguments(name: str) -> list[str]:
        options = (
            f"--vocabulary {words_file(tmp_path, VOCABULARY)} --config {tmp_path / 'config.json'} --held-out {text}"
        )
        options += " --softmax sampled --samples 4 --rows 3 --unroll-steps 5 --epochs 2 --checkpoint-steps 5 --seed 4"
        options += f" --logging-steps 3{learning}"
        return ["pretrain", str(text), "-o", str(tmp_path / name), *options.split(), "--reset-probability", "0.4"]

    undisturbed = CliRunner().invoke(app, arguments("undisturbed"))
    assert undisturbed.exit_code == 0, undisturbed.output
    number, delay = random.randint(1, 4), random.random() / 5
    process = fork_command(arguments("killed"), tmp_path / "output")
    mark, deadline = tmp_path / "killed" / f"checkpoint-{5 * number}" / SUMS, time.monotonic() + 300
    while not mark.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, (number, delay, (tmp_path / "output").read_text())
    assert newest_checkpoint(tmp_path / "killed") is not None
    resumed = CliRunner().invoke(app, arguments("killed"))
    assert resumed.exit_code == 0, resumed.output
    assert bits(state_of(tmp_path / "killed")) == bits(state_of(tmp_path / "undisturbed")), (number, delay)


def test_the_file_that_marks_a_finished_model_is_published_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[str] = []
    publish = pretrain_module.publish
    monkeypatch.setattr(pretrain_module, "publish", lambda *args: published.append(args[1].name) or publish(*args))
    run(tmp_path)
    assert published[-1] == "config.json"
    assert any(name.endswith(".safetensors") for name in published)
