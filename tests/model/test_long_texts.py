"""A long text in pieces has the vectors of the whole text at once."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.embedding.window_vectors import Selection, embed_window
from elmo_hf.model.layers_elmo import BiLM, ScalarMix
from tests.helpers.one_direction import forward_half
from tests.helpers.tiny_inputs import assert_outputs_close, random_inputs
from tests.helpers.vectors import LAYERS


class CountingBiLM(BiLM):
    """Records the length of the texts of each call."""

    def forward(self, token_vectors: Tensor, *args: Any) -> Any:
        self.pieces.append(token_vectors.shape[1])
        return super().forward(token_vectors, *args)


def count_pieces(model: ElmoModel, size: int) -> list[int]:
    """From now on, pieces have `size` words; returns the list to which each call of the biLM adds its words."""
    model.bilm.__class__ = CountingBiLM
    model.bilm.piece_words, model.bilm.pieces = size, []
    return model.bilm.pieces


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("fields", [{}, {"scalar_mix_layer_norm": "batch"}, {"pooling": "max"}], ids=repr)
def test_embed_reads_a_long_text_in_pieces(
    layers: str, fields: dict[str, Any], mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    for name, value in fields.items():
        setattr(mixed_model.config, name, value)
    for mix in mixed_model.scalar_mixes:
        mix.layer_norm = mixed_model.config.scalar_mix_layer_norm
    sentences = ["The ferry left the harbour at 7:45 , ten minutes late .", "Yes"]
    ((_, expected), *_) = embed_window(mixed_model.eval(), tiny_tokenizer, sentences, Selection(layers), 1)
    pieces = count_pieces(mixed_model, 5)
    ((_, found), *_) = embed_window(mixed_model, tiny_tokenizer, sentences, Selection(layers), 1)
    assert pieces == [5, 5, 4, 3]
    assert found["vectors"].shape == expected["vectors"].shape
    np.testing.assert_allclose(found["vectors"], expected["vectors"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("length", "pieces"), [(5, [4, 1]), (8, [4, 4]), (11, [4, 4, 3])], ids=["one word more", "even", "uneven"]
)
@pytest.mark.parametrize("kind", ["ids", "embeddings", "one direction"])
@torch.no_grad()
def test_the_model_reads_long_texts_in_pieces(kind: str, length: int, pieces: list[int], tiny_model: ElmoModel) -> None:
    model = (forward_half(tiny_model) if kind == "one direction" else tiny_model).double()
    model.scalar_mixes.append(ScalarMix(model.config).double())
    for mix, weights in zip(model.scalar_mixes, ([0.2, 0.5, 0.3], [0.1, 0.2, 0.7]), strict=True):
        mix.set_weights(weights, scale=1.5)
    batch = random_inputs(model.config, [length, length])
    if kind == "embeddings":
        batch = {"inputs_embeds": model.embed_words(**batch)[0]}
    for state in (None, model(**random_inputs(model.config, [3, 3], seed=4)).state):
        model.bilm.piece_words = length
        expected = model(**batch, state=state)
        found_pieces = count_pieces(model, 4)
        found = model(**batch, state=state)
        assert found_pieces == pieces
        assert found.keys() == expected.keys()
        assert_outputs_close(found.to_tuple(), expected.to_tuple(), 1e-13)


@pytest.mark.parametrize(
    "why",
    ["short", "hidden_states", "config", "gradient", "training", "padding", "hook", "mix_hook", "layer_norm", "linear"],
)
def test_the_model_reads_whole_texts_where_pieces_would_not_do(why: str, mixed_model: ElmoModel) -> None:
    linear = ElmoConfig(**mixed_model.config.to_dict() | {"layer_mix": "linear"})
    model = ElmoModel(linear) if why == "linear" else mixed_model
    model.train(why == "training")
    model.config.output_hidden_states = why == "config"
    if why == "layer_norm":
        model.scalar_mixes[0].layer_norm = "word"
    if why == "hook":
        model.bilm.layers[1].register_forward_hook(lambda *_: None)
    if why == "mix_hook":
        model.scalar_mixes[0].register_forward_hook(lambda *_: None)
    batch = random_inputs(model.config, [11, 9 if why == "padding" else 11])
    pieces = count_pieces(model, 11 if why == "short" else 4)
    with torch.set_grad_enabled(why == "gradient"):
        model(**batch, output_hidden_states=True if why == "hidden_states" else None)
    assert pieces == [11]
