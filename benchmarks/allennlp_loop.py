"""ELMo as AllenNLP runs it, to time ours against: a Python loop over words, for each direction and layer.

Written from scratch from the equations in `elmo_hf/model/layers_elmo.py`, with AllenNLP 2.10.1's operations:

- every word of the batch goes through the character CNN, padding and repeated words too;
- a highway layer is one product to twice its width;
- the batch is sorted by decreasing length, and a step computes only the rows that still have a word;
- each step computes its own input product W_x x_t besides W_h h_{t-1} + b, for one direction of one layer;
- the four gates are sliced, added and activated one by one, and each step copies the state of the whole batch before
  it writes its rows;
- layers are stacked and rows put back in order; the scalar mix adds up the layers.

Left out, because it would only cost time: adding boundaries, which the ids already have, packing and unpacking, and
keeping states. Autograd records every operation, so fine-tuning and training steps can be timed too.

Glossary: B batch, T words, C characters per word, P projection, H cell, L layers.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmo_hf import ElmoForPreTraining, ElmoModel
from elmo_hf.language_model.sampled_softmax import Candidates, sampled_losses
from elmo_hf.model.language_model_elmo import WordSoftmax
from elmo_hf.model.layers_elmo import LSTMP, CharacterCNN, Highway


class LoopHighway(nn.Module):
    """g . x + (1 - g) . relu(transform(x)), where g is the sigmoid of our gate layer, negated."""

    def __init__(self, highway: Highway) -> None:
        """Takes the weights of `highway`."""
        super().__init__()
        size = highway.transform.in_features
        self.linear = nn.Linear(size, 2 * size)
        with torch.no_grad():
            self.linear.weight.copy_(torch.cat([highway.transform.weight, -highway.gate.weight]))
            self.linear.bias.copy_(torch.cat([highway.transform.bias, -highway.gate.bias]))

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps `(N, F)` to `(N, F)`."""
        transformed, gate = self.linear(inputs).chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        return gate * inputs + (1 - gate) * torch.relu(transformed)


class LoopCharacterCNN(nn.Module):
    """Character ids of all words to word vectors; equal words are computed again."""

    def __init__(self, encoder: CharacterCNN) -> None:
        """Takes the weights of `encoder`."""
        super().__init__()
        assert encoder.projection is not None
        self.embedding = _copy(encoder.embedding.weight)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(each.in_channels, each.out_channels, each.kernel_size) for each in encoder.convolutions
        )
        self.convolutions.load_state_dict(encoder.convolutions.state_dict())
        self.activation = encoder.activation
        self.highways = nn.ModuleList(LoopHighway(highway) for highway in encoder.highways)
        self.projection = nn.Linear(encoder.projection.in_features, encoder.projection.out_features)
        self.projection.load_state_dict(encoder.projection.state_dict())

    def forward(self, ids: Tensor) -> Tensor:
        """Maps `(B, T, C)` to `(B, T, P)`, not zero on padding."""
        characters = nn.functional.embedding(ids.view(-1, ids.shape[-1]), self.embedding).transpose(1, 2)  # (B T, E, C)
        features = []
        for convolution in self.convolutions:
            convolved, _ = torch.max(convolution(characters), dim=-1)
            features.append(self.activation(convolved))
        words = torch.cat(features, dim=-1)
        for highway in self.highways:
            words = highway(words)
        return self.projection(words).view(*ids.shape[:2], -1)


class LoopLSTMP(nn.Module):
    """One direction of one layer."""

    def __init__(self, lstm: LSTMP, reverse: bool) -> None:
        """Takes the weights of `lstm`; `reverse` reads from the last word to the first."""
        super().__init__()
        assert lstm.projection is not None
        self.reverse = reverse
        self.cell_clip, self.projection_clip = lstm.cell_clip, lstm.projection_clip
        self.projection_size, self.cell_size = lstm.projection.out_features, lstm.projection.in_features
        self.input_linear = nn.Linear(self.projection_size, 4 * self.cell_size, bias=False)
        self.state_linear = nn.Linear(self.projection_size, 4 * self.cell_size)
        self.projection = nn.Linear(self.cell_size, self.projection_size, bias=False)
        with torch.no_grad():
            self.input_linear.weight.copy_(lstm.input_linear.weight)
            self.state_linear.weight.copy_(lstm.recurrent_linear.weight)
            self.state_linear.bias.copy_(lstm.weights().bias)
            self.projection.weight.copy_(lstm.projection.weight)

    def forward(
        self, inputs: Tensor, lengths: list[int], hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Maps inputs `(B, T, P)`, longest first, hidden `(B, P)` and cell `(B, H)` to outputs and new states."""
        length, width = inputs.shape[1], self.cell_size
        outputs = inputs.new_zeros(inputs.shape[0], length, self.projection_size)
        num_rows = 1 if self.reverse else len(lengths)
        steps = reversed(range(length)) if self.reverse else range(length)
        for t in steps:
            if self.reverse:
                while num_rows < len(lengths) and lengths[num_rows] > t:
                    num_rows += 1
            else:
                while lengths[num_rows - 1] <= t:
                    num_rows -= 1
            previous_hidden, previous_cell = hidden[:num_rows].clone(), cell[:num_rows].clone()
            from_input = self.input_linear(inputs[:num_rows, t])
            from_state = self.state_linear(previous_hidden)
            input_gate = torch.sigmoid(from_input[:, :width] + from_state[:, :width])
            forget_gate = torch.sigmoid(from_input[:, width : 2 * width] + from_state[:, width : 2 * width])
            candidate = torch.tanh(from_input[:, 2 * width : 3 * width] + from_state[:, 2 * width : 3 * width])
            output_gate = torch.sigmoid(from_input[:, 3 * width :] + from_state[:, 3 * width :])
            new_cell = input_gate * candidate + forget_gate * previous_cell
            if self.cell_clip is not None:
                new_cell = torch.clamp(new_cell, -self.cell_clip, self.cell_clip)
            new_hidden = self.projection(output_gate * torch.tanh(new_cell))
            if self.projection_clip is not None:
                new_hidden = torch.clamp(new_hidden, -self.projection_clip, self.projection_clip)
            hidden, cell = hidden.clone(), cell.clone()
            hidden[:num_rows] = new_hidden
            cell[:num_rows] = new_cell
            outputs[:num_rows, t] = new_hidden
        return outputs, hidden, cell


class LoopBiLM(nn.Module):
    """The stack of layers, one loop per direction, from the zero state."""

    def __init__(self, model: ElmoModel) -> None:
        """Takes the weights of `model`."""
        super().__init__()
        layers = model.bilm.layers
        self.has_skip_connections = model.config.use_skip_connections
        self.forward_layers = nn.ModuleList(LoopLSTMP(layer.forward_lstm, reverse=False) for layer in layers)
        self.backward_layers = nn.ModuleList(LoopLSTMP(layer.backward_lstm, reverse=True) for layer in layers)

    def forward(self, forward: Tensor, backward: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
        """Maps the directions' inputs `(B, T, P)` under `mask` `(B, T)` to the layers `(L, B, T, 2P)`."""
        lengths, order = mask.sum(dim=1).sort(descending=True, stable=True)
        back = order.argsort()
        forward, backward = forward.index_select(0, order), backward.index_select(0, order)
        layers = []
        for index, pair in enumerate(zip(self.forward_layers, self.backward_layers, strict=True)):
            outputs = []
            for lstm, inputs in zip(pair, (forward, backward), strict=True):
                inputs = nn.functional.dropout(inputs, dropout, training=dropout > 0)
                hidden = inputs.new_zeros(len(lengths), lstm.projection_size)
                cell = inputs.new_zeros(len(lengths), lstm.cell_size)
                output, _, _ = lstm(inputs, lengths.tolist(), hidden, cell)
                outputs.append(output + inputs if index > 0 and self.has_skip_connections else output)
            forward, backward = outputs
            layers.append(torch.cat(outputs, dim=-1))
        return torch.cat([layer.index_select(0, back).unsqueeze(0) for layer in torch.stack(layers)])


class LoopOutput(NamedTuple):
    """Attributes: `layers`, L+1 tensors `(B, T, 2P)`; `mix` `(B, T, 2P)`."""

    layers: list[Tensor]
    mix: Tensor


class LoopElmo(nn.Module):
    """The whole model from character ids to the scalar mix, without dropout; padding is on the right."""

    def __init__(self, model: ElmoModel) -> None:
        """Takes the weights of `model` and of its first scalar mix.

        Raises:
            ValueError: if AllenNLP has no such model.
        """
        super().__init__()
        config = model.config
        if config.token_encoder != "char_cnn" or config.num_input_words or not config.cell_projection:
            raise ValueError("AllenNLP's ELMo reads characters alone and projects its cells; this model does not.")
        self.token_encoder = LoopCharacterCNN(model.token_encoder)
        self.bilm = LoopBiLM(model)
        self.mix_logits = _copy(model.scalar_mixes[0].logits)
        self.mix_scale = _copy(model.scalar_mixes[0].scale)

    def forward(self, input_ids: Tensor) -> LoopOutput:
        """Embeds character ids `(B, T, C)`, 0 on padding."""
        mask = (input_ids > 0).sum(dim=-1) > 0
        vectors = self.token_encoder(input_ids)
        layers = [torch.cat([vectors, vectors], dim=-1) * mask.unsqueeze(-1), *self.bilm(vectors, vectors, mask)]
        weights = torch.softmax(self.mix_logits, dim=0)
        return LoopOutput(layers, self.mix_scale * sum(w * layer for w, layer in zip(weights, layers, strict=True)))


class LoopLanguageModels(nn.Module):
    """Both language models over windows of streams, from the zero state, with our sampled softmax."""

    def __init__(self, model: ElmoForPreTraining) -> None:
        """Takes the weights of `model`."""
        super().__init__()
        self.dropout = model.config.lm_dropout
        self.token_encoder = LoopCharacterCNN(model.elmo.token_encoder)
        self.bilm = LoopBiLM(model.elmo)
        self.softmax = WordSoftmax(model.config)
        self.softmax.load_state_dict(model.softmax.state_dict())

    def forward(
        self,
        input_ids: Tensor,
        backward_input_ids: Tensor,
        forward_targets: Tensor,
        backward_targets: Tensor,
        candidates: tuple[Candidates, Candidates],
    ) -> Tensor:
        """The loss, with the arguments of `ElmoForPreTraining.forward`; every position has a target."""
        forward, backward = self.token_encoder(torch.cat([input_ids, backward_input_ids])).chunk(2)
        mask = torch.ones_like(forward_targets, dtype=torch.bool)
        dropout = self.dropout if self.training else 0.0
        top = nn.functional.dropout(self.bilm(forward, backward, mask, dropout)[-1], dropout, training=dropout > 0)
        hidden = [vectors.flatten(0, 1) for vectors in top.chunk(2, dim=-1)]
        targets = [forward_targets.flatten(), backward_targets.flatten()]
        return (
            sum(sampled_losses(self.softmax.weight, self.softmax.bias, hidden, targets, candidates))
            / forward_targets.numel()
            / 2
        )


def _copy(parameter: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.detach().clone())
