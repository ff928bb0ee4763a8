"""One direction of one biLM layer: an LSTM whose output is projected and clipped (LSTMP; Sak et al. 2014).

    z_t = W_x x_t + b + W_h h_{t-1}                                split into i, f, g, o
    c_t = clip(sigmoid(f + forget_bias) . c_{t-1} + sigmoid(i) . tanh(g), +-cell_clip)
    h_t = clip(W_p (sigmoid(o) . tanh(c_t)), +-projection_clip)    recurrent state and output

This scan, word by word, is the reference for the fast scans in `scan/`.

Glossary: B batch, T words, P projection, H cell. Gate order in every tensor: input i, forget f, candidate g, output o.

Deliberate differences from bilm-tf and AllenNLP: the state is a value passed in and returned, never an attribute; the
mask acts at each step: where it is False, the state does not change and the output is zero. So padding may be on either
side; bilm-tf and AllenNLP sort and reverse texts.
"""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..scan.kernels import kernels
from ..scan.operator import State, Stepped, is_exporting, scan_words
from ..scan.parameters import Scanned, Weights
from .configuration_elmo import ElmoConfig


class LSTMP(nn.Module):
    """One direction of one layer.

    The gates are two `nn.Linear`, `input_linear` (P to 4H, with the bias) and `recurrent_linear` (P to 4H). So
    adapters, quantisation and compilation treat them like the layers of any model.

    Source: `tf.nn.rnn_cell.LSTMCell(num_proj, cell_clip, proj_clip)`; `LstmCellWithProjection` in AllenNLP.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `projection_size`, `cell_*`, `projection_clip` and `forget_bias` of `config`."""
        super().__init__()
        self.cell_clip = config.cell_clip
        self.projection_clip = config.projection_clip
        self.forget_bias = config.forget_bias
        self.input_linear = nn.Linear(config.projection_size, 4 * config.cell_size)
        self.recurrent_linear = nn.Linear(config.projection_size, 4 * config.cell_size, bias=False)
        self.projection = (
            nn.Linear(config.cell_size, config.projection_size, bias=False) if config.cell_projection else None
        )

    @torch.no_grad()
    def init_parameters(self) -> None:
        """Draws random weights as bilm-tf does (TensorFlow's Glorot default); loaded parameters do not change."""
        # TensorFlow holds both products in one kernel of [P + P, 4H].
        linear = self.input_linear
        limit = math.sqrt(6 / (2 * linear.in_features + linear.out_features))
        init.uniform_(linear.weight, -limit, limit)
        init.zeros_(linear.bias)
        init.uniform_(self.recurrent_linear.weight, -limit, limit)
        if self.projection is not None:
            init.xavier_uniform_(self.projection.weight)

    def forward(
        self, inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor, reverse: bool, resets: Tensor | None = None
    ) -> Scanned:
        """Scans the words one by one, from the last to the first if `reverse`.

        Takes inputs `(B, T, P)`, and hidden `(B, P)` and cell `(B, H)` before the first word read. Returns outputs in
        text order, zero where the mask is False, and the last hidden and cell. `mask` `(B, T)` is True on words,
        `resets` `(B, T)` on words before which the state is set to zero; None means never.
        """
        if inputs.numel() == 0 and not is_exporting():
            return inputs, hidden, cell
        keeps = torch.ones_like(mask) if resets is None else ~resets

        def step(state: State, word: State) -> Stepped:
            hidden, cell = self.masked_step(*word, *state)
            return (hidden, cell), hidden

        # (T, B, 4H), (T, B, 1), (T, B, 1)
        words = (self.input_linear(inputs).transpose(0, 1), mask.t().unsqueeze(-1), keeps.t().unsqueeze(-1))
        (hidden, cell), outputs = scan_words(step, (hidden, cell), words, reverse)
        return outputs.transpose(0, 1).masked_fill(~mask.unsqueeze(-1), 0), hidden, cell

    def masked_step(
        self, gate_input: Tensor, is_word: Tensor, keeps: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Computes one position from `gate_input` `(B, 4H)` and two flags `(B, 1)`.

        Where `keeps` is False, the state is first set to zero. Where `is_word` is False, no word is read.
        """
        hidden, cell = hidden * keeps, cell * keeps
        next_hidden, next_cell = self.step(gate_input + self.recurrent_linear(hidden), cell)
        return torch.where(is_word, next_hidden, hidden), torch.where(is_word, next_cell, cell)

    def step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Maps z `(B, 4H)` of one word and `cell` `(B, H)` to the next hidden and cell."""
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        kept = (forget_gate + self.forget_bias).sigmoid() * cell
        cell = clip(kept + input_gate.sigmoid() * candidate.tanh(), self.cell_clip)
        hidden = output_gate.sigmoid() * cell.tanh()
        if self.projection is not None:
            hidden = clip(self.projection(hidden), self.projection_clip)
        return hidden, cell

    def weights(self) -> Weights:
        """The parameters for the fast scans; their bias includes the forget bias."""
        linear, weight_of = self.input_linear, kernels().weight_of
        quarter = linear.out_features // 4
        forget_bias = nn.functional.pad(linear.bias.new_full((quarter,), self.forget_bias), (quarter, 2 * quarter))
        return Weights(
            weight_of(linear),
            forget_bias + linear.bias,
            weight_of(self.recurrent_linear),
            None if self.projection is None else weight_of(self.projection),
        )


def clip(tensor: Tensor, limit: float | None) -> Tensor:
    """Limits absolute values, as `torch.clamp`; the gradient is 1 inside the limits and at them, 0 outside.

    `torch.clamp` alone has gradient 0 at its limits from torch 2.14 on.
    """
    if limit is None:
        return tensor
    return torch.where(tensor.abs() <= limit, tensor, tensor.clamp(-limit, limit))
