"""What `forward` may be given: any integer type that holds the ids, and a clear error for anything else."""

import re
from typing import Any

import pytest
import torch
from task_models import make_batch, make_task_model
from tiny_inputs import random_inputs, word_config

from elmo_hf import ElmoConfig, ElmoModel

NUMBERS_AND_WORDS = {"vocab_size": 30, "num_input_words": 9, "word_embedding_size": 4, "alphabet": "code_points"}
NUMBERS_AND_WORDS |= {"bos_token_id": 1, "eos_token_id": 2, "max_word_length": 4, "char_filters": [[1, 3]]}


@pytest.mark.parametrize("name", ["int16", "int32", "int64", "uint16", "uint32", "uint64"])
def test_ids_may_be_of_any_integer_type_that_holds_them(name: str, tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    expected = tiny_model(**inputs)
    for ids in (inputs["input_ids"].to(getattr(torch, name)),):
        found = tiny_model(ids, inputs["attention_mask"]), tiny_model(ids)
        assert all(torch.equal(each.last_hidden_state, expected.last_hidden_state) for each in found)
        assert all(torch.equal(each.pooler_output, expected.pooler_output) for each in found)


def test_a_task_model_takes_them_too() -> None:
    model, batch = make_task_model("questions"), make_batch("questions")
    expected = model(**batch).start_logits
    assert torch.equal(model(**batch | {"input_ids": batch["input_ids"].to(torch.uint16)}).start_logits, expected)


@pytest.mark.parametrize("name", ["uint8", "int8"])
def test_a_type_that_is_too_small_for_the_ids_is_refused(name: str, tiny_model: ElmoModel) -> None:
    dtype = getattr(torch, name)
    ids = torch.ones(1, 2, 11, dtype=dtype)
    message = rf"`input_ids` must be integers, of a type that holds ids up to 261, found torch.{name}\."
    with pytest.raises(ValueError, match=message):
        tiny_model(ids)
    words = ElmoModel(word_config())
    assert words(torch.ones(1, 2, dtype=dtype)).last_hidden_state.shape == (1, 2, 14)


@pytest.mark.parametrize("wrong", [-1, 262, 10**12])
def test_an_id_out_of_range_is_named_unless_it_is_padding(wrong: int, tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [4, 2])
    expected = tiny_model(**inputs).last_hidden_state
    inputs["input_ids"][1, 3, 2] = wrong
    assert torch.equal(tiny_model(**inputs).last_hidden_state, expected)
    inputs["input_ids"][1, 1, 2] = wrong
    with pytest.raises(ValueError, match=rf"^`input_ids` must be from 0 to 261, found {wrong}; is this"):
        tiny_model(**inputs)


def test_a_word_id_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match=r"^`input_ids` must be from 0 to 18, found 19;"):
        ElmoModel(word_config())(torch.tensor([[1, 19, 2]]))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ([5, 6, 21, 7, 22], "`input_ids` must be from 0 to 20, found 21;"),
        ([5, 6, 8, 7, 30], "`input_ids` must be from 0 to 29, found 30;"),
        ([5, 6, 8, 7, -2], "`input_ids` must be from 0 to 29, found -2;"),
    ],
)
def test_characters_and_words_have_ranges_of_their_own(word: list[int], message: str) -> None:
    model = ElmoModel(ElmoConfig(**NUMBERS_AND_WORDS, projection_size=7, cell_size=9))
    assert model(torch.tensor([[[5, 6, 20, 7, 29], [5, 6, 20, 7, 0]]])).last_hidden_state.isfinite().all()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        model(torch.tensor([[[5, 6, 20, 7, 29], word]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": [[[1] * 11]]}, "`input_ids` must be a tensor of shape (batch, words, 11), found list."),
        ({"input_ids": torch.ones(1, 2, 11)}, "`input_ids` must be integers, of a type"),
        ({"input_ids": torch.ones(1, 2, 11) > 0}, "`input_ids` must be integers, of a type"),
        ({"attention_mask": [[1, 1]]}, "`attention_mask` must be a tensor of shape (1, 2), found list."),
        ({"state": (None, None)}, "`state.hidden` must be a tensor of shape (2, 1, 14), found NoneType."),
        (
            {"input_ids": None, "inputs_embeds": [[1.0] * 7]},
            "`inputs_embeds` must be a tensor of shape (batch, words, 7)",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_no_input_is_named(changes: dict[str, Any], message: str, tiny_model: ElmoModel) -> None:
    inputs = {"input_ids": torch.ones(1, 2, 11, dtype=torch.long)} | changes
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        tiny_model(**inputs)


def test_layers_that_are_no_tensor_are_named() -> None:
    model, batch = make_task_model("classification"), make_batch("classification")
    with pytest.raises(ValueError, match=r"^`bilm_layers` must be a tensor of shape \(.*\), found list"):
        model(**batch, bilm_layers=[])
