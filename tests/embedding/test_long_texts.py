"""A long text in pieces has the vectors of the whole text at once."""

import pytest
import torch
from tiny_inputs import assert_outputs_close
from torch import Tensor

from elmo_hf import ElmoModel
from elmo_hf.embedding import long_texts
from elmo_hf.embedding.long_texts import read_in_pieces


@pytest.mark.parametrize("length", [1, 4, 5, 8, 11])
def test_layers_in_pieces_are_those_of_the_whole_text(
    length: int, tiny_model: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_texts, "PIECE_WORDS", 4)
    vectors = torch.randn(length, tiny_model.config.projection_size)
    with torch.no_grad():
        expected, _ = tiny_model.bilm(vectors.unsqueeze(0), torch.ones(1, length, dtype=torch.bool))
    sizes = []

    def part_of(words: slice) -> Tensor:
        sizes.append(words.stop - words.start)
        return vectors[words]

    found = read_in_pieces(tiny_model.bilm, part_of, length, lambda layers: layers[1:])
    assert max(sizes) == min(length, 4)
    assert sum(sizes) == 2 * length
    assert_outputs_close(tuple(found), tuple(layer.detach() for layer in expected[1:]), 1e-6)


def test_what_is_kept_may_be_computed_from_all_layers(tiny_model: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_texts, "PIECE_WORDS", 3)
    vectors, mask = torch.randn(7, tiny_model.config.projection_size), torch.ones(1, 7, dtype=torch.bool)
    mix = tiny_model.scalar_mixes[0]
    mix.set_weights([0.2, 0.5, 0.3], scale=1.5)
    with torch.no_grad():
        expected = mix(tiny_model.bilm(vectors.unsqueeze(0), mask)[0], mask)
    (found,) = read_in_pieces(
        tiny_model.bilm, vectors.__getitem__, 7, lambda layers: [mix(layers, mask[:, : layers[0].shape[1]])]
    )
    assert_outputs_close(found, expected, 1e-6)
