"""The biLM: two stacks of LSTMs with projection and clipping that never see each other (Peters et al. 2018, §3.1).

One step of the LSTMP (Sak et al. 2014), for each direction and layer on its own:

    z_t = W_x x_t + b + W_h h_{t-1}                                split into i, f, g, o
    c_t = clip(sigmoid(f + forget_bias) . c_{t-1} + sigmoid(i) . tanh(g), +-cell_clip)
    h_t = clip(W_p (sigmoid(o) . tanh(c_t)), +-projection_clip)    recurrent state and output
    y_t = h_t + x_t  from the second layer on, if there are skip connections, else h_t

Glossary: B batch, T words, P projection, H cell, L layers. Gate order in every tensor: input i, forget f, candidate g,
output o. Everywhere, the forward direction is the first half of the last axis and the backward one the second.

Deliberate differences from bilm-tf and AllenNLP: the state is a value passed in and returned, never an attribute;
words are masked by gating (where the mask is False the state stands still and the output is zero) instead of by
reversing and sorting, so that padding may stand on either side; the residual is not part of the state, as in theirs.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_elmo import ElmoConfig

try:
    from torch._higher_order_ops.scan import scan
except ImportError:  # a torch without it unrolls the loop when it compiles: one graph for each length
    scan = None  # type: ignore[assignment]

# Rows (texts times words) of one product of inputs and gate weights: many enough to be fast, and few enough that the
# gates of a long text need not all be in memory (at H = 4096 this many are 256 MiB in float32).
GATE_ROWS = 4096


class BiLMState(NamedTuple):
    """What the biLM remembers after a batch: forward state after the last word, backward state after the first.

    Attributes:
        hidden: `(L, B, 2P)`, projected and clipped, forward half first.
        cell: `(L, B, 2H)`, clipped, forward half first.
    """

    hidden: Tensor
    cell: Tensor

    def resize(self, batch_size: int) -> "BiLMState":
        """Keeps the first `batch_size` rows and adds rows of zeros where there are fewer.

        Source: how AllenNLP's `_EncoderBase._get_initial_states` treats batches that shrink and grow.
        """
        missing = max(batch_size - self.hidden.shape[1], 0)
        return BiLMState(
            *(nn.functional.pad(tensor[:, :batch_size], (0, 0, 0, missing)) for tensor in (self.hidden, self.cell))
        )

    def update(self, newer: "BiLMState") -> "BiLMState":
        """Puts the rows of `newer` first and keeps our rows beyond them, for a batch smaller than one before.

        Source: AllenNLP's `_EncoderBase._update_states`.
        """
        batch_size = newer.hidden.shape[1]
        return BiLMState(
            torch.cat([newer.hidden, self.hidden[:, batch_size:]], dim=1),
            torch.cat([newer.cell, self.cell[:, batch_size:]], dim=1),
        )


class LSTMP(nn.Module):
    """One direction of one layer: an LSTM whose output is projected and clipped.

    The gates live in two `nn.Linear`, `input_linear` (P to 4H, with the bias) and `recurrent_linear` (P to 4H),
    so that adapters, quantisation and compilation treat them as in any model.

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

    def forward(
        self, inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor, reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scans the words one by one.

        Args:
            inputs: `(B, T, P)`.
            mask: `(B, T)`, True on words.
            hidden: `(B, P)`, state before the first word read.
            cell: `(B, H)`, likewise.
            reverse: whether to read from the last word to the first.

        Returns:
            outputs `(B, T, P)` in reading order, zero where the mask is False; then `hidden` and `cell` after the
            last word read.
        """
        if scan is not None and torch.compiler.is_compiling():
            return self._scan_as_operator(inputs, mask, hidden, cell, reverse)
        if inputs.numel() == 0:
            return inputs, hidden, cell
        block_length = max(1, GATE_ROWS // inputs.shape[0])
        blocks = list(zip(inputs.split(block_length, dim=1), mask.split(block_length, dim=1), strict=True))
        outputs = []
        for block, block_mask in reversed(blocks) if reverse else blocks:
            gate_inputs = self.input_linear(block)  # (B, words of the block, 4H), one product
            steps = list(zip(gate_inputs.unbind(1), block_mask.unsqueeze(-1).unbind(1), strict=True))
            for gate_input, is_word in reversed(steps) if reverse else steps:
                hidden, cell = self.masked_step(gate_input, is_word, hidden, cell)
                outputs.append(hidden)
        in_reading_order = torch.stack(outputs[::-1] if reverse else outputs, dim=1)  # (B, T, P)
        return in_reading_order.masked_fill(~mask.unsqueeze(-1), 0), hidden, cell

    def _scan_as_operator(
        self, inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor, reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same as one operator of the graph, so that a compiled or exported model serves every length."""

        def step(state: tuple[Tensor, Tensor], word: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
            hidden, cell = self.masked_step(*word, *state)
            return (hidden, cell), hidden.clone()

        words = (self.input_linear(inputs).transpose(0, 1), mask.t().unsqueeze(-1))  # (T, B, 4H), (T, B, 1)
        (hidden, cell), outputs = scan(step, (hidden.clone(), cell.clone()), words, reverse=reverse)
        return outputs.transpose(0, 1).masked_fill(~mask.unsqueeze(-1), 0), hidden, cell

    def masked_step(self, gate_input: Tensor, is_word: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One position: `gate_input` `(B, 4H)` and `is_word` `(B, 1)`; where it is False the state stands still."""
        next_hidden, next_cell = self.step(gate_input + self.recurrent_linear(hidden), cell)
        return torch.where(is_word, next_hidden, hidden), torch.where(is_word, next_cell, cell)

    def step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One word: `gates` `(B, 4H)` before their functions and `cell` `(B, H)` to the next hidden and cell."""
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        kept = (forget_gate + self.forget_bias).sigmoid() * cell
        cell = clip(kept + input_gate.sigmoid() * candidate.tanh(), self.cell_clip)
        hidden = output_gate.sigmoid() * cell.tanh()
        if self.projection is not None:
            hidden = clip(self.projection(hidden), self.projection_clip)
        return hidden, cell


class BiLMLayer(GradientCheckpointingLayer):
    """Both directions of one layer, each reading its own half of the layer below."""

    def __init__(self, config: ElmoConfig, has_skip_connection: bool) -> None:
        """Makes two `LSTMP`; `has_skip_connection` says whether the input is added to the output."""
        super().__init__()
        self.has_skip_connection = has_skip_connection
        self.forward_lstm = LSTMP(config)
        self.backward_lstm = LSTMP(config)

    def forward(self, inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps inputs `(B, T, 2P)`, hidden `(B, 2P)` and cell `(B, 2H)` to the same of the next layer and batch."""
        (forward_inputs, backward_inputs) = inputs.chunk(2, dim=-1)
        (forward_hidden, backward_hidden), (forward_cell, backward_cell) = hidden.chunk(2, -1), cell.chunk(2, -1)
        forward = self.forward_lstm(forward_inputs, mask, forward_hidden, forward_cell, reverse=False)
        backward = self.backward_lstm(backward_inputs, mask, backward_hidden, backward_cell, reverse=True)
        outputs, hidden, cell = (torch.cat(pair, dim=-1) for pair in zip(forward, backward, strict=True))
        return outputs + inputs if self.has_skip_connection else outputs, hidden, cell


class BiLM(nn.Module):
    """The stack of layers over the token vectors.

    Source: `_build_ops` of `BidirectionalLanguageModelGraph` in bilm-tf, `ElmoLstm` in AllenNLP.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Makes `num_hidden_layers` layers; skip connections, if any, start at the second."""
        super().__init__()
        self.projection_size = config.projection_size
        self.cell_size = config.cell_size
        self.layers = nn.ModuleList(
            BiLMLayer(config, has_skip_connection=config.use_skip_connections and index > 0)
            for index in range(config.num_hidden_layers)
        )

    def forward(
        self, token_vectors: Tensor, mask: Tensor, state: BiLMState | None = None
    ) -> tuple[list[Tensor], BiLMState]:
        """Runs all layers.

        Args:
            token_vectors: `(B, T, P)`, zero where the mask is False.
            mask: `(B, T)`, True on words.
            state: from the batch before, or None for zeros.

        Returns:
            L+1 tensors `(B, T, 2P)`, the first being the token vector twice, and the state after this batch, cut off
            from the graph.

        Raises:
            ValueError: if the state is of another shape than this batch.
        """
        hidden, cell = self._initial_state(token_vectors, state)
        outputs = [torch.cat([token_vectors, token_vectors], dim=-1)]
        last_hidden, last_cell = [], []
        for layer, layer_hidden, layer_cell in zip(self.layers, hidden, cell, strict=True):
            output, layer_hidden, layer_cell = layer(outputs[-1], mask, layer_hidden, layer_cell)
            outputs.append(output)
            last_hidden.append(layer_hidden)
            last_cell.append(layer_cell)
        return outputs, BiLMState(torch.stack(last_hidden).detach(), torch.stack(last_cell).detach())

    def _initial_state(self, token_vectors: Tensor, state: BiLMState | None) -> BiLMState:
        batch_size = token_vectors.shape[0]
        shapes = [(len(self.layers), batch_size, 2 * size) for size in (self.projection_size, self.cell_size)]
        if state is None:
            return BiLMState(*(token_vectors.new_zeros(shape) for shape in shapes))
        found = [tuple(tensor.shape) for tensor in state]
        if found != shapes:
            raise ValueError(
                f"`state` must hold `hidden` {shapes[0]} and `cell` {shapes[1]} for this batch, found {found}; "
                "`state.resize(batch_size)` fits it to another batch size."
            )
        return BiLMState(*(tensor.to(token_vectors.device, token_vectors.dtype) for tensor in state))


def clip(tensor: Tensor, limit: float | None) -> Tensor:
    """Limits absolute values; the gradient is 1 inside the limits, themselves included, and 0 outside."""
    return tensor if limit is None else tensor.clamp(-limit, limit)
