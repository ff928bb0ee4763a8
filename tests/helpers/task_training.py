"""Datasets for the small models of each task, and a stock Trainer for them."""

import functools
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, Trainer, TrainingArguments

from elmo_hf.model.heads_elmo import ElmoTaskModel
from tests.helpers.task_models import FIRST, LSTM, SECOND, TASKS, TOKENIZER, make_batch, make_task_model

each_task = pytest.mark.parametrize("task", list(TASKS))


@functools.cache
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


def make_trainer(
    model: ElmoTaskModel, task: str, folder: Path, trainer_class: type[Trainer] = Trainer, **options: Any
) -> Trainer:
    collator = DataCollatorForTokenClassification if task in ("labelling", "crf") else DataCollatorWithPadding
    defaults: dict[str, Any] = {"max_steps": 30, "learning_rate": 3e-2, "per_device_train_batch_size": 2}
    defaults |= {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1}
    dataset, metric = make_dataset(task), options.pop("compute_metrics", None)
    arguments = TrainingArguments(str(folder), **defaults | options)
    return trainer_class(
        model,
        arguments,
        data_collator=collator(TOKENIZER),
        train_dataset=dataset,
        eval_dataset=dataset,
        processing_class=TOKENIZER,
        compute_metrics=metric,
    )


def train_on_two_texts(folder: Path, **options: Any) -> Trainer:
    """Takes two steps with a CRF, without dropout, on a short and a long text."""
    model = make_task_model("crf", representation_dropout=0.0, **LSTM)
    trainer = make_trainer(model, "crf", folder, optim="sgd", learning_rate=0.1, max_steps=2, **options)
    trainer.train_dataset = trainer.train_dataset.select([0, 2])
    trainer.train()
    return trainer


def train_as_one_of_two(folder: Path) -> None:
    """What each of two processes does, or fails after a minute's wait; the first writes the weights to `two`."""
    trainer = train_on_two_texts(folder / "run", per_device_train_batch_size=1, ddp_timeout=60)
    assert trainer.args.world_size == 2
    if trainer.is_world_process_zero():
        torch.save({name: p.detach() for name, p in trainer.model.named_parameters()}, folder / "two")
    torch.distributed.barrier()  # neither leaves while the other still waits for its numbers
