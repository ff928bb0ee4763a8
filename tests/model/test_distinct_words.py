"""Equal words of a batch are computed once, and words with equal hashes are told apart."""

import pytest
import torch
from tiny_inputs import assert_outputs_close, random_inputs, word_config

from elmo_hf import ElmoModel
from elmo_hf.model.token_encoder import MULTIPLIER, distinct_rows


@pytest.mark.parametrize("multiplier", [MULTIPLIER, 0, 1], ids=["the one used", "all equal", "sums"])
def test_words_with_equal_hashes_are_distinguished(multiplier: int, tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [5, 3, 4])
    # Two words with the same ids in another order, and one of them again.
    inputs["input_ids"][0, 1] = inputs["input_ids"][0, 0].flip(0)
    inputs["input_ids"][2, 1] = inputs["input_ids"][0, 0]
    ids = inputs["input_ids"][inputs["attention_mask"].bool()]
    distinct, which = distinct_rows(ids, multiplier)
    assert len(distinct) == len(ids) - 1 == 11
    assert torch.equal(distinct[which], ids)


@pytest.mark.parametrize("reads", ["characters", "word ids"])
@torch.no_grad()
def test_a_word_that_occurs_twice_is_computed_once(reads: str, tiny_model: ElmoModel) -> None:
    if reads == "characters":
        model, ids = tiny_model, random_inputs(tiny_model.config, [4, 2, 5])["input_ids"]
        ids[1, 1] = ids[0, 2]
        ids[2, 3] = ids[0, 0]
    else:
        model = ElmoModel(word_config(word_embedding_size=3)).eval()
        ids = torch.tensor([[1, 5, 6, 5, 2], [1, 7, 2, 0, 0]])
    is_word = ids.flatten(2).any(dim=2) if ids.dim() == 3 else ids > 0
    expected = model.token_encoder(ids[is_word])
    computed: list[int] = []
    model.token_encoder.register_forward_pre_hook(lambda _, args: computed.append(len(args[0])))
    assert_outputs_close(model(ids).token_embeddings[is_word], expected)
    assert computed == [{"characters": 9, "word ids": 5}[reads]]


@torch.no_grad()
def test_texts_without_words_have_zero_vectors(tiny_model: ElmoModel) -> None:
    assert tiny_model(torch.zeros(2, 3, 11, dtype=torch.long)).token_embeddings.abs().max() == 0
