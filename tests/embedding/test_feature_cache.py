"""Layers kept beside a dataset: equal to the biLM's, trained on with the same result, refused where they do not fit."""

import re
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from task_models import FIRST, LSTM, SECOND, make_task_model
from task_training import TOKENIZER, each_task, make_dataset, make_trainer
from tiny_inputs import assert_outputs_close

from elmo_hf import ElmoModel
from elmo_hf.embedding.embed import embed_file
from elmo_hf.embedding.feature_cache import add_bilm_layers, add_embedded_layers


def embedded(folder: Path, model: ElmoModel, texts: list[str], name: str, **options: Any) -> Path:
    source = folder / f"{name}.txt"
    source.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    embed_file(model, TOKENIZER, source, folder / f"{name}.hdf5", **options)
    return folder / f"{name}.hdf5"


@each_task
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_layers_are_the_bilms_in_the_datasets_order(task: str, batch_size: int) -> None:
    model, dataset = make_task_model(task), make_dataset(task)
    cached = add_bilm_layers(dataset, model, TOKENIZER, batch_size=batch_size)
    assert set(cached.column_names) == {*dataset.column_names, "bilm_layers"}
    for plain, row in zip(dataset, cached, strict=True):
        expected = model.compute_bilm_layers(torch.tensor([plain["input_ids"]]))[0]
        assert_outputs_close(torch.from_numpy(row["bilm_layers"]), expected)
        assert np.array_equal(row["input_ids"], plain["input_ids"])


@each_task
def test_training_on_kept_layers_trains_the_same_model(task: str, tmp_path: Path) -> None:
    ends = []
    for kept in ("nowhere", "dataset", "file"):
        model = make_task_model(task, **LSTM)
        # Not Adam, which makes full steps of the rounding errors of a gradient that is zero.
        trainer = make_trainer(model, task, tmp_path, max_steps=4, seed=11, optim="sgd", learning_rate=0.1)
        if kept == "file":
            texts = {"first": FIRST} | ({"second": SECOND} if model.num_texts == 2 else {})
            files = [embedded(tmp_path, model.elmo, lines, name) for name, lines in texts.items()]
            trainer.train_dataset = add_embedded_layers(trainer.train_dataset, model, TOKENIZER, *files)
        elif kept == "dataset":
            trainer.train_dataset = add_bilm_layers(trainer.train_dataset, model, TOKENIZER)
        if kept != "nowhere":
            model.elmo.bilm.forward = None  # type: ignore[method-assign, assignment]
        trainer.train()
        ends.append(dict(model.named_parameters()))
    assert_outputs_close(ends[1], ends[0], 1e-5)
    assert_outputs_close(ends[2], ends[0], 1e-5)


def test_layers_can_be_kept_in_float16(tmp_path: Path) -> None:
    model, dataset = make_task_model("crf"), make_dataset("crf")
    exact = add_bilm_layers(dataset, model, TOKENIZER)
    halves = [
        add_bilm_layers(dataset, model, TOKENIZER, dtype="float16"),
        add_embedded_layers(dataset, model, TOKENIZER, embedded(tmp_path, model.elmo, FIRST, "half", dtype="float16")),
    ]
    for half in halves:
        assert half.features["bilm_layers"].dtype == "float16"
        for row, expected in zip(half, exact, strict=True):
            np.testing.assert_allclose(row["bilm_layers"][1:-1], expected["bilm_layers"][1:-1], atol=2e-3)
        trainer = make_trainer(model, "crf", tmp_path, max_steps=1)
        trainer.train_dataset = half
        assert np.isfinite(trainer.train().training_loss)


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
    prints = [add_bilm_layers(dataset, model, TOKENIZER)._fingerprint for model in models]
    prints.append(add_bilm_layers(dataset, models[0], TOKENIZER, dtype="float16")._fingerprint)
    assert len(set(prints)) == len(CHANGES) + 1


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (FIRST[:2], {}, "holds 2 sentences and the dataset 3 rows; the numbers must be equal"),
        (
            ["The ferry left .", *FIRST[1:]],
            {},
            "row 0 of the dataset has 6 words and its vectors in first.hdf5 are of 4;",
        ),
        (
            FIRST,
            {"layers": "top"},
            "must have shape (layers + 1, words, 2 * projection) = (3, words, 14), found (6, 14)",
        ),
        (
            FIRST,
            {"dtype": "int8"},
            "first.hdf5 holds int8 or chosen words; embed all words in float32 or float16.",
        ),
    ],
    ids=["sentences", "words", "layers", "int8"],
)
def test_a_file_of_other_texts_is_refused(texts: list[str], options: dict, message: str, tmp_path: Path) -> None:
    model, dataset = make_task_model("classification"), make_dataset("classification")
    path = embedded(tmp_path, model.elmo, texts, "first", **options)
    with pytest.raises(ValueError, match=re.escape(message)):
        add_embedded_layers(dataset, model, TOKENIZER, path)


def test_what_is_no_file_of_vectors_is_refused(tmp_path: Path) -> None:
    model, dataset = make_task_model("pairs"), make_dataset("pairs")
    text = tmp_path / "first.txt"
    text.write_text("Yes\n", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        add_embedded_layers(dataset, model, TOKENIZER, tmp_path / "no.hdf5", text)
    with pytest.raises(ValueError, match=r"first\.txt must be an \.hdf5 file of `elmo-hf embed --layers all`"):
        add_embedded_layers(dataset, model, TOKENIZER, text, text)
    with pytest.raises(ValueError, match=r"reads 2 text\(s\) a row, found 1 files"):
        add_embedded_layers(dataset, model, TOKENIZER, text)
