"""Word vectors in front of a linear layer, beside the characters or alone: ELMoForManyLangs' token encoders.

Their numbers are compared with the reference in `tests/conversion/test_manylangs.py`.
"""

import pytest
import torch
from tiny_inputs import TINY, assert_outputs_close, word_config

from elmo_hf import ElmoConfig, ElmoModel

NUM_CHARACTERS, NUM_WORDS = 23, 17
BOS, EOS = 5, 6


@pytest.fixture
def model() -> ElmoModel:
    """Characters and words, no two sizes equal."""
    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "vocab_size": 1 + NUM_CHARACTERS + NUM_WORDS}
    words = {"num_input_words": NUM_WORDS, "word_embedding_size": 8}
    return ElmoModel(ElmoConfig(**TINY, alphabet="code_points", **ids, **words)).eval()


def random_rows(num_texts: int, num_words: int) -> torch.Tensor:
    """`(B, T, C + 1)` ids, no boundaries among them."""
    characters = torch.randint(EOS + 1, NUM_CHARACTERS + 1, (num_texts, num_words, TINY["max_word_length"]))
    words = torch.randint(NUM_CHARACTERS + 1, NUM_CHARACTERS + NUM_WORDS + 1, (num_texts, num_words, 1))
    return torch.cat([characters, words], dim=-1)


@pytest.mark.parametrize("kind", ["both", "projected words"])
def test_padding_changes_nothing_and_learns_nothing(kind: str, model: ElmoModel) -> None:
    ids = random_rows(2, 5)
    if kind == "projected words":
        model, ids = ElmoModel(word_config(word_embedding_size=4)).eval(), torch.randint(3, 19, (2, 5))
    ids_with_padding = torch.cat([torch.zeros_like(ids[:, :2]), ids], dim=1)
    mask = torch.arange(7).expand(2, -1) >= 2
    output = model(input_ids=ids_with_padding, attention_mask=mask)
    assert_outputs_close(output.last_hidden_state[:, 2:], model(input_ids=ids).last_hidden_state)
    assert_outputs_close(output.token_embeddings[:, :2], torch.zeros(2, 2, 7))
    assert_outputs_close(model(input_ids=ids_with_padding).last_hidden_state, output.last_hidden_state)
    output.last_hidden_state.sum().backward()
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    assert [table.weight.grad[0].abs().max().item() for table in tables] == [0] * len(tables)
    assert [table.weight[0].abs().max().item() for table in tables] == [0] * len(tables)


def test_boundaries_are_left_out_of_the_mean(model: ElmoModel) -> None:
    ids = random_rows(1, 4)
    ids[0, 0, 1], ids[0, 3, 1] = BOS, EOS
    output = model(input_ids=ids)
    assert_outputs_close(output.pooler_output[0], output.elmo_representations[0][0, 1:3].mean(0))


def test_initial_tables_are_glorots() -> None:
    limit = (6 / (NUM_WORDS + 1 + 64)) ** 0.5
    config = ElmoConfig(num_input_words=NUM_WORDS, word_embedding_size=64, projection_size=32, char_filters=[[1, 64]])
    table = ElmoModel(config).token_encoder.word_embedding.weight
    assert 0.95 * limit < table.abs().max() <= limit
    projection = ElmoModel(word_config(word_embedding_size=400)).token_encoder.projection
    assert projection.weight.std().item() == pytest.approx(400**-0.5, rel=0.05)
    assert projection.bias.abs().max() == 0
