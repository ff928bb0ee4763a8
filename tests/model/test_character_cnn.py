"""The character CNN in blocks equals single words; word vectors beside it or alone, as in ELMoForManyLangs."""

import pytest
import torch
from torch import Tensor

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.model.layers_elmo import MULTIPLIER, CharacterCNN, distinct_rows
from elmo_hf.model.scan_elmo import apply
from tests.helpers.tiny_inputs import TINY, assert_outputs_close, random_inputs, word_config

FILLER = 9
WORDS = {"vocab_size": 268, "num_input_words": 6, "word_embedding_size": 3}


def rows_of(lengths: list[int], width: int) -> Tensor:
    """`(N, width)`: random ids other than the filler, then filler."""
    ids = torch.randint(10, 262, (len(lengths), width), generator=torch.Generator().manual_seed(7))
    return ids.masked_fill(torch.arange(width) >= torch.tensor(lengths).unsqueeze(1), FILLER)


def encoder_of(config: ElmoConfig) -> CharacterCNN:
    # Large weights, or the maximum would always be the bias.
    encoder = ElmoModel(config).token_encoder
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(3).add_(0.01)
    return encoder


def whole(encoder: CharacterCNN, ids: Tensor) -> Tensor:
    """Each word by itself, with all its positions."""
    words = None if encoder.word_embedding is None else encoder.word_embedding(ids[:, -1:] - encoder.num_characters)
    characters = encoder.embedding(ids[:, : encoder.max_word_length])
    return torch.cat(
        [encoder.encode(row.unsqueeze(0), None if words is None else words[n]) for n, row in enumerate(characters)]
    )


def test_a_convolution_as_a_product_is_the_convolution() -> None:
    encoder = encoder_of(ElmoConfig(**TINY))
    for convolution in encoder.convolutions:
        inputs = torch.randn(3, convolution.in_channels, 11)
        assert_outputs_close(apply(convolution, inputs), convolution(inputs), 1e-5)


@pytest.mark.parametrize("fields", [{}, WORDS], ids=["characters", "words too"])
@pytest.mark.parametrize("block_characters", [1, 14, 25, 1000])
@pytest.mark.parametrize(
    "lengths",
    [[3, 11, 0, 4, 4, 10, 1], [5], [0, 0], [11, 11, 8]],
    ids=["ragged", "one word", "all filler", "no filler"],
)
def test_blocks_and_omitted_filler_change_neither_vectors_nor_gradients(
    lengths: list[int], block_characters: int, fields: dict[str, int]
) -> None:
    encoder, ids = encoder_of(ElmoConfig(**TINY | fields)), rows_of(lengths, 11)
    if fields:  # the word's id is the last
        words = encoder.num_characters + 1 + torch.arange(len(ids)) % 6
        ids = torch.cat([ids, words.unsqueeze(1)], dim=1)
    results = []
    for vectors in (encoder(ids, block_characters), whole(encoder, ids)):
        weights = torch.arange(vectors.numel()).view_as(vectors).cos()
        results.append([vectors, *torch.autograd.grad((vectors * weights).sum(), list(encoder.parameters()))])
    # Sums over more equal positions round differently; gradients are as large as 40.
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-6)


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


@torch.no_grad()
def test_a_word_that_occurs_twice_is_computed_once(tiny_model: ElmoModel) -> None:
    ids = random_inputs(tiny_model.config, [4, 2, 5])["input_ids"]
    ids[1, 1], ids[2, 3] = ids[0, 2], ids[0, 0]
    is_word = ids.any(dim=2)
    expected, computed = tiny_model.token_encoder(ids[is_word]), []
    tiny_model.token_encoder.register_forward_pre_hook(lambda _, args: computed.append(len(args[0])))
    assert_outputs_close(tiny_model(ids).token_embeddings[is_word], expected)
    assert computed == [9]


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
