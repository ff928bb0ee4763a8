"""A checkpoint that is not as it was written is skipped for the one before, and no code in it runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import bits
from language_models import state_of
from pretraining_runs import make_arguments, make_corpus, make_model, make_tokenizer

from elmo_hf.training import run as pretrain_module
from elmo_hf.training.newest_checkpoint import newest_checkpoint
from elmo_hf.training.run import pretrain


class Evil:
    """Its pickle makes a folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (Path("evil"),)


def train(folder: Path) -> None:
    """Six steps, with checkpoints after two, four and six."""
    tokenizer = make_tokenizer(folder)
    args = make_arguments(folder / "out", save_strategy="steps", save_steps=2, max_steps=6)
    pretrain(make_model(), tokenizer, make_corpus(tokenizer, 16), None, args)


@pytest.fixture(scope="module", autouse=True)
def _no_curves() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain_module, "draw_curve", lambda log, path: None)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


@pytest.fixture
def checkpoint(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The newest checkpoint of a run that can go on after step 4; the working folder is empty."""
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "out" / "config.json").unlink()
    shutil.rmtree(tmp_path / "run" / "out" / "checkpoint-6")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return tmp_path / "run" / "out" / "checkpoint-4"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero_the_end(path: Path) -> None:
    """As blocks that a file system lost: the header is whole."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def flip_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def make_evil(path: Path) -> None:
    torch.save({"state": Evil()}, path)


def change_a_number(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"global_step": 3}))


WEIGHTS = "model-00001-of-00002.safetensors"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (WEIGHTS, zero_the_end),
        (WEIGHTS, flip_one_bit),
        (WEIGHTS, Path.unlink),
        ("optimizer.pt", truncate),
        ("optimizer.pt", make_evil),
        ("scheduler.pt", Path.unlink),
        ("rng_state.pth", make_evil),
        ("bilm_state_0.safetensors", flip_one_bit),
        ("trainer_state.json", change_a_number),
        ("pytorch_model.bin", make_evil),
        ("SHA256SUMS", Path.unlink),
        ("SHA256SUMS", truncate),
        ("SHA256SUMS", lambda path: path.write_bytes(b"\xff")),
    ],
)
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(
    name: str, damage: Callable[[Path], object], checkpoint: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(checkpoint / name)
    assert newest_checkpoint(checkpoint.parent) == checkpoint.parent / "checkpoint-2"
    assert caplog.messages == [f"{checkpoint} is incomplete or damaged, so it is skipped."]
    train(checkpoint.parents[1])
    assert bits(state_of(checkpoint.parent)) == bits(state_of(whole / "out"))
    assert not Path("evil").exists()


def test_a_run_is_refused_if_all_its_checkpoints_are_damaged(checkpoint: Path) -> None:
    for folder in checkpoint.parent.glob("checkpoint-*"):
        flip_one_bit(folder / WEIGHTS)
    with pytest.raises(ValueError, match=r"all checkpoints in .*/out are damaged"):
        train(checkpoint.parents[1])


def test_a_run_without_a_complete_checkpoint_starts_anew(checkpoint: Path, whole: Path) -> None:
    for folder in checkpoint.parent.glob("checkpoint-*"):
        (folder / "SHA256SUMS").unlink()
    train(checkpoint.parents[1])
    assert bits(state_of(checkpoint.parent)) == bits(state_of(whole / "out"))
