"""Layers kept beside a dataset: equal to the biLM's, trained on with the same result, refused where they do not fit."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from task_models import LSTM, C, make_task_model
from task_training import TOKENIZER, each_task, make_dataset, make_trainer
from tiny_inputs import assert_outputs_close

from elmo_hf import ElmoTokenizer
from elmo_hf.embedding.feature_cache import add_bilm_layers


@each_task
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_layers_are_the_bilms_in_the_datasets_order(task: str, batch_size: int) -> None:
    model, dataset = make_task_model(task), make_dataset(task)
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace", padding_side="left")
    cached = add_bilm_layers(dataset, model, tokenizer, batch_size=batch_size)
    assert set(cached.column_names) == {*dataset.column_names, "bilm_layers"}
    for plain, row in zip(dataset, cached, strict=True):
        expected = model.compute_bilm_layers(torch.tensor([plain["input_ids"]]))[0]
        assert_outputs_close(torch.from_numpy(row["bilm_layers"]), expected)
        assert np.array_equal(row["input_ids"], plain["input_ids"])


@each_task
def test_training_on_kept_layers_trains_the_same_model(task: str, tmp_path: Path) -> None:
    ends = []
    for is_kept in (False, True):
        model = make_task_model(task, **LSTM)
        # Not Adam, which makes full steps of the rounding errors of a gradient that is zero.
        trainer = make_trainer(model, task, tmp_path, max_steps=4, seed=11, optim="sgd", learning_rate=0.1)
        if is_kept:
            trainer.train_dataset = add_bilm_layers(trainer.train_dataset, model, TOKENIZER)
            model.elmo.bilm.forward = None  # type: ignore[method-assign, assignment]
        trainer.train()
        ends.append(dict(model.named_parameters()))
    assert_outputs_close(ends[1], ends[0], 1e-5)


def test_layers_can_be_kept_in_float16() -> None:
    model, dataset = make_task_model("crf"), make_dataset("crf")
    exact, half = (add_bilm_layers(dataset, model, TOKENIZER, dtype=dtype) for dtype in ("float32", "float16"))
    for row, expected in zip(half, exact, strict=True):
        np.testing.assert_array_equal(row["bilm_layers"], expected["bilm_layers"].astype(np.float16))


def test_the_same_bilm_is_not_run_again_whatever_is_on_top_of_it(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    make_dataset("labelling").to_json(path)
    dataset = datasets.Dataset.from_json(str(path), cache_dir=str(tmp_path / "cache"))
    prints = []
    for task, seed, fields in (("labelling", 0, {}), ("crf", 0, LSTM), ("labelling", 1, {})):
        model = make_task_model(task, seed=0, **fields)
        if seed == 1:
            with torch.no_grad():
                model.elmo.bilm.layers[1].backward_lstm.input_linear.bias[0] += 1e-3
        else:
            model.elmo.token_encoder.load_state_dict(make_task_model("labelling").elmo.token_encoder.state_dict())
            model.elmo.bilm.load_state_dict(make_task_model("labelling").elmo.bilm.state_dict())
        prints.append(add_bilm_layers(dataset, model, TOKENIZER)._fingerprint)
    assert prints[0] == prints[1] != prints[2]


CHANGES: list[dict[str, Any]] = [
    {},
    {"char_activation": "tanh"},
    {"cell_clip": 0.5},
    {"projection_clip": 0.3},
    {"use_skip_connections": False},
    {"forget_bias": 0.25},
]


def test_a_setting_that_changes_layers_makes_another_column() -> None:
    dataset = make_dataset("labelling")
    models = [make_task_model("labelling", **fields) for fields in CHANGES]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    models.append(make_task_model("labelling"))
    with torch.no_grad():
        models[-1].elmo.token_encoder.projection.bias[0] += 1e-3
    prints = [add_bilm_layers(dataset, model, TOKENIZER)._fingerprint for model in models]
    prints.append(add_bilm_layers(dataset, models[0], TOKENIZER, dtype="float16")._fingerprint)
    assert len(set(prints)) == len(CHANGES) + 2
