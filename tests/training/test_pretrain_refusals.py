"""A run does not resume with other settings, corpora or processes, or where nothing says how it was started."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretraining_runs import make_arguments, make_corpus, make_model
from resumed_runs import run

from elmo_hf import ElmoTokenizer
from elmo_hf.training.run import pretrain


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"learning_rate": 0.1}, "settings.learning_rate was 0.2, now 0.1"),
        ({"seed": 12}, "settings.seed was 11, now 12"),
        ({"data_seed": 3}, "settings.data_seed was None, now 3"),
        ({"per_device_train_batch_size": 2}, "settings.per_device_train_batch_size was 3, now 2"),
        ({"unroll_steps": 4}, "settings.unroll_steps was 5, now 4"),
        ({"reset_probability": 0.0}, "settings.reset_probability was 0.4, now 0.0"),
        ({"frozen_steps": 3}, "settings.frozen_steps was 0, now 3"),
        ({"num_train_epochs": 3}, "settings.num_train_epochs was 2, now 3"),
        ({"gradient_accumulation_steps": 2}, "settings.gradient_accumulation_steps was 1, now 2"),
        ({"weight_decay": 0.1}, "settings.weight_decay was 0.0, now 0.1"),
        ({"bf16": True}, "settings.bf16 was False, now True"),
        ({"lm_dropout": 0.1}, "config.lm_dropout was 0.3, now 0.1"),
        (
            {"learning_rate": 0.1, "max_steps": 7},
            "settings.learning_rate was 0.2, now 0.1; settings.max_steps was -1, now 7",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_does_not_resume_with_other_settings(
    settings: dict[str, Any], difference: str, stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    message = (
        f"{tmp_path / 'run' / 'out'} holds a run that was started with different settings ({difference}). "
        "Give the same settings to resume it, or choose another folder."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(tmp_path / "run", **settings)


@pytest.mark.parametrize(
    ("settings", "differences"),
    [
        ({"num_sentences": 15}, r"corpora\.train was \{'sentences': 16, .*\}, now \{'sentences': 15, .*\}"),
        ({"held_out_seed": 3}, r"corpora\.held_out was \{.*'sha256': '.*'\}, now \{.*'sha256': '.*'\}"),
    ],
)
def test_a_run_does_not_resume_with_another_corpus(
    settings: dict[str, Any], differences: str, stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    with pytest.raises(
        ValueError, match=rf"holds a run that was started with different settings \({differences}\)\. Give the same"
    ):
        run(tmp_path / "run", **settings)


PARTS = "run.json must hold settings, config, corpora"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "[Errno 2] No such file or directory: "),
        (b"", "Expecting value"),
        (b"\xff", "'utf-8' codec can't decode"),
        (b"[" * 100_000, "maximum recursion depth exceeded"),
        (b"[]", PARTS),
        (b'{"settings": {}, "config": {}}', PARTS),
        (b'{"settings": {}, "config": {}, "corpora": [1]}', PARTS),
    ],
    ids=lambda value: str(value)[:20],
)
def test_checkpoints_of_an_unknown_run_are_refused(
    record: bytes | None, reason: str, stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    path = tmp_path / "run" / "out" / "run.json"
    path.unlink()
    if record is not None:
        path.write_bytes(record)
    message = f"{path.parent} holds checkpoints, but no record of how their run was started ({reason}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}.*; choose another folder.$"):
        run(tmp_path / "run")


def test_a_long_value_of_a_damaged_record_is_shown_in_part_and_on_one_line(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    path = tmp_path / "run" / "out" / "run.json"
    record = json.loads(path.read_text())
    record["settings"]["seed"] = "\n" * 100_000
    path.write_text(json.dumps(record))
    shown = ("settings.seed was " + r"\n" * 1000)[:1000]
    message = f"{path.parent} holds a run that was started with different settings ({shown}). Give the same"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        run(tmp_path / "run")


@pytest.mark.parametrize("name", ["bilm_state_0.safetensors", "rng_state.pth"])
def test_a_checkpoint_of_other_processes_is_refused(name: str, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    path = tmp_path / "run" / "out" / "checkpoint-8" / name
    path.unlink()
    message = f"{path} is missing; resume a run with the number of processes that started it."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(tmp_path / "run")


def test_a_damaged_best_checkpoint_is_refused_before_training(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    best = tmp_path / "run" / "out" / "checkpoint-4" / "model-00001-of-00002.safetensors"
    best.write_bytes(best.read_bytes()[:100])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(best))} is damaged, or was not written by this run \("):
        run(tmp_path / "run")


def test_a_run_does_not_resume_with_other_classes_of_the_same_words(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    corpus, settings = make_corpus(tokenizer, 16), {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    pretrain(make_model(), tokenizer, corpus, None, make_arguments(tmp_path / "out", **settings))
    (tmp_path / "out" / "config.json").unlink()
    other = dataclasses.replace(corpus, classes=np.where(corpus.classes > 3, 3, corpus.classes))
    with pytest.raises(ValueError, match="different settings"):
        pretrain(make_model(), tokenizer, other, None, make_arguments(tmp_path / "out", **settings))
