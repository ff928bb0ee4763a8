"""A run that is stopped and goes on after one thing was changed: it is refused, or equals an undisturbed one.

Whatever the card, the log and the command say of a model was measured of the weights that are written.
"""

import json
import os
import queue
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.summary.writer.event_file_writer import _AsyncWriterThread
from transformers import TrainerCallback

from elmo_hf import ElmoForPreTraining, ElmoTokenizer
from elmo_hf.disk.checksums import SUMS, sums_agree, write_sums
from elmo_hf.language_model.scoring import score_from_zero
from elmo_hf.training.checkpoints import (
    BestScore,
    best_score,
    checkpoint_folders,
    remove_old_checkpoints,
)
from elmo_hf.training.interruption import StopSignals
from elmo_hf.training.record import ADDED, FACTS, Start, check_folder, resumed_record
from elmo_hf.training.run import pretrain
from elmo_hf.training.trainer import ElmoPretrainer
from tests.helpers.checkpoints import bits
from tests.helpers.interrupts import Interrupt, power_cut
from tests.helpers.language_models import state_of, words_file
from tests.helpers.pretraining_runs import VOCABULARY, make_arguments, make_corpus, make_model
from tests.helpers.resumed_runs import At
from tests.helpers.tiny_inputs import TINY
from tests.helpers.tiny_lm import tokenizer_with

FIRST = Start("org/first")
HELD_OUT = make_corpus(4, seed=2)
# Perplexities by step: the best after 2, then after 6.
SCORES = {2: 10.0, 4: 12.0, 6: 11.0}


class Scores(TrainerCallback):
    """Gives the evaluation after each step a perplexity, for which steps are compared."""

    def __init__(self, scores: dict[int, float]) -> None:
        self.scores = scores

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        if "eval_perplexity" in logs:
            logs["eval_perplexity"] = self.scores[state.global_step]
            state.log_history[-1]["eval_perplexity"] = self.scores[state.global_step]


def model_with(change: float = 0.0, of_softmax: float = 0.0) -> ElmoForPreTraining:
    """A model, in which one weight of the biLM or of the softmax is larger."""
    model = make_model()
    with torch.no_grad():
        model.elmo.bilm.layers[0].forward_lstm.input_linear.bias[0] += change
        model.softmax.bias[0] += of_softmax
    return model


def adapt(
    folder: Path,
    *,
    model: ElmoForPreTraining | None = None,
    tokenizer: ElmoTokenizer | None = None,
    start: Start | None = FIRST,
    scores: dict[int, float] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    **settings: Any,
) -> ElmoPretrainer:
    """Adapts a model for six steps with a checkpoint after every other one."""
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}
    if scores is not None:
        options |= {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
        options |= {"metric_for_best_model": "eval_perplexity", "greater_is_better": False}
        callbacks = [*callbacks, Scores(scores)]
    return pretrain(
        model or model_with(),
        tokenizer or tokenizer_with(tuple(VOCABULARY)),
        make_corpus(),
        None if scores is None else HELD_OUT,
        make_arguments(folder, **options | settings),
        started_from=start,
        callbacks=callbacks,
    )


def cut_run(folder: Path, cut: int = 5, **options: Any) -> Path:
    """Starts a run like `adapt`, with a power cut after step `cut`."""
    with pytest.raises(Interrupt):
        adapt(folder, callbacks=[At(cut, "on_step_begin", power_cut)], **options)
    assert not (folder / "config.json").exists()
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    adapt(folder)
    return folder


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut_run(tmp_path_factory.mktemp("stopped") / "run")


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    """A run that was killed in its sixth step, after checkpoints 2 and 4."""
    return shutil.copytree(stopped_once, tmp_path / "run")


def tokenizer_of(folder: Path, words: list[str], **fields: Any) -> ElmoTokenizer:
    size = TINY["max_word_length"]
    return ElmoTokenizer(max_word_length=size, words_file=str(words_file(folder, words)), **fields)


def with_reserved_word(folder: Path) -> ElmoTokenizer:
    tokenizer = tokenizer_of(folder, VOCABULARY)
    tokenizer.add_tokens(["reserved"])
    return tokenizer


# What is changed, and what the refusal names.
CHANGES: dict[str, tuple[Callable[[Path], dict[str, Any]], list[str]]] = {
    "weights": (
        lambda _: {"model": model_with(1e-6), "start": Start("org/second")},
        ["start_weights was sha256", "started_from was org/first, now org/second"],
    ),
    "weights of the softmax": (lambda _: {"model": model_with(of_softmax=1.0)}, ["start_weights was sha256"]),
    "a new softmax": (lambda _: {"start": Start("org/first", has_new_softmax=True)}, ["start_weights was sha256"]),
    "no model": (lambda _: {"start": None}, ["start_weights was sha256", "now random"]),
    "a word that the text lacks": (
        lambda folder: {"tokenizer": tokenizer_of(folder, [*VOCABULARY[:-1], "unread"])},
        ["words was 17 words, sha256"],
    ),
    "splitter": (
        lambda folder: {"tokenizer": tokenizer_of(folder, VOCABULARY, word_splitter="whitespace")},
        ["word_splitter was ptb, now whitespace"],
    ),
    "input ids": (lambda folder: {"tokenizer": with_reserved_word(folder)}, ["tokenizer was sha256"]),
    "precision": (lambda _: {"model": model_with().half()}, ["dtype was torch.float32, now torch.float16"]),
    "best": (lambda _: {"scores": SCORES}, ["load_best_model_at_end was False, now True"]),
}


@pytest.mark.parametrize(("change", "named"), CHANGES.values(), ids=CHANGES)
def test_a_run_does_not_go_on_from_something_else(
    change: Callable[[Path], dict[str, Any]], named: list[str], stopped: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="started with different settings") as error:
        adapt(stopped, **change(tmp_path))
    assert [name for name in named if name not in str(error.value)] == []
    assert not (stopped / "config.json").exists()


def test_a_run_goes_on_from_equal_weights_by_any_name_and_the_card_has_the_first_name(
    stopped: Path, undisturbed: Path
) -> None:
    adapt(stopped, start=Start("org/second"))
    assert bits(state_of(stopped)) == bits(state_of(undisturbed))
    for folder in (stopped, undisturbed):
        assert "trained from [org/first](https://huggingface.co/org/first) with" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["models/first", "models/../models/first", "."])
def test_a_folder_is_named_by_its_last_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "models" / "first" if name == "." else tmp_path)
    cut_run(tmp_path / "run", cut=0, start=Start(name))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["started_from"] == "first"


def test_random_weights_of_a_new_softmax_follow_from_the_seed(tmp_path: Path) -> None:
    start = Start("org/first", has_new_softmax=True)
    folder = cut_run(tmp_path / "run", start=start)
    with pytest.raises(ValueError, match="start_weights was sha256"):
        adapt(folder, model=model_with(1e-6), start=start)
    # On another processor, the last bits of random weights are others.
    adapt(folder, model=model_with(of_softmax=1e-6), start=start)


def as_an_earlier_version(folder: Path) -> None:
    """Takes away what records of version 0.1.0 lacked."""
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({name: record[name] for name in record if name not in (*ADDED, *FACTS)})
    )
    for checkpoint in folder.glob("checkpoint-*"):
        (checkpoint / "run.json").unlink()
        write_sums(checkpoint)


def test_a_run_of_an_earlier_version_goes_on_with_one_warning(
    stopped: Path, undisturbed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    as_an_earlier_version(stopped)
    adapt(stopped)
    (warning,) = [each.getMessage() for each in caplog.records if each.name == "elmo_hf.training.record"]
    assert "is of an earlier version and lacks dtype, load_best_model_at_end, start_weights, tokenizer" in warning
    assert bits(state_of(stopped)) == bits(state_of(undisturbed))
    assert "[org/first]" in (stopped / "README.md").read_text()
    copies = [(stopped / name).read_text() for name in ("run.json", "checkpoint-6/run.json")]
    assert json.loads(copies[0]) == json.loads(copies[1])


def test_other_surroundings_are_told(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = json.loads((stopped / "run.json").read_text())
    (stopped / "run.json").write_text(json.dumps(record | {"torch": "1.0"}))
    resumed_record(stopped, record)
    (warning,) = [each.getMessage() for each in caplog.records]
    assert f"may differ from that of an uninterrupted run: torch was 1.0, now {record['torch']}." in warning


def copy_of_another_run(stopped: Path, other: Path) -> None:
    shutil.copytree(cut_run(other, cut=3, seed=3) / "checkpoint-2", stopped / "checkpoint-999")


def checkpoint_without_record(stopped: Path, other: Path) -> None:
    shutil.copytree(stopped / "checkpoint-2", stopped / "checkpoint-3")
    (stopped / "checkpoint-3" / "run.json").unlink()
    write_sums(stopped / "checkpoint-3")


def record_of_another_run(stopped: Path, other: Path) -> None:
    record = json.loads((stopped / "run.json").read_text())
    for checkpoint in stopped.glob("checkpoint-*"):
        (checkpoint / "run.json").write_text(json.dumps(record | {"seed": "3"}))
        write_sums(checkpoint)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (copy_of_another_run, "checkpoint-999 is not a checkpoint of the run .*: its run.json differs in seed"),
        (checkpoint_without_record, "checkpoint-3 is not a checkpoint of the run .*: it has no run.json"),
        (record_of_another_run, "checkpoint-2 is not a checkpoint of the run .*: its run.json differs in seed"),
    ],
)
def test_checkpoints_of_other_runs_are_refused(
    change: Callable[[Path, Path], None], named: str, stopped: Path, tmp_path: Path
) -> None:
    change(stopped, tmp_path / "other")
    with pytest.raises(ValueError, match=named):
        adapt(stopped)


def test_a_record_that_is_gone_is_put_back_from_a_checkpoint(stopped: Path, undisturbed: Path) -> None:
    (stopped / "run.json").unlink()
    with pytest.raises(ValueError, match=r"has checkpoints but no run\.json"):
        adapt(stopped)
    shutil.copy(stopped / "checkpoint-4" / "run.json", stopped)
    adapt(stopped)
    assert bits(state_of(stopped)) == bits(state_of(undisturbed))


def test_the_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    check_folder(tmp_path, {"README.md"})
    (tmp_path / "README.md").touch()
    with pytest.raises(ValueError, match=r"has README\.md but no run\.json"):
        check_folder(tmp_path, {"README.md", "log.json"})
    (tmp_path / "checkpoint-500").mkdir()
    with pytest.raises(ValueError, match=r"has checkpoints but no run\.json"):
        adapt(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "checkpoint-500", "notes.txt"]


def damage(folder: Path) -> None:
    with (folder / "training_args.bin").open("ab") as file:
        file.write(b"x")


def assert_scores_are_of_the_weights(trainer: ElmoPretrainer, folder: Path, step: int) -> None:
    """The weights that were written are those after `step`, and the card has their score."""
    if step != trainer.state.global_step:
        saved = bits(state_of(folder / f"checkpoint-{step}"))  # with the state of the LSTMs
        assert bits(state_of(folder)).items() <= saved.items()
    scores = trainer.scores_of_weights
    assert scores["step"] == step
    measured = score_from_zero(ElmoForPreTraining.from_pretrained(folder), HELD_OUT)
    assert scores["eval_forward_perplexity"] == pytest.approx(measured.forward_perplexity, rel=1e-6)
    card = (folder / "README.md").read_text().splitlines()
    assert f"| Perplexity | {scores['eval_perplexity']:.5g} |" in card
    assert f"| Forward Perplexity | {scores['eval_forward_perplexity']:.5g} |" in card


def test_without_its_best_checkpoint_a_run_has_the_best_of_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scores = {2: 10.0, 4: 11.0, 6: 12.0}
    folder = cut_run(tmp_path / "run", scores=scores)
    assert sorted(checkpoint_folders(folder)) == [2, 4]
    damage(folder / "checkpoint-2")
    with pytest.raises(
        ValueError, match=r"checkpoint-2, the best checkpoint, is damaged\. Remove this folder and give"
    ):
        adapt(folder, scores=scores)
    shutil.rmtree(folder / "checkpoint-2")  # as the message says
    trainer = adapt(folder, scores=scores)
    assert f"{folder}/checkpoint-2, the best checkpoint, is not there; the best of the others is that of step 4." in (
        each.getMessage() for each in caplog.records
    )
    state = trainer.state
    best = (state.best_metric, state.best_global_step, state.best_model_checkpoint)
    assert best == (11.0, 4, str(folder / "checkpoint-4"))
    assert_scores_are_of_the_weights(trainer, folder, 4)


def test_a_best_checkpoint_that_is_damaged_before_the_end_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    damaging = At(5, "on_step_begin", lambda: damage(folder / "checkpoint-2"))
    with pytest.raises(ValueError, match="checkpoint-2, the best checkpoint, is damaged"):
        adapt(folder, scores=SCORES, callbacks=[damaging])
    shutil.rmtree(folder / "checkpoint-2")
    trainer = adapt(folder, scores=SCORES)
    assert_scores_are_of_the_weights(trainer, folder, 6)


def test_without_any_best_checkpoint_the_last_weights_are_scored(tmp_path: Path) -> None:
    scores = {2: 10.0, 4: float("nan"), 6: float("inf")}
    folder = cut_run(tmp_path / "run", scores=scores)
    shutil.rmtree(folder / "checkpoint-2")
    trainer = adapt(folder, scores=scores)
    state = trainer.state
    assert (state.best_metric, state.best_global_step, state.best_model_checkpoint) == (None, None, None)
    assert_scores_are_of_the_weights(trainer, folder, 6)


def test_a_step_without_a_checkpoint_is_not_the_best(tmp_path: Path) -> None:
    trainer = adapt(tmp_path / "run", scores=SCORES, save_steps=4)
    assert (trainer.state.best_global_step, trainer.state.best_metric) == (6, 11.0)
    assert_scores_are_of_the_weights(trainer, tmp_path / "run", 6)


def test_checkpoints_are_removed_by_step_and_only_those_of_the_run(stopped: Path) -> None:
    future = 4e9
    for checkpoint in stopped.glob("checkpoint-*"):
        os.utime(checkpoint, (future, future))
    others = ["checkpoint-12-old", "checkpoint-007", "checkpoint-abc", "checkpoint-", "checkpoint-٣"]
    for name in others:
        (stopped / name).mkdir()
    (stopped / "checkpoint-7").write_text("mine")
    adapt(stopped, save_total_limit=1)
    assert sorted(path.name for path in stopped.glob("checkpoint-*")) == sorted(
        [*others, "checkpoint-7", "checkpoint-6"]
    )


@pytest.mark.parametrize(
    ("most", "best", "incomplete", "left"),
    [
        (2, None, [], [6, 8, 20]),
        (2, 2, [], [2, 8, 20]),
        (1, 2, [], [2, 8, 20]),
        (3, 8, [], [4, 6, 8, 20]),
        (3, None, [6], [2, 4, 8, 20]),
        (None, None, [6], [2, 4, 6, 8, 20]),
    ],
)
def test_the_newest_and_the_best_stay_and_what_is_incomplete_goes_first(
    most: int | None, best: int | None, incomplete: list[int], left: list[int], tmp_path: Path
) -> None:
    for step in (2, 4, 6, 8, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if step not in incomplete:
            (tmp_path / f"checkpoint-{step}" / SUMS).touch()
    remove_old_checkpoints(tmp_path, most, newest=8, best=best)
    assert [*checkpoint_folders(tmp_path)] == left


@pytest.mark.parametrize(
    ("greater_is_better", "steps", "expected"),
    [
        (False, [2, 4, 6, 8, 10], BestScore(1.0, 4)),
        (True, [2, 4, 6, 8, 10], BestScore(3.0, 2)),
        (False, [2, 8, 10], BestScore(3.0, 2)),
        (False, [8, 10, 12], None),
        (False, [], None),
    ],
)
def test_the_best_score_is_the_first_finite_one_of_a_checkpoint_that_is_there(
    greater_is_better: bool, steps: list[int], expected: BestScore | None
) -> None:
    scores = {2: 3.0, 4: 1.0, 6: 1.0, 8: float("nan"), 10: float("-inf" if not greater_is_better else "inf")}
    log: list[dict[str, Any]] = [{"step": step, "eval_f1": score} for step, score in scores.items()]
    log.append({"step": 12, "loss": 0.0})
    assert best_score(log, "eval_f1", greater_is_better, steps) == expected


def test_files_of_a_damaged_checkpoint_are_not_in_the_one_that_replaces_it(stopped: Path, undisturbed: Path) -> None:
    (stopped / "checkpoint-4" / "model.safetensors").write_bytes(b"of another model")
    adapt(stopped, save_total_limit=None)
    files = [sorted(path.name for path in (stopped / f"checkpoint-{step}").iterdir()) for step in (4, 6)]
    assert files[0] == files[1]
    assert bits(state_of(stopped)) == bits(state_of(undisturbed))


def test_the_given_steps_between_checkpoints_count_after_a_stop(stopped: Path) -> None:
    cut_run(stopped, save_steps=5)
    assert [*checkpoint_folders(stopped)] == [4, 5]


def test_the_trainer_resumes_from_the_newest_checkpoint_that_is_whole_and_returns_the_loss_of_the_log(
    stopped: Path,
) -> None:
    damage(stopped / "checkpoint-4")
    first: list[int] = []
    args = make_arguments(stopped, max_steps=3)
    trainer = ElmoPretrainer(model_with(), args, train_dataset=make_corpus())
    trainer.add_callback(At(2, "on_step_begin", lambda: first.append(trainer.state.global_step)))
    output = trainer.train(True)
    assert first == [2]
    assert output.training_loss == trainer.state.log_history[-1]["train_loss"]
    args = make_arguments(stopped / "nothing", max_steps=3)
    with pytest.raises(ValueError, match="has no complete checkpoint"):
        ElmoPretrainer(model_with(), args, train_dataset=make_corpus()).train(True)


def test_the_trainer_refuses_a_named_checkpoint_that_is_damaged_or_incomplete(stopped: Path) -> None:
    damage(stopped / "checkpoint-4")
    (stopped / "checkpoint-2" / SUMS).unlink()
    for name in ("checkpoint-4", "checkpoint-2", "checkpoint-9"):
        trainer = ElmoPretrainer(model_with(), make_arguments(stopped, max_steps=5), train_dataset=make_corpus())
        with pytest.raises(ValueError, match=f"{name} must be a checkpoint"):
            trainer.train(str(stopped / name))
        assert trainer.state.global_step == 0


def test_a_checkpoint_that_may_not_be_read_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-2").mkdir()
    write_sums(tmp_path / "checkpoint-2")
    (tmp_path / "checkpoint-2" / SUMS).chmod(0)
    user = os.geteuid()
    if user == 0:  # for whom no file is closed
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            sums_agree(tmp_path / "checkpoint-2")
    finally:
        os.seteuid(user)


def run_thread(thread: threading.Thread) -> None:
    thread.start()
    thread.join()


class FullDisk:
    """A writer of TensorBoard's records that finds no room."""

    def write(self, data: bytes) -> None:
        raise OSError(28, "No space left on device")


def fail() -> None:
    raise OSError(28, "No space left on device")


def failing_threads() -> list[threading.Thread]:
    """A thread of the user's program, one of TensorBoard's writer, and one that fails in another way."""
    events: queue.Queue[bytes] = queue.Queue()
    events.put(b"event")
    return [
        threading.Thread(target=fail),
        _AsyncWriterThread(events, FullDisk(), 0),
        threading.Thread(target=int, args="x"),
    ]


def seen_errors(seen: list[type]) -> list[type]:
    """Which errors of the threads reach the hook that puts them into `seen`."""
    seen.clear()
    for thread in failing_threads():
        thread.start()
        thread.join()
    return [*seen]


def test_only_tensorboards_errors_of_the_disk_are_left_to_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: seen.append(failure.exc_type))
    hook = threading.excepthook
    with StopSignals(True):
        assert seen_errors(seen) == [OSError, ValueError]
        with StopSignals(True):
            assert seen_errors(seen) == [OSError, ValueError]
        assert seen_errors(seen) == [OSError, ValueError]
    assert threading.excepthook is hook
    # Runs of two threads may end in any order.
    first, second = StopSignals(True), StopSignals(True)
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert seen_errors(seen) == [OSError, ValueError]
    second.__exit__()
    assert seen_errors(seen) == [OSError, OSError, ValueError]
