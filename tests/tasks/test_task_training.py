"""Training models for a task with the stock Trainer, collators and datasets."""

from pathlib import Path
from typing import Any

import pytest
import torch
from launching import fork_two
from task_models import LSTM, TASKS, logits_of, make_batch, make_task_model
from task_training import each_task, make_trainer, train_on_two_texts
from tiny_inputs import assert_outputs_close

from elmo_hf.share.training_card import ElmoTrainer

NAMES = ["layer_0", "layer_1", "layer_2", "scale"]


@pytest.mark.parametrize(("task", "options"), [*((task, {}) for task in TASKS), ("crf", {"bf16": True})], ids=str)
def test_the_stock_trainer_fits_every_task(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = make_task_model(task, representation_dropout=0.0, **LSTM)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    trainer = make_trainer(model, task, tmp_path, max_steps=30, learning_rate=0.1, logging_strategy="no", **options)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    assert all(torch.equal(parameter, frozen[name]) for name, parameter in model.named_parameters() if name in frozen)
    assert model.elmo.scalar_mixes[0].weights.tolist() != pytest.approx([1 / 3] * 3)


def test_elmo_trainer_logs_the_weights_of_each_mix_that_learns(tmp_path: Path) -> None:
    model = make_task_model("labelling", **LSTM)
    mixes = model.elmo.scalar_mixes
    mixes[0].requires_grad_(False)
    with torch.no_grad():
        mixes[1].scale.fill_(1.5)
    trainer = make_trainer(model, "labelling", tmp_path, ElmoTrainer, max_steps=2, eval_strategy="epoch")
    trainer.train()
    first, second, evaluation, _ = trainer.state.log_history
    assert {name for name in second if name.startswith("mix")} == {f"mix_1/{name}" for name in NAMES}
    assert not any(name.startswith("mix") for name in evaluation)
    expected = [*(mixes[1].logits.exp() / mixes[1].logits.exp().sum()).tolist(), mixes[1].scale.item()]
    assert [second[f"mix_1/{name}"] for name in NAMES] == pytest.approx(expected, rel=1e-6)
    assert first["mix_1/layer_0"] != second["mix_1/layer_0"]


@pytest.mark.parametrize("task", ["classification", "labelling", "crf", "questions"])
def test_accumulated_batches_are_one_large_batch(task: str, tmp_path: Path) -> None:
    ends = []
    for size, steps in ((3, 1), (1, 3)):
        model = make_task_model(task, scalar_mix_l2=0.1, representation_dropout=0.0)
        model.elmo.scalar_mixes[0].set_weights([0.1, 0.2, 0.7])
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 2}
        trainer = make_trainer(model, task, tmp_path, optim="sgd", learning_rate=0.1, **options)
        trainer.train()
        ends.append({name: p for name, p in model.named_parameters() if p.requires_grad})
        ends[-1]["loss"] = torch.tensor(trainer.state.log_history[0]["loss"])
    assert_outputs_close(ends[1], ends[0], 1e-5)


@each_task
def test_gradient_checkpointing_gives_the_same_gradients_where_the_bilm_learns(task: str) -> None:
    batch, gradients = make_batch(task), []
    for checkpointing in (False, True):
        model = make_task_model(task, freeze_bilm=["token_encoder"], representation_dropout=0.0).train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model(**batch).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert_outputs_close(gradients[1], gradients[0])


@each_task
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_loaded_in_half_precision_gives_the_same_answers(task: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, batch = make_task_model(task, **LSTM), make_batch(task)
    model.save_pretrained(tmp_path)
    half = type(model).from_pretrained(tmp_path, dtype=dtype)
    expected, actual = logits_of(model(**batch)), logits_of(half(**batch)).float()
    is_logit = expected.abs() < 1e4  # those that mask or forbid something are lowest in any precision
    assert_outputs_close(actual[is_logit], expected[is_logit], 0.2)
    assert half(**batch).loss.item() == pytest.approx(model(**batch).loss.item(), rel=0.1)


def test_two_processes_learn_what_one_does_from_batches_twice_as_large(tmp_path: Path) -> None:
    fork_two("task_training", tmp_path, "train_as_one_of_two")
    one = train_on_two_texts(tmp_path / "one", per_device_train_batch_size=2).model
    two = torch.load(tmp_path / "two", weights_only=True)
    assert_outputs_close(two, {name: p.detach() for name, p in one.named_parameters()}, 1e-5)
