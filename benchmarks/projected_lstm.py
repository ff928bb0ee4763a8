"""The biLM made of `torch.nn.LSTM(proj_size=P)`, without clips: the speed that torch's own LSTM reaches.

Each direction of each layer is a separate LSTM, because the directions never mix. Batches are packed, and the backward
direction reads reversed sentences, as in every such stack of torch's modules.

Glossary: B batch, T words, P projection, H cell, L layers.
"""

import torch
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.model.layers_elmo import LSTMP


class ProjectedLstms(nn.Module):
    """The stack, with the weights of an `ElmoModel`."""

    def __init__(self, model: ElmoModel) -> None:
        """Copies the weights; clips are left out."""
        super().__init__()
        self.has_skip_connections = model.config.use_skip_connections
        self.forward_layers = nn.ModuleList(_projected_lstm(layer.forward_lstm) for layer in model.bilm.layers)
        self.backward_layers = nn.ModuleList(_projected_lstm(layer.backward_lstm) for layer in model.bilm.layers)

    def forward(self, vectors: Tensor, mask: Tensor) -> list[Tensor]:
        """Maps `(B, T, P)` under `mask` `(B, T)`, padding on the right, to L layers `(B, T, 2P)`."""
        lengths = mask.sum(dim=1)
        places = torch.arange(mask.shape[1], device=mask.device)
        turned = torch.where(mask, lengths.unsqueeze(1) - 1 - places, places).unsqueeze(-1)  # (B, T, 1)
        forward, backward = vectors, vectors.take_along_dim(turned, dim=1)
        layers = []
        for index, lstms in enumerate(zip(self.forward_layers, self.backward_layers, strict=True)):
            outputs = [_run(lstm, inputs, lengths) for lstm, inputs in zip(lstms, (forward, backward), strict=True)]
            if index > 0 and self.has_skip_connections:
                outputs = [output + inputs for output, inputs in zip(outputs, (forward, backward), strict=True)]
            forward, backward = outputs
            layers.append(torch.cat([forward, backward.take_along_dim(turned, dim=1)], dim=-1))
        return layers


def _run(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]


def _projected_lstm(lstm: LSTMP) -> nn.LSTM:
    assert lstm.projection is not None
    size, width = lstm.projection.out_features, lstm.projection.in_features
    projected = nn.LSTM(size, width, proj_size=size, batch_first=True)
    with torch.no_grad():
        projected.weight_ih_l0.copy_(lstm.input_linear.weight)
        projected.bias_ih_l0.copy_(lstm.weights().bias)
        projected.weight_hh_l0.copy_(lstm.recurrent_linear.weight)
        projected.bias_hh_l0.zero_()
        projected.weight_hr_l0.copy_(lstm.projection.weight)
    return projected
