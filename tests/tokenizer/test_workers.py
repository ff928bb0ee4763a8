"""The tokenizer in the processes of a DataLoader, and in those of `datasets`, makes what it makes in this one."""

import functools
import inspect
import multiprocessing
from typing import Any

import pytest
from torch.utils.data import DataLoader
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from elmo_hf import ElmoTokenizer
from elmo_hf.model import configuration_elmo, heads_elmo, layers_elmo, modeling_elmo, scan_elmo, tokenization_elmo
from tests.helpers.tiny_lm import tokenizer_with

TEXTS = ["The ferry left at noon.", "", "naïve 日本語", "Yes", "Don't wait for me, she said."]


def split_at_commas(text: str) -> list[str]:
    """A splitter that a process of its own can import."""
    return text.replace(",", " ").split()


def reserving() -> ElmoTokenizer:
    tokenizer = ElmoTokenizer(max_word_length=11)
    tokenizer.add_tokens(["ferry"])
    return tokenizer


TOKENIZERS = {
    "bytes": lambda: ElmoTokenizer(max_word_length=11, padding_side="left"),
    "a reserved word": reserving,
    "a function splits": lambda: ElmoTokenizer(word_splitter=split_at_commas),
    "words": lambda: tokenizer_with(token_encoder="word_embedding"),
}


class Texts:
    """A dataset that makes the ids of a text where it is read."""

    def __init__(self, tokenizer: ElmoTokenizer, has_labels: bool) -> None:
        self.tokenizer = tokenizer
        self.has_labels = has_labels

    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = dict(self.tokenizer(TEXTS[index]))
        if self.has_labels:
            row["labels"] = [index] * len(row["input_ids"])
        return row


def assert_equal_in_workers(tokenizer: ElmoTokenizer, collator: Any, has_labels: bool, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not start processes by {method}")
    texts: Any = Texts(tokenizer, has_labels)
    expected = [dict(batch) for batch in DataLoader(texts, batch_size=2, collate_fn=collator)]
    loader = DataLoader(
        texts,
        batch_size=2,
        collate_fn=collator,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context=method,
    )
    for _ in range(2):
        for batch, wanted in zip(loader, expected, strict=True):
            assert batch.keys() == wanted.keys()
            assert all(batch[key].equal(wanted[key]) for key in wanted)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_forked_processes_make_the_batches_of_this_one(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    assert_equal_in_workers(tokenizer, DataCollatorWithPadding(tokenizer), False, "fork")


@pytest.mark.slow  # new processes import torch and transformers
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_new_processes_make_the_batches_of_this_one(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]()
    assert_equal_in_workers(tokenizer, DataCollatorForTokenClassification(tokenizer), True, "spawn")


def test_no_class_of_a_folder_has_a_lock_which_datasets_would_send_closed_to_its_processes() -> None:
    """`Dataset.map(num_proc=...)` sends a folder's classes whole, and dill closes the lock of a `cached_property`."""
    for module in (configuration_elmo, heads_elmo, layers_elmo, modeling_elmo, scan_elmo, tokenization_elmo):
        for name, owner in inspect.getmembers(module, inspect.isclass):
            if owner.__module__ == module.__name__:
                cached = [key for key, value in vars(owner).items() if isinstance(value, functools.cached_property)]
                assert not cached, f"{module.__name__}.{name} has {cached}"
