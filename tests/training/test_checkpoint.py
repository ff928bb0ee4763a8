"""Damaged and hostile files of a checkpoint: each is named, with what to do, and no code in it runs."""

import json
import pickle
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pretraining_runs import make_arguments, make_corpus, make_model, make_tokenizer
from safetensors.torch import load_file, save_file

from elmo_hf.training import run as pretrain_module
from elmo_hf.training.checkpoint import check_files, last_complete_checkpoint
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


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that can go on after step 4."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain_module, "draw_curve", lambda log, path: None)
        train(folder)
    (folder / "out" / "config.json").unlink()
    shutil.rmtree(folder / "out" / "checkpoint-6")
    return folder


@pytest.fixture
def checkpoint(half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the newest checkpoint; the working folder is empty."""
    shutil.copytree(half, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return tmp_path / "run" / "out" / "checkpoint-4"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """Changes the last byte of what a member holds."""
    with zipfile.ZipFile(path) as archive:
        member = max(archive.infolist(), key=lambda member: member.file_size)
    content = bytearray(path.read_bytes())
    names = struct.unpack("<HH", content[member.header_offset + 26 : member.header_offset + 30])
    content[member.header_offset + 30 + sum(names) + member.file_size - 1] ^= 1
    path.write_bytes(content)


def compress(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def make_evil(path: Path) -> None:
    torch.save({"state": Evil()}, path)


def make_old_and_evil(path: Path) -> None:
    path.write_bytes(pickle.dumps(Evil()))


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "File is not a zip file"),
        (zero, "File is not a zip file"),
        (empty, "File is not a zip file"),
        (flip, "its member .* has a wrong checksum"),
        (compress, "it is a compressed zip file; torch.save writes uncompressed ones"),
        (make_evil, "it holds more than numbers: .*, which is code"),
        (make_old_and_evil, "File is not a zip file"),
        (make_folder, r"\[Errno 21\] Is a directory: .*"),
        (lambda path: torch.save([3], path), ".*"),
        (lambda path: torch.save({"state": 3, "param_groups": 4, "lr_lambdas": 5, "python": 6}, path), ".*"),
    ],
    ids=["cut", "zeros", "empty", "flipped", "deflated", "evil", "old", "folder", "list", "numbers"],
)
def test_a_damaged_or_hostile_file_of_a_checkpoint_is_named_and_never_run(
    damage: Callable[[Path], object], reason: str, name: str, checkpoint: Path
) -> None:
    damage(checkpoint / name)
    expected = f"{checkpoint}/.*{re.escape(name)}.* is damaged, or was not written by this run ({reason}). Delete the "
    expected += f"folder {checkpoint} and give the same command again: it goes on from the checkpoint before, or "
    pattern = expected.replace("(", r"\(", 1).replace("). Delete", r"\)\. Delete")
    with pytest.raises(ValueError, match=f"^{pattern}starts anew.$") as caught:
        train(checkpoint.parents[1])
    assert "weights_only" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("evil").exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_a_file_that_the_trainer_would_do_without_is_missed(name: str, checkpoint: Path) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(ValueError, match=rf"/{name} is damaged, or .* \(.*No such file or directory.*\)\. Delete the"):
        train(checkpoint.parents[1])


def test_the_advice_helps(checkpoint: Path) -> None:
    truncate(checkpoint / "optimizer.pt")
    with pytest.raises(ValueError, match="Delete the folder"):
        train(checkpoint.parents[1])
    shutil.rmtree(checkpoint)
    train(checkpoint.parents[1])
    assert (checkpoint.parent / "config.json").exists()


WEIGHTS = "model-00001-of-00002.safetensors"


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def reshape(path: Path) -> None:
    save_file({name: tensor.unsqueeze(0) for name, tensor in load_file(path).items()}, path)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (WEIGHTS, truncate, f"{WEIGHTS} is damaged, or was not written by this run (Error while deserializing header"),
        (WEIGHTS, zero, f"{WEIGHTS} is damaged, or was not written by this run ("),
        (WEIGHTS, Path.unlink, "model.safetensors is damaged, or was not written by this run ("),
        (WEIGHTS, reshape, "model.safetensors is damaged, or was not written by this run (Error(s) in loading"),
        ("config.json", empty, "config.json is damaged, or was not written by this run (Expecting value"),
        (
            "config.json",
            lambda path: path.write_text("[" * 100_000),
            "config.json is damaged, or was not written by this run (maximum recursion depth exceeded",
        ),
        (
            "config.json",
            lambda path: path.write_text("[]"),
            "config.json is damaged, or was not written by this run (it",
        ),
        (
            "model.safetensors.index.json",
            lambda path: rewrite(
                path, lambda index: {"weight_map": dict.fromkeys(index["weight_map"], "../x.safetensors")}
            ),
            "(it names '../x.safetensors', which is no safetensors file beside it). Delete",
        ),
        (
            "model.safetensors.index.json",
            lambda path: path.write_text('{"weight_map": {"softmax.bias": "evil.bin"}}'),
            "(it names 'evil.bin', which is no safetensors file beside it). Delete",
        ),
        (
            "model.safetensors.index.json",
            lambda path: path.write_text('{"weight_map": 3}'),
            "index.json is damaged, or",
        ),
        (
            "pytorch_model.bin",
            make_evil,
            "pytorch_model.bin is damaged, or was not written by this run (weights must be",
        ),
        ("bilm_state_0.safetensors", truncate, "bilm_state_0.safetensors is damaged, or was not written by this run ("),
        (
            "bilm_state_0.safetensors",
            lambda path: save_file({"x": torch.ones(1)}, path),
            "bilm_state_0.safetensors is damaged, or was not written by this run (",
        ),
        ("losses_0.safetensors", zero, "losses_0.safetensors is damaged, or was not written by this run ("),
        (
            "losses_0.safetensors",
            lambda path: save_file({"last_log": torch.tensor(1), "loss": torch.ones(2, 2)}, path),
            "(`loss` must be losses one after the other, found shape (2, 2)). Delete",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_damaged_weights_and_states_are_named(
    name: str, damage: Callable[[Path], object], message: str, checkpoint: Path
) -> None:
    damage(checkpoint / name)
    with pytest.raises(ValueError, match=re.escape(message)):
        train(checkpoint.parents[1])
    assert not Path("evil").exists()


def test_whole_checkpoints_pass(checkpoint: Path) -> None:
    check_files(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        {"global_step": "4"},
        {"global_step": True},
        {"global_step": 10**30},
        {"global_step": -1},
        {"epoch": None},
        {"epoch": 1e300},
        {"epoch": float("nan")},
        {"max_steps": 3},
        {"log_history": 5},
        {"log_history": [5]},
        {"log_history": [{"loss": 1.0}]},
        {"log_history": [{"step": 1, "loss": "low"}]},
        {"stateful_callbacks": [1]},
        {"best_metric": "x"},
        {"best_global_step": "../.."},
        {"best_model_checkpoint": 3},
        {"save_steps": None},
        {"total_flos": []},
        {"no_such_field": 1},
    ],
    ids=str,
)
def test_a_state_with_wrong_values_is_no_complete_checkpoint(
    change: dict[str, Any], checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(checkpoint / "trainer_state.json", lambda state: state | change)
    assert last_complete_checkpoint(checkpoint.parent) == checkpoint.parent / "checkpoint-2"
    assert caplog.messages == [f"{checkpoint} is incomplete, so it is ignored."]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b"{}" * 2], ids=lambda c: str(c)[:9]
)
def test_garbage_is_no_state(content: bytes, checkpoint: Path) -> None:
    (checkpoint / "trainer_state.json").write_bytes(content)
    assert last_complete_checkpoint(checkpoint.parent) == checkpoint.parent / "checkpoint-2"
