"""Ctrl-C and SIGTERM: a checkpoint where the run is, a sentence, an exit code; and the same command goes on."""

import io
import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from checkpoints import bits
from commands import assert_stopped, run
from language_models import state_of
from newcomer import SMALL, write_files
from tqdm import tqdm
from transformers import TrainerControl, TrainerState

from elmo_hf.language_model import scoring
from elmo_hf.training import callbacks, corpora
from elmo_hf.training import run as pretrain_module
from elmo_hf.training.callbacks import HonestProgress
from elmo_hf.training.interruption import StopSignals
from elmo_hf.training.trainer import ElmoPretrainer

STEPS = ("--max-steps", 9, "--checkpoint-steps", 4, "--logging-steps", 3, *SMALL)


@pytest.fixture(scope="module", autouse=True)
def _no_curves() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain_module, "draw_curve", lambda log, path: None)
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = write_files(tmp_path_factory.mktemp("work"))
    assert pretrain(work, "whole").exit_code == 0
    return work


def pretrain(work: Path, name: str) -> Any:
    options = ("--vocabulary", work / "words.txt", "--config", work / "config.json")
    return run(
        "pretrain", work / "corpus.txt", "-o", work / name, "--held-out", work / "held-out.txt", *options, *STEPS
    )


def send(patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *signals: int) -> None:
    """Sends signals to this process when `owner.name` is called for the `call`-th time."""
    function, calls = getattr(owner, name), []

    def sending(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        for number in signals if len(calls) == call else ():
            signal.raise_signal(number)
        return function(*args, **kwargs)

    patch.setattr(owner, name, sending)


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGINT,), 130), ((signal.SIGTERM,), 143), ((signal.SIGINT, signal.SIGTERM, signal.SIGTERM), 130)],
    ids=["Ctrl-C", "SIGTERM", "both"],
)
def test_a_stopped_run_has_a_checkpoint_and_goes_on_from_there(
    signals: tuple[int, ...], code: int, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cut"
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patch:
        send(patch, ElmoPretrainer, "training_step", 5, *signals)
        sentence = f"Stopped after step 5 of 9, with a checkpoint in {folder}. The same command goes on from there."
        assert_stopped(pretrain(work, str(folder)), code, sentence)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert checkpoints(folder) == ["checkpoint-4", "checkpoint-5"]
    assert not (folder / "config.json").exists()
    log = json.loads((folder / "log.json").read_text())
    assert [entry["step"] for entry in log] == [3, 4, 5]
    resumed = pretrain(work, str(folder))
    assert resumed.exit_code == 0, resumed.output
    for name in (".", "checkpoint-9"):
        assert bits(state_of(folder / name)) == bits(state_of(work / "whole" / name))
    assert sorted(path.name for path in folder.glob(".*")) == []


def test_a_second_ctrl_c_stops_at_once(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, ElmoPretrainer, "training_step", 6, signal.SIGINT, signal.SIGINT)
    sentence = "Stopped at once. The same command goes on from the last checkpoint, if there is one."
    assert_stopped(pretrain(work, str(tmp_path / "cut")), 130, sentence)
    assert checkpoints(tmp_path / "cut") == ["checkpoint-4"]
    monkeypatch.undo()
    assert pretrain(work, str(tmp_path / "cut")).exit_code == 0
    assert bits(state_of(tmp_path / "cut")) == bits(state_of(work / "whole"))


def test_a_signal_in_the_last_step_lets_the_run_end(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(monkeypatch, ElmoPretrainer, "training_step", 9, signal.SIGINT)
    assert pretrain(work, str(tmp_path / "cut")).exit_code == 0
    assert bits(state_of(tmp_path / "cut")) == bits(state_of(work / "whole"))


def test_ctrl_c_before_training_leaves_nothing(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, corpora, "read_sentences", 1, signal.SIGINT)
    sentence = "Stopped at once. The same command goes on from the last checkpoint, if there is one."
    assert_stopped(pretrain(work, str(tmp_path / "cut")), 130, sentence)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_vocab_and_score_leaves_nothing(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        send(patch, corpora, "count_words", 1, signal.SIGINT)
        result = run("vocab", work / "corpus.txt", "-o", tmp_path / "words")
    assert_stopped(result, 130, "Stopped. Nothing was written.")
    with monkeypatch.context() as patch:
        send(patch, scoring, "score_carried", 1, signal.SIGINT)
        result = run("score", work / "whole", work / "held-out.txt", "--per-word", tmp_path / "bits.tsv")
    assert_stopped(result, 130, "Stopped. Nothing was written.")
    assert list(tmp_path.iterdir()) == []


def test_only_the_first_process_prints_that_it_is_stopping(capfd: pytest.CaptureFixture[str]) -> None:
    for is_first in (True, False):
        with StopSignals(is_first) as signals:
            signal.raise_signal(signal.SIGTERM)
        assert signals.number == signal.SIGTERM
        notice = "\nStopping after this step, with a checkpoint. Ctrl-C again stops at once.\n"
        assert capfd.readouterr().err == (notice if is_first else "")


def test_other_threads_catch_no_signals() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with StopSignals(True):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def test_the_bar_of_a_resumed_run_counts_only_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = []

    def bar(**settings: Any) -> tqdm:
        bars.append(tqdm(file=io.StringIO(), **settings))
        return bars[-1]

    monkeypatch.setattr("transformers.trainer_callback.tqdm", bar)
    progress, control = HonestProgress(), TrainerControl()
    state = TrainerState(global_step=930, max_steps=1000)
    progress.on_train_begin(None, state, control)
    state.global_step = 931
    progress.on_step_end(None, state, control)
    numbers = bars[0].format_dict
    assert (numbers["initial"], numbers["n"], numbers["total"]) == (930, 931, 1000)


def test_several_processes_ask_each_other_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two:
        num_processes, device = 2, "cpu"

        @staticmethod
        def gather(number: Any) -> Any:
            asked.append(int(number))
            return number.new_tensor([int(number), signal.SIGTERM])

    asked: list[int] = []
    signals = StopSignals(False)
    callback, control = callbacks.StopCallback(signals, Two()), TrainerControl()
    for step in range(9, 11):
        callback.on_step_end(None, TrainerState(global_step=step, max_steps=50), control)
        assert control.should_training_stop == control.should_save == (step == 10)
    assert (asked, signals.number) == ([0], signal.SIGTERM)
