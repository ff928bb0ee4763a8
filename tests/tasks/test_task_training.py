"""Training models for a task with the stock Trainer, collators, datasets and adapters."""

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from checkpoints import run_python
from task_models import FIRST, LSTM, SECOND, TASKS, C, logits_of, make_batch, make_task_model
from tiny_inputs import assert_outputs_close
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)

from elmo_hf import ElmoTokenizer
from elmo_hf.tasks.task_model import ElmoTaskModel

each_task = pytest.mark.parametrize("task", list(TASKS))
TOKENIZER = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")


def make_dataset(task: str) -> datasets.Dataset:
    """The texts of `make_batch`, tokenized by `map`, without padding, with labels."""
    batch = make_batch(task)
    texts = {"text": FIRST, "text_pair": SECOND} if task in ("pairs", "questions") else {"text": FIRST}
    dataset = datasets.Dataset.from_dict(texts).map(lambda rows: TOKENIZER(**rows), batched=True)
    dataset = dataset.remove_columns(list(texts))
    for key in ("labels", "start_positions", "end_positions"):
        if key in batch:
            values = batch[key].tolist()
            if batch[key].dim() == 2:
                values = [row[: len(ids)] for row, ids in zip(values, dataset["input_ids"], strict=True)]
            dataset = dataset.add_column(key, values)
    return dataset


def make_trainer(model: ElmoTaskModel, task: str, folder: Path, **options: Any) -> Trainer:
    collator = DataCollatorForTokenClassification if task in ("labelling", "crf") else DataCollatorWithPadding
    defaults: dict[str, Any] = {"max_steps": 30, "learning_rate": 3e-2, "per_device_train_batch_size": 2}
    defaults |= {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
    dataset, metric = make_dataset(task), options.pop("compute_metrics", None)
    arguments = TrainingArguments(str(folder), **defaults | options)
    return Trainer(
        model,
        arguments,
        data_collator=collator(TOKENIZER),
        train_dataset=dataset,
        eval_dataset=dataset,
        processing_class=TOKENIZER,
        compute_metrics=metric,
    )


@each_task
@pytest.mark.parametrize(
    "options", [{}, {"train_sampling_strategy": "group_by_length", "bf16": True}], ids=["", "bf16"]
)
def test_the_stock_trainer_fits_every_task(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = make_task_model(task, representation_dropout=0.0, **LSTM)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    trainer = make_trainer(model, task, tmp_path, max_steps=80, learning_rate=0.05, **options)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    assert all(torch.equal(parameter, frozen[name]) for name, parameter in model.named_parameters() if name in frozen)
    assert model.elmo.scalar_mixes[0].weights.tolist() != pytest.approx([1 / 3] * 3)


def test_predictions_of_texts_of_different_lengths_come_back_with_their_labels(tmp_path: Path) -> None:
    seen: list[EvalPrediction] = []

    def accuracy(prediction: EvalPrediction) -> dict[str, float]:
        seen.append(prediction)
        is_word = prediction.label_ids != -100
        return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids)[is_word].mean()}

    model = make_task_model("crf")
    trainer = make_trainer(model, "crf", tmp_path, per_device_eval_batch_size=1, compute_metrics=accuracy)
    metrics = trainer.evaluate()
    assert seen[0].predictions.shape == (3, 8, 5)
    batch = make_batch("crf")
    is_word = batch["labels"] != -100
    right = (model.eval()(**batch).logits.argmax(dim=-1) == batch["labels"])[is_word]
    assert metrics["eval_accuracy"] == pytest.approx(right.float().mean().item())


def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    ends = []
    for folder, steps in (("whole", None), ("parts", 5)):
        model = make_task_model("crf", **LSTM)
        trainer = make_trainer(model, "crf", tmp_path / folder, max_steps=8, save_strategy="steps", save_steps=5)
        trainer.train()
        if steps is not None:
            model = make_task_model("crf", seed=1, **LSTM)
            trainer = make_trainer(model, "crf", tmp_path / folder, max_steps=8)
            trainer.train(resume_from_checkpoint=str(tmp_path / folder / f"checkpoint-{steps}"))
        ends.append(dict(model.named_parameters()))
    assert_outputs_close(ends[1], ends[0])


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


def test_adapters_in_a_frozen_bilm_learn_and_come_back(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model, batch = make_task_model("labelling"), make_batch("labelling")
    adapters = peft.LoraConfig(
        r=2,
        target_modules=["input_linear", "recurrent_linear"],
        modules_to_save=["classifier", "scalar_mixes.0"],
        task_type="TOKEN_CLS",
    )
    adapted = peft.get_peft_model(model, adapters)
    before = {name: parameter.clone() for name, parameter in adapted.named_parameters()}
    trainer = make_trainer(adapted, "labelling", tmp_path / "run", max_steps=5)
    trainer.train()
    learned = {name for name, p in adapted.named_parameters() if not torch.equal(p, before[name])}
    # Each of 2 layers, 2 directions, 2 linears: two matrices; the classifier's two and the mix's two.
    assert len([name for name in learned if "lora_" in name]) == 2 * 2 * 2 * 2
    assert len([name for name in learned if "modules_to_save" in name]) == 4
    assert len(learned) == 20
    adapted.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(make_task_model("labelling"), tmp_path / "adapter").eval()
    assert_outputs_close(again(**batch).logits, adapted.eval()(**batch).logits, 1e-6)
    assert_outputs_close(again.merge_and_unload()(**batch).logits, adapted(**batch).logits, 1e-5)


@each_task
def test_gradient_checkpointing_gives_the_same_gradients_where_the_bilm_learns(task: str) -> None:
    batch, gradients = make_batch(task), []
    for checkpointing in (False, True):
        model = make_task_model(task, freeze_bilm=["token_encoder"], representation_dropout=0.0).train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model(**batch).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert set(gradients[0]) == set(gradients[1])
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


DISTRIBUTED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
from test_task_training import LSTM, make_task_model, make_trainer

model = make_task_model("crf", representation_dropout=0.0, **LSTM)
trainer = make_trainer(
    model, "crf", Path("run"), optim="sgd", learning_rate=0.1, max_steps=2, per_device_train_batch_size=int(sys.argv[2])
)
trainer.train_dataset = trainer.train_dataset.select([0, 2])
trainer.train()
if trainer.is_world_process_zero():
    torch.save({name: p.detach() for name, p in model.named_parameters()}, sys.argv[3])
"""


def test_two_processes_learn_what_one_does_from_batches_twice_as_large(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DISTRIBUTED, encoding="utf-8")
    here = str(Path(__file__).parent)
    launch = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
    run_python(
        launch, tmp_path, "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py", here, 1, "two"
    )
    run_python(launch, tmp_path, "train", here, 2, "one")
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("one", "two"))
    assert_outputs_close(two, one, 1e-5)
