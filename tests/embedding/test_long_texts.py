"""A long text in pieces has the vectors of the whole text at once."""

from typing import Any

import numpy as np
import pytest
import torch
from one_direction import forward_half
from tiny_inputs import assert_outputs_close
from torch import Tensor
from vectors import LAYERS

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import long_texts, window_vectors
from elmo_hf.embedding.long_texts import read_in_pieces
from elmo_hf.embedding.window_vectors import Wanted, embed_window


@pytest.mark.parametrize(("length", "directions"), [(1, 2), (4, 2), (5, 2), (8, 2), (11, 2), (11, 1)])
def test_layers_in_pieces_are_those_of_the_whole_text(
    length: int, directions: int, tiny_model: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_texts, "PIECE_WORDS", 4)
    bilm = tiny_model.bilm if directions == 2 else forward_half(tiny_model).bilm
    vectors = torch.randn(length, tiny_model.config.projection_size)
    with torch.no_grad():
        expected, _ = bilm(vectors.unsqueeze(0), torch.ones(1, length, dtype=torch.bool))
    sizes = []

    def part_of(words: slice) -> Tensor:
        sizes.append(words.stop - words.start)
        return vectors[words]

    found = read_in_pieces(bilm, part_of, length, lambda layers: torch.stack(layers[1:]))
    assert max(sizes) == min(length, 4)
    assert sum(sizes) == directions * length
    assert_outputs_close(tuple(found), tuple(layer.detach() for layer in expected[1:]), 1e-6)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("fields", [{}, {"scalar_mix_layer_norm": "batch"}, {"pooling": "max"}], ids=repr)
def test_embed_reads_a_long_text_in_pieces(
    layers: str,
    fields: dict[str, Any],
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in fields.items():
        setattr(mixed_model.config, name, value)
    for mix in mixed_model.scalar_mixes:
        mix.layer_norm = mixed_model.config.scalar_mix_layer_norm
    sentences = ["The ferry left the harbour at 7:45 , ten minutes late .", "Yes"]
    ((_, expected), *_) = embed_window(mixed_model.eval(), tiny_tokenizer, sentences, Wanted(layers), 1)
    pieces = []
    for module in (window_vectors, long_texts):
        monkeypatch.setattr(module, "PIECE_WORDS", 5)
    forward = mixed_model.bilm.forward
    monkeypatch.setattr(mixed_model.bilm, "forward", lambda *args: pieces.append(args[0].shape[1]) or forward(*args))
    kept = []
    monkeypatch.setattr(window_vectors, "read_in_pieces", lambda *args: kept.append(read_in_pieces(*args)) or kept[0])
    ((_, found), *_) = embed_window(mixed_model, tiny_tokenizer, sentences, Wanted(layers), 1)
    assert pieces == [5, 5, 4, 3]
    needs_all = layers == "all" or ("scalar_mix_layer_norm" in fields and layers in ("mix", "pooled"))
    assert len(kept[0]) == (mixed_model.config.num_hidden_layers + 1 if needs_all else 1)
    assert found["vectors"].shape == expected["vectors"].shape
    np.testing.assert_allclose(found["vectors"], expected["vectors"], rtol=0, atol=1e-6)


def test_what_is_kept_may_be_computed_from_all_layers(tiny_model: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_texts, "PIECE_WORDS", 3)
    vectors, mask = torch.randn(7, tiny_model.config.projection_size), torch.ones(1, 7, dtype=torch.bool)
    mix = tiny_model.scalar_mixes[0]
    mix.set_weights([0.2, 0.5, 0.3], scale=1.5)
    with torch.no_grad():
        expected = mix(tiny_model.bilm(vectors.unsqueeze(0), mask)[0], mask)
    (found,) = read_in_pieces(
        tiny_model.bilm, vectors.__getitem__, 7, lambda layers: mix(layers, mask[:, : layers[0].shape[1]]).unsqueeze(0)
    )
    assert_outputs_close(found, expected, 1e-6)
