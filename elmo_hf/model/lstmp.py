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
from torch.utils._pytree import _register_namedtuple
from transformers.modeling_layers import GradientCheckpointingLayer

from ..scan.operator import State, Stepped, scan_words, uses_operator
from ..scan.packed import Limits, Weights, scan_packed
from ..scan.path import may_take
from ..scan.reading_order import keeps_in_order, reading_order
from ..scan.triton_scan import is_available, scan_layer
from .configuration_elmo import ElmoConfig

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


# `torch.export.save` needs a name; it is part of the `.pt2` format, so it stays as it was first.
_register_namedtuple(BiLMState, serialized_type_name="elmo_hf.lstmp.BiLMState")


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
        self,
        inputs: Tensor,
        mask: Tensor,
        hidden: Tensor,
        cell: Tensor,
        reverse: bool,
        resets: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Scans the words one by one.

        Args:
            inputs: `(B, T, P)`.
            mask: `(B, T)`, True on words.
            hidden: `(B, P)`, state before the first word read.
            cell: `(B, H)`, likewise.
            reverse: whether to read from the last word to the first.
            resets: `(B, T)`, True on words before which the state is set to zero, or None for nowhere.

        Returns:
            outputs `(B, T, P)` in reading order, zero where the mask is False; then `hidden` and `cell` after the
            last word read.
        """
        keeps = torch.ones_like(mask) if resets is None else ~resets
        if uses_operator():
            return self._scan_as_operator(inputs, mask, keeps, hidden, cell, reverse)
        if inputs.numel() == 0:
            return inputs, hidden, cell
        block_length = max(1, GATE_ROWS // inputs.shape[0])
        blocks = list(zip(*(tensor.split(block_length, dim=1) for tensor in (inputs, mask, keeps)), strict=True))
        outputs = []
        for block, *flags in reversed(blocks) if reverse else blocks:
            gate_inputs = self.input_linear(block)  # (B, words of the block, 4H), one product
            steps = list(zip(gate_inputs.unbind(1), *(flag.unsqueeze(-1).unbind(1) for flag in flags), strict=True))
            for gate_input, is_word, keep in reversed(steps) if reverse else steps:
                hidden, cell = self.masked_step(gate_input, is_word, keep, hidden, cell)
                outputs.append(hidden)
        in_reading_order = torch.stack(outputs[::-1] if reverse else outputs, dim=1)  # (B, T, P)
        return in_reading_order.masked_fill(~mask.unsqueeze(-1), 0), hidden, cell

    def _scan_as_operator(
        self, inputs: Tensor, mask: Tensor, keeps: Tensor, hidden: Tensor, cell: Tensor, reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same as one operator of the graph, so that a compiled or exported model serves every length."""

        def step(state: State, word: State) -> Stepped:
            (hidden, cell), (gate_input, is_word, keep) = state, word
            hidden, cell = self.masked_step(gate_input, is_word, keep, hidden, cell)
            return (hidden, cell), hidden

        # (T, B, 4H), (T, B, 1), (T, B, 1)
        words = (self.input_linear(inputs).transpose(0, 1), mask.t().unsqueeze(-1), keeps.t().unsqueeze(-1))
        (hidden, cell), outputs = scan_words(step, (hidden, cell), words, reverse)
        return outputs.transpose(0, 1).masked_fill(~mask.unsqueeze(-1), 0), hidden, cell

    @property
    def gate_bias(self) -> Tensor:
        """`(4H,)`, the bias with the forget bias in it."""
        quarter = self.input_linear.out_features // 4
        return (
            nn.functional.pad(self.input_linear.bias.new_full((quarter,), self.forget_bias), (quarter, 2 * quarter))
            + self.input_linear.bias
        )

    def weights(self, dtype: torch.dtype) -> Weights:
        """The parameters as the packed scan takes them."""
        return Weights(
            self.input_linear.weight.to(dtype),
            self.gate_bias.to(dtype),
            self.recurrent_linear.weight.to(dtype),
            None if self.projection is None else self.projection.weight.to(dtype),
        )

    def masked_step(
        self, gate_input: Tensor, is_word: Tensor, keeps: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One position: `gate_input` `(B, 4H)`, and two flags `(B, 1)`.

        Where `keeps` is False the state is zero before the word; where `is_word` is False it stands still.
        """
        hidden, cell = hidden * keeps, cell * keeps
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

    def forward(
        self,
        inputs: Tensor,
        mask: Tensor,
        hidden: Tensor,
        cell: Tensor,
        forward_resets: Tensor | None = None,
        backward_resets: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Maps inputs `(B, T, 2P)`, hidden `(B, 2P)` and cell `(B, 2H)` to the same of the next layer and batch.

        The resets `(B, T)` are True on words before which a direction's state is set to zero.
        """
        if inputs.numel() > 0 and self.can_scan_fast():
            outputs, hidden, cell = self._scan(inputs, mask, hidden, cell, forward_resets, backward_resets)
            return outputs + inputs if self.has_skip_connection else outputs, hidden, cell
        (forward_inputs, backward_inputs) = inputs.chunk(2, dim=-1)
        (forward_hidden, backward_hidden), (forward_cell, backward_cell) = hidden.chunk(2, -1), cell.chunk(2, -1)
        forward = self.forward_lstm(forward_inputs, mask, forward_hidden, forward_cell, False, forward_resets)
        backward = self.backward_lstm(backward_inputs, mask, backward_hidden, backward_cell, True, backward_resets)
        outputs, hidden, cell = (torch.cat(pair, dim=-1) for pair in zip(forward, backward, strict=True))
        return outputs + inputs if self.has_skip_connection else outputs, hidden, cell

    def can_scan_fast(self) -> bool:
        """Whether the packed scan computes what the modules do: nothing was put in their place, or around them.

        Adapters, quantisation, hooks and offloading take the reference scan.
        """
        forward, backward = self.forward_lstm, self.backward_lstm
        modules = [module for lstm in (forward, backward) for module in lstm.modules()]
        return (
            not torch.compiler.is_compiling()
            and (may_take("packed") or may_take("triton"))
            and all(type(module) in (LSTMP, nn.Linear) and not _is_hooked(module) for module in modules)
            # torchao leaves the modules and puts other tensors into them.
            and all(type(weight.data) is Tensor for lstm in (forward, backward) for weight in lstm.parameters())
        )

    def _scan(
        self,
        inputs: Tensor,
        mask: Tensor,
        hidden: Tensor,
        cell: Tensor,
        forward_resets: Tensor | None,
        backward_resets: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both directions at once, by `bilm_scan.py` or `triton_scan.py`; arguments and results are `forward`'s."""
        device = inputs.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else inputs.dtype
        weights = [lstm.weights(dtype) for lstm in (self.forward_lstm, self.backward_lstm)]
        has_projection = self.forward_lstm.projection is not None
        limits = Limits(self.forward_lstm.cell_clip, self.forward_lstm.projection_clip if has_projection else None)
        resets = None
        if forward_resets is not None and backward_resets is not None:
            resets = (forward_resets, backward_resets)
        if may_take("triton") and is_available(inputs.device, dtype):
            with torch.autocast(device, enabled=False):
                return scan_layer(inputs, mask, hidden, cell, resets, weights, limits)
        order = reading_order(mask)
        keeps = keeps_after_last = None
        if resets is not None:
            keeps, keeps_after_last = keeps_in_order(order, mask, resets)
        halves = zip(inputs.flatten(0, 1).chunk(2, dim=-1), order.places, strict=True)
        with torch.autocast(device, enabled=False):
            outputs, *last = scan_packed(
                torch.stack([half.index_select(0, places) for half, places in halves]).to(dtype),
                order.columns,
                keeps,
                hidden[order.texts].t().unflatten(0, (2, -1)).to(dtype),
                cell[order.texts].t().unflatten(0, (2, -1)),
                weights,
                limits,
            )
        if keeps_after_last is not None:
            last = [state * keeps_after_last.unsqueeze(1) for state in last]
        nothing = inputs.new_zeros(mask.numel(), outputs.shape[-1])
        in_reading_order = torch.cat(
            [
                nothing.index_copy(0, places, output.to(inputs.dtype))
                for places, output in zip(order.places, outputs, strict=True)
            ],
            dim=-1,
        ).view_as(inputs)
        place_of_row = order.texts.argsort()
        hidden, cell = (state.flatten(0, 1).t()[place_of_row].to(inputs.dtype) for state in last)
        return in_reading_order, hidden, cell


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
        self,
        token_vectors: Tensor,
        mask: Tensor,
        state: BiLMState | None = None,
        resets: tuple[Tensor, Tensor] | None = None,
        dropout: float = 0.0,
    ) -> tuple[list[Tensor], BiLMState]:
        """Runs all layers.

        Args:
            token_vectors: `(B, T, P)`, zero where the mask is False; or `(B, T, 2P)` where each direction reads text
                of its own, the backward one's in reading order too.
            mask: `(B, T)`, True on words.
            state: from the batch before, or None for zeros.
            resets: for each direction `(B, T)`, True on words before which its state is set to zero; None: nowhere.
            dropout: share of each layer's input that is dropped, with fresh masks for each word and direction; a skip
                connection adds the dropped input, as in bilm-tf.

        Returns:
            L+1 tensors `(B, T, 2P)`, the first being the token vector twice, and the state after this batch, cut off
            from the graph.

        Raises:
            ValueError: if the state is of another shape than this batch.
        """
        hidden, cell = self._initial_state(token_vectors, state)
        is_shared = token_vectors.shape[-1] == self.projection_size
        outputs = [torch.cat([token_vectors, token_vectors], dim=-1) if is_shared else token_vectors]
        last_hidden, last_cell = [], []
        for layer, layer_hidden, layer_cell in zip(self.layers, hidden, cell, strict=True):
            inputs = nn.functional.dropout(outputs[-1], dropout, training=dropout > 0)
            output, layer_hidden, layer_cell = layer(inputs, mask, layer_hidden, layer_cell, *(resets or ()))
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


def _is_hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)  # accelerate puts a `forward` of its own into the instance


def clip(tensor: Tensor, limit: float | None) -> Tensor:
    """Limits absolute values; the gradient is 1 inside the limits, themselves included, and 0 outside."""
    return tensor if limit is None else tensor.clamp(-limit, limit)
