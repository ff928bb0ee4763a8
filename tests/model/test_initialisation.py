"""Initial weights of new models, and of parameters that a checkpoint lacks."""

from pathlib import Path

import pytest
import torch
from tiny_inputs import word_config
from torch import nn

from elmo_hf import ElmoConfig, ElmoModel, ElmoPreTrainedModel


def test_initial_weights_are_bilm_tfs() -> None:
    config = ElmoConfig(projection_size=64, cell_size=128, char_filters=[[1, 60], [3, 68]], num_highway_layers=1)
    model = ElmoModel(config)
    encoder, lstm = model.token_encoder, model.bilm.layers[1].backward_lstm
    assert encoder.embedding.weight[0].abs().max() == 0
    assert 0.95 < encoder.embedding.weight.abs().max() <= 1
    assert 0.045 < encoder.convolutions[1].weight.abs().max() <= 0.05
    assert encoder.highways[0].gate.bias.tolist() == [-2.0] * 128
    for linear in (encoder.highways[0].transform, *encoder.convolutions, encoder.projection):
        assert linear.bias.abs().max() == 0
    assert encoder.highways[0].gate.weight.std().item() == pytest.approx(128**-0.5, rel=0.03)
    assert encoder.projection.weight.std().item() == pytest.approx(128**-0.5, rel=0.05)
    fused_limit = (6 / (64 + 64 + 4 * 128)) ** 0.5
    for linear in (lstm.input_linear, lstm.recurrent_linear):
        assert 0.98 * fused_limit < linear.weight.abs().max() <= fused_limit
    assert lstm.input_linear.bias.abs().max() == 0
    assert 0.98 * (6 / 192) ** 0.5 < lstm.projection.weight.abs().max() <= (6 / 192) ** 0.5
    tanh = ElmoModel(ElmoConfig(projection_size=4, cell_size=5, char_activation="tanh", char_filters=[[3, 900]]))
    assert tanh.token_encoder.convolutions[0].weight.std().item() == pytest.approx(48**-0.5, rel=0.03)


def test_a_word_table_starts_with_glorots_weights_and_its_zeros_for_padding_never_learn() -> None:
    table = ElmoModel(word_config()).token_encoder.embedding
    limit = (6 / (19 + 7)) ** 0.5
    assert table.weight[0].abs().max() == 0
    assert 0.9 * limit < table.weight.abs().max() <= limit
    table(torch.tensor([0, 5])).sum().backward()
    assert table.weight.grad.abs().sum(dim=-1).nonzero().tolist() == [[5]]


class ElmoWithHead(ElmoPreTrainedModel):
    """A task model as a user might write it."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.classifier = nn.Linear(config.hidden_size, 3)
        self.post_init()


def test_weights_missing_from_a_checkpoint_are_initialised_and_those_of_padding_stay_as_they_were(
    tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.token_encoder.embedding.weight.data[0] = 0.25
    kept = {name: tensor for name, tensor in tiny_model.state_dict().items() if "highways" not in name}
    tiny_model.save_pretrained(tmp_path, state_dict=kept)
    model = ElmoWithHead.from_pretrained(tmp_path)
    highway = model.elmo.token_encoder.highways[0]
    assert highway.gate.bias.tolist() == [-2.0] * 13
    assert 0 < highway.transform.weight.abs().max() < 2
    assert model.classifier.bias.tolist() == [0, 0, 0]
    assert 0 < model.classifier.weight.abs().max() < 0.2
    assert torch.equal(model.elmo.token_encoder.embedding.weight, tiny_model.token_encoder.embedding.weight)
