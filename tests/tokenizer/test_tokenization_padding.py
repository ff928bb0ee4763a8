"""`ElmoTokenizer.pad`, data collators and datasets."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from rows import BARE, SPLIT, C, mask, rows
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from elmo_hf import ElmoTokenizer

CONVERT = {"lists": np.ndarray.tolist, "arrays": np.asarray, "tensors": torch.from_numpy}


@pytest.mark.parametrize("as_mapping", [False, True], ids=["list_of_texts", "mapping_of_lists"])
@pytest.mark.parametrize("kind", CONVERT)
def test_pad_returns_what_came_in(tokenizer: ElmoTokenizer, kind: str, as_mapping: bool) -> None:
    encoded = [tokenizer(text, return_tensors="np", **BARE) for text in ("a b", "", "c")]
    examples: Any = [{key: CONVERT[kind](value[0]) for key, value in each.items()} for each in encoded]
    if as_mapping:
        examples = {key: [example[key] for example in examples] for key in examples[0]}
    for options, expected in (
        ({}, ["a b", "_ _", "c _"]),
        ({"padding_side": "left", "pad_to_multiple_of": 3}, ["_ a b", "_ _ _", "_ _ c"]),
        ({"padding": "max_length", "max_length": 4}, ["a b _ _", "_ _ _ _", "c _ _ _"]),
    ):
        padded = tokenizer.pad(examples, **options)
        assert type(padded["input_ids"]) is {"lists": list, "arrays": np.ndarray, "tensors": torch.Tensor}[kind]
        lists = {key: value if kind == "lists" else value.tolist() for key, value in padded.items()}
        whole = {"input_ids": [*map(rows, expected)], "attention_mask": [*map(mask, expected)]}
        assert json.dumps(lists) == json.dumps(whole)  # in which 1 is not 1.0
    if kind != "lists":
        dtypes = [str(padded[key].dtype) for key in ("input_ids", "attention_mask")]
        assert dtypes == {"arrays": ["int16", "int64"], "tensors": ["torch.int64", "torch.int64"]}[kind]


def test_pad_gives_each_key_its_own_value_and_leaves_labels_alone(tokenizer: ElmoTokenizer) -> None:
    examples = [{"input_ids": rows(words), "labels": [1] * len(words.split())} for words in ("a b", "c")]
    flags = {"token_type_ids": [1], "special_tokens_mask": [0]}
    padded = tokenizer.pad([examples[0] | {key: value * 2 for key, value in flags.items()}, examples[1] | flags])
    assert dict(padded) == {
        "input_ids": [rows("a b"), rows("c _")],
        "labels": [[1, 1], [1]],
        "token_type_ids": [[1, 1], [1, 0]],
        "special_tokens_mask": [[0, 0], [0, 1]],
        "attention_mask": [[1, 1], [1, 0]],
    }
    assert "attention_mask" not in tokenizer.pad(examples, return_attention_mask=False)


def test_pad_keeps_a_batch_of_empty_texts(tokenizer: ElmoTokenizer) -> None:
    for both_are_empty in ({"input_ids": [[], []]}, [{"input_ids": []}, {"input_ids": []}]):
        assert dict(tokenizer.pad(both_are_empty)) == {"input_ids": [[], []], "attention_mask": [[], []]}
        padded = tokenizer.pad(both_are_empty, padding="max_length", max_length=2)
        assert dict(padded) == {"input_ids": [rows("_ _")] * 2, "attention_mask": [[0, 0]] * 2}


def test_pad_makes_numbers_of_python_those_of_torch(tokenizer: ElmoTokenizer) -> None:
    ids = {"input_ids": rows("a")}
    for label, dtype in ((0.5, torch.float32), ([0.5, 1.0], torch.float32), (np.ones(2), torch.float64)):
        labels = tokenizer.pad([ids | {"labels": label}] * 2, return_tensors="pt")["labels"]
        assert (labels.dtype, labels.tolist()) == (dtype, [np.asarray(label).tolist()] * 2)


@pytest.mark.parametrize(("side", "labels"), [("right", [4, -100]), ("left", [-100, 4])])
def test_collator_for_words_puts_labels_where_the_words_are(side: str, labels: list[int]) -> None:
    elmo = ElmoTokenizer(max_word_length=C, padding_side=side)
    features = [dict(elmo(text, add_special_tokens=False)) for text in ("a b", "c")]
    batch = DataCollatorForTokenClassification(elmo)([features[0] | {"labels": [2, 3]}, features[1] | {"labels": [4]}])
    assert batch["input_ids"].dtype == torch.int64
    assert batch["input_ids"].tolist() == [rows("a b"), rows("c _" if side == "right" else "_ c")]
    assert batch["labels"].tolist() == [[2, 3], labels]


@pytest.mark.parametrize("options", [{}, {"return_tensors": "np"}], ids=repr)
def test_a_dataset_maps_in_batches(tokenizer: ElmoTokenizer, options: dict[str, Any]) -> None:
    datasets = pytest.importorskip("datasets")
    texts = datasets.Dataset.from_dict({"words": [["a", "b"], ["c"], []]})
    mapped = texts.map(lambda batch: tokenizer(batch["words"], **SPLIT, **options), batched=True)
    expected = ["<S> a b </S>", "<S> c </S>", "<S> </S>"]
    assert mapped["input_ids"][:] == [*map(rows, expected)]
    assert mapped["attention_mask"][:] == [*map(mask, expected)]
    if "return_tensors" in options:
        assert mapped.features["input_ids"].feature.feature.dtype == "int16"
    batch = DataCollatorWithPadding(tokenizer)(list(mapped.remove_columns("words")))
    assert batch["input_ids"].tolist() == [rows("<S> a b </S>"), rows("<S> c </S> _"), rows("<S> </S> _ _")]


def test_pad_takes_one_example_and_lays_out_word_ids(tokenizer: ElmoTokenizer, word_tokenizer: ElmoTokenizer) -> None:
    one = tokenizer.pad(tokenizer("a"), padding="max_length", max_length=4)
    assert dict(one) == {"input_ids": rows("<S> a </S> _"), "attention_mask": [1, 1, 1, 0]}
    padded = word_tokenizer.pad([{"input_ids": [1, 6, 2]}, {"input_ids": []}], padding_side="left")
    assert dict(padded) == {"input_ids": [[1, 6, 2], [0, 0, 0]], "attention_mask": [[1, 1, 1], [0, 0, 0]]}
    assert word_tokenizer.pad({"input_ids": [1, 2]}, padding="max_length", max_length=3)["input_ids"] == [1, 2, 0]
