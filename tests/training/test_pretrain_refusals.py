"""A run does not resume with other settings, corpora or processes, or where nothing says how it was started."""

import dataclasses
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
        ({"learning_rate": 0.1}, "learning_rate was 0.2, now 0.1"),
        ({"data_seed": 3}, "data_seed was None, now 3"),
        ({"lm_dropout": 0.1}, "config.lm_dropout was 0.3, now 0.1"),
        ({"learning_rate": 0.1, "max_steps": 7}, "learning_rate was 0.2, now 0.1; max_steps was -1, now 7"),
        ({"num_sentences": 15}, "train was 16 sentences, .*, now 15 sentences, "),
        ({"held_out_seed": 3}, "held_out was 4 sentences, .* sha256 .*, now 4 sentences, .* sha256 "),
    ],
    ids=str,
)
def test_a_run_does_not_resume_with_other_settings(
    settings: dict[str, Any], difference: str, stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    with pytest.raises(ValueError, match=rf"/run/out .*different settings \({difference}"):
        run(tmp_path / "run", **settings)


@pytest.mark.parametrize("record", [None, b"[" * 100_000, b"[]", b"{}", b'{"seed": "\\n"}'], ids=str)
def test_checkpoints_of_an_unknown_run_are_refused(record: bytes | None, stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    path = tmp_path / "run" / "out" / "run.json"
    path.unlink()
    if record is not None:
        path.write_bytes(record)
    with pytest.raises((OSError, ValueError), match=re.escape(str(path.parent))):
        run(tmp_path / "run")


def test_a_damaged_best_checkpoint_is_refused_before_training(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    best = tmp_path / "run" / "out" / "checkpoint-4"
    (best / "model-00001-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(best))}, the best checkpoint, is damaged"):
        run(tmp_path / "run")


def test_a_run_does_not_resume_with_other_classes_of_the_same_words(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    corpus, settings = make_corpus(tokenizer, 16), {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    pretrain(make_model(), tokenizer, corpus, None, make_arguments(tmp_path / "out", **settings))
    (tmp_path / "out" / "config.json").unlink()
    other = dataclasses.replace(corpus, classes=np.where(corpus.classes > 3, 3, corpus.classes))
    with pytest.raises(ValueError, match="different settings"):
        pretrain(make_model(), tokenizer, other, None, make_arguments(tmp_path / "out", **settings))
