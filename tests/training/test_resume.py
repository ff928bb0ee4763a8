"""A pretraining run resumes where it was killed or stopped: the final weights are those of an undisturbed run, exactly.

Runs here use all that could differ: dropout, a sampled softmax, resets, held-out text, several checkpoints, two passes.
"""

import functools
import json
import shutil
import signal
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo_hf.disk.checksums import SUMS, write_sums
from elmo_hf.folder.listed_files import compare_with_list
from elmo_hf.training.interruption import StopSignals
from elmo_hf.training.run import newest_checkpoint
from tests.helpers.checkpoints import bits
from tests.helpers.language_models import state_of
from tests.helpers.pretraining_runs import VOCABULARY
from tests.helpers.resumed_runs import BEST_STEP, At, interrupt, run

WEIGHTS = "model-00001-of-00002.safetensors"
OFTEN = {"save_steps": 2, "eval_steps": 2}


def assert_same_run(folder: Path, expected: Path) -> None:
    last = max((path.name for path in (expected / "out").glob("checkpoint-*")), key=lambda name: int(name[11:]))
    for name in (".", last):  # the first may be of an earlier step, the best one
        assert bits(state_of(folder / "out" / name)) == bits(state_of(expected / "out" / name))
    assert sorted(path.name for path in (folder / "out").glob(".*")) == []
    assert (folder / "out" / "config.json").read_bytes() == (expected / "out" / "config.json").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    @functools.cache
    def folder_of(**settings: Any) -> Path:
        folder = tmp_path_factory.mktemp("undisturbed")
        run(folder, **settings)
        return folder

    return folder_of


@pytest.fixture
def stopped(tmp_path: Path, stopped_once: Path) -> Path:
    """A run that was killed in its second pass, in step 11, after checkpoints 4 and 8."""
    return shutil.copytree(stopped_once, tmp_path / "run")


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    interrupt(folder, 10)
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["checkpoint-4", "checkpoint-8", "run.json"]
    return folder


@pytest.mark.parametrize(
    ("cuts", "settings"),
    [
        ([(5, "on_step_begin")], {}),
        ([(2, "on_step_begin"), (6, "on_step_begin"), (12, "on_step_begin")], {}),
        ([(9, "on_step_begin")], {"optim": "adamw_torch", "lr_scheduler_type": "linear"}),
        ([(5, "on_substep_end")], {"gradient_accumulation_steps": 2, **OFTEN}),
        ([(2, "on_step_begin"), (6, "on_step_begin")], {"frozen_steps": 6, "max_steps": 8, **OFTEN}),
        # After the last step, before the model is written.
        ([(10, "on_train_end")], {"num_train_epochs": 1.3}),
    ],
    ids=str,
)
def test_a_run_that_stops_resumes(
    cuts: list[tuple[int, str]], settings: dict[str, Any], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    for step, event in cuts:
        interrupt(tmp_path, step, event, **settings)
    (tmp_path / ".out.partial").mkdir()  # as if the model was half written
    (tmp_path / ".out.partial" / "config.json").write_text("{}")
    trainer = run(tmp_path, **settings)
    assert trainer.state.global_step == trainer.state.max_steps
    assert_same_run(tmp_path, undisturbed(**settings))
    log = json.loads((tmp_path / "out" / "log.json").read_text())
    assert log == trainer.state.log_history
    assert [entry["step"] for entry in log if "loss" in entry] == list(range(1, trainer.state.max_steps + 1))
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record == json.loads((undisturbed(**settings) / "out" / "run.json").read_text())


def test_a_run_without_a_checkpoint_may_change_its_settings(undisturbed: Callable[..., Path], tmp_path: Path) -> None:
    interrupt(tmp_path, 2, learning_rate=0.7, lm_dropout=0.1)
    run(tmp_path, logging_steps=3)  # how often to log is no setting of the result
    assert_same_run(tmp_path, undisturbed())
    published = {path.name: path.stat().st_ctime_ns for path in (tmp_path / "out").iterdir() if path.is_file()}
    # It marks a finished model; files moved within one tick of the clock have equal times.
    assert published["config.json"] == max(published.values())


@pytest.mark.parametrize("cut", [(12, "on_step_begin"), (14, "on_train_end")], ids=str)
def test_the_best_checkpoint_is_kept_over_stops_and_moves_of_the_folder(
    cut: tuple[int, str], undisturbed: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(tmp_path / "cut", *cut)
    (tmp_path / "cut").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    trainer = run(Path("moved"))
    kept = sorted(path.name for path in Path("moved/out").glob("checkpoint-*"))
    assert (trainer.state.best_global_step, kept) == (BEST_STEP, ["checkpoint-14", "checkpoint-4"])
    assert_same_run(tmp_path / "moved", undisturbed())
    weights = {path.name: path.read_bytes() for path in Path("moved/out/checkpoint-4").glob("model*.safetensors")}
    assert weights == {path.name: path.read_bytes() for path in Path("moved/out").glob("model*.safetensors")}


def logged(folder: Path) -> list[str]:
    """The entries of a run's log as text, so that the order of their keys counts, without how long things took."""
    entries = json.loads((folder / "out" / "log.json").read_text())
    return [
        json.dumps({key: value for key, value in entry.items() if "runtime" not in key and "per_second" not in key})
        for entry in entries
    ]


@pytest.mark.parametrize("cut", [(10, "on_step_begin"), (14, "on_train_end")], ids=str)
def test_a_resumed_run_has_the_log_and_the_card_of_an_undisturbed_one(
    cut: tuple[int, str], undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    # The checkpoints after steps 8 and 14 have losses that only the next log averages.
    interrupt(tmp_path, *cut, logging_steps=3)
    run(tmp_path, logging_steps=3)
    whole = undisturbed(logging_steps=3)
    assert logged(tmp_path) == logged(whole)
    assert (tmp_path / "out" / "README.md").read_bytes() == (whole / "out" / "README.md").read_bytes()


def losses_of(log: list[dict[str, Any]]) -> dict[int, float]:
    """The losses in a log, by their steps."""
    return {entry["step"]: entry["loss"] for entry in log if "loss" in entry}


@pytest.mark.parametrize("has_losses", [True, False])
def test_the_mean_loss_at_the_end_is_that_of_all_windows_that_are_known(
    has_losses: bool, stopped: Path, undisturbed: Callable[..., Path]
) -> None:
    checkpoint = stopped / "out" / "checkpoint-8"
    if not has_losses:  # as in checkpoints of earlier versions
        (checkpoint / "losses_0.json").unlink()
        write_sums(checkpoint)
    log = run(stopped, logging_steps=3).state.log_history
    losses = losses_of(json.loads((undisturbed() / "out" / "log.json").read_text()))
    known = [loss for step, loss in losses.items() if has_losses or step > 8]
    assert log[-1]["train_loss"] == pytest.approx(sum(known) / len(known), rel=1e-6)
    assert losses_of(log)[12] == pytest.approx((losses[10] + losses[11] + losses[12]) / 3, rel=1e-6)


def flip_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (WEIGHTS, flip_one_bit),
        (SUMS, Path.unlink),  # the checkpoint was being written
        (SUMS, lambda path: path.write_bytes(b"\xff")),
    ],
)
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(
    name: str, damage: Callable[[Path], object], stopped: Path, undisturbed: Callable[..., Path]
) -> None:
    folder = stopped / "out"
    damage(folder / "checkpoint-8" / name)
    assert newest_checkpoint(folder) == folder / "checkpoint-4"
    run(stopped)
    assert_same_run(stopped, undisturbed())


def test_a_lost_file_of_a_checkpoint_is_found_in_the_folder_of_the_run(stopped: Path) -> None:
    folder = stopped / "out"
    (not_finished,) = compare_with_list(folder).faults
    assert not_finished.startswith("SHA256SUMS is missing, so the run is not finished")
    (folder / "checkpoint-4" / "optimizer.pt").unlink()
    assert compare_with_list(folder).faults == [not_finished, "checkpoint-4/optimizer.pt is missing"]


def test_the_newest_checkpoint_is_that_of_most_steps(stopped: Path) -> None:
    folder = stopped / "out"
    for name in ("checkpoint-best", "checkpoint-", "checkpoint-99-old", "checkpoint-10"):
        shutil.copytree(folder / "checkpoint-4", folder / name)
    assert newest_checkpoint(folder) == folder / "checkpoint-10"
    assert newest_checkpoint(stopped / "nothing") is None


def repeat_members(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/x", b"")
        archive.filelist += archive.filelist[:1] * 40_000


def repeat_numbers(path: Path) -> None:
    saved = torch.load(path, weights_only=True)
    saved["state"][0]["sum"] = torch.zeros(1, dtype=torch.half).expand(1 << 33)
    torch.save(saved, path)


def swell(checkpoint: Path, change: Callable[[Path], object]) -> None:
    """Changes the optimiser's file, as a stranger would who also writes its checksum."""
    change(checkpoint / "optimizer.pt")
    write_sums(checkpoint)


# Settings that change the result of a run, with other values.
OTHER: dict[str, Any] = {"unroll_steps": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
OTHER |= {"scale_loss_by_steps": False, "adagrad_start": 0.5, "reset_probability": 0.1, "frozen_steps": 1, "bf16": True}
OTHER |= {"seed": 12, "data_seed": 3, "num_train_epochs": 3, "max_steps": 7, "learning_rate": 0.1, "weight_decay": 0.1}
OTHER |= {"lr_scheduler_type": "linear", "warmup_steps": 1, "optim": "sgd", "max_grad_norm": 1.0}
OTHER |= {"adam_beta1": 0.8, "adam_beta2": 0.8, "adam_epsilon": 0.1}
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Path], object] | None, list[str]]] = {
    "settings": (OTHER, None, ["learning_rate was 0.2, now 0.1;", *(f"{name} was" for name in OTHER)]),
    "architecture": ({"lm_dropout": 0.1}, None, ["config.lm_dropout was 0.3, now 0.1"]),
    "corpus": ({"num_sentences": 15}, None, ["train was 16 sentences"]),
    "held-out text": ({"held_out_seed": 3}, None, ["held_out was 4 sentences"]),
    "vocabulary": ({"vocabulary": [*VOCABULARY[:3], *VOCABULARY[:2:-1]]}, None, ["train was 16", "held_out was 4"]),
    "no record": ({}, lambda out: (out / "run.json").unlink(), ["run.json"]),
    "another record": ({}, lambda out: (out / "run.json").write_text("[]"), ["run.json"]),
    "damaged best": ({}, lambda out: flip_one_bit(out / "checkpoint-4" / WEIGHTS), ["checkpoint-4, the best"]),
    "all damaged": (
        {},
        lambda out: [flip_one_bit(path) for path in out.glob(f"*/{WEIGHTS}")],
        ["are damaged; remove them"],
    ),
    "members twice": ({}, lambda out: swell(out / "checkpoint-8", repeat_members), ["optimizer.pt or", "would take"]),
    "strides of 0": ({}, lambda out: swell(out / "checkpoint-8", repeat_numbers), ["optimizer.pt or", "would take"]),
    "no archive": (
        {},
        lambda out: swell(out / "checkpoint-8", lambda path: path.write_bytes(b"x")),
        ["optimizer.pt or"],
    ),
    "finished": ({}, lambda out: (out / "config.json").touch(), ["holds a finished model"]),
    "a corpus too small": ({"num_sentences": 1, "unroll_steps": 9}, shutil.rmtree, ["24 predictions, fewer than"]),
}


@pytest.mark.parametrize(("settings", "change", "named"), REFUSED.values(), ids=REFUSED)
def test_a_run_is_refused(
    settings: dict[str, Any], change: Callable[[Path], object] | None, named: list[str], stopped: Path
) -> None:
    if change is not None:
        change(stopped / "out")
    with pytest.raises((OSError, ValueError)) as error:
        run(stopped, **settings)
    assert all(each in str(error.value) for each in named)


def stop(*signals: int) -> None:
    for number in signals or (signal.SIGINT, signal.SIGINT):
        signal.raise_signal(number)


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM, signal.SIGTERM)], ids=str)
def test_a_signal_ends_a_run_with_a_checkpoint(
    signals: tuple[int, ...], undisturbed: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt) as stopping:
        run(tmp_path, callbacks=[At(4, "on_step_begin", lambda: stop(*signals))])
    out = tmp_path / "out"
    sentence = f"Stopped after step 5 of 14, with a checkpoint in {out}. The same command goes on from there."
    assert stopping.value.args == (sentence, 128 + signals[0])
    assert capfd.readouterr().err.count("Stopping after this step, with a checkpoint.") == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert newest_checkpoint(out) == out / "checkpoint-5"
    assert [entry["step"] for entry in json.loads((out / "log.json").read_text()) if "loss" in entry] == [1, 2, 3, 4, 5]
    run(tmp_path)
    assert_same_run(tmp_path, undisturbed())


def test_a_second_ctrl_c_stops_at_once_and_one_in_the_last_step_not_at_all(
    undisturbed: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt) as stopping:
        run(tmp_path, callbacks=[At(6, "on_step_begin", stop)])
    assert stopping.value.args == ()
    assert newest_checkpoint(tmp_path / "out") == tmp_path / "out" / "checkpoint-4"
    run(tmp_path, callbacks=[At(13, "on_step_begin", lambda: stop(signal.SIGINT))])
    assert_same_run(tmp_path, undisturbed())


def test_other_threads_catch_no_signals() -> None:
    def handler() -> object:
        with StopSignals(True):
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handler).result() == signal.getsignal(signal.SIGINT)
