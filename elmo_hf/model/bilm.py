"""The biLM: stacks of LSTMPs, forward and backward, that never see each other (Peters et al. 2018, §3.1).

    y_t = h_t + x_t    in layers 2 to L, with skip connections; h_t is the LSTMP's output (`lstmp.py`), x_t its input
    y_t = h_t          otherwise

The output of an aligned layer k (`aligned_layers` in the config) is A_k y_t, where y_t is of both directions and the
matrix A_k maps it into the space of another language's model (Schuster et al. 2019). The layer above reads y_t itself,
and no matrix learns.

The two directions never mix, and each passes its state from word to word. So a long text of T words can be read in
pieces of S words. The forward direction starts at the front of the text, the backward one at its end, and each piece
starts from the state after the piece before:

    step        1                  2                      ...
    forward     x_1 ... x_S        x_{S+1} ... x_2S
    backward    x_{T-S+1} ... x_T  x_{T-2S+1} ... x_{T-S}

After T / S steps each direction of each layer has been computed once. Memory holds the layers that are kept, and two
pieces. The results are the same as for reading the whole text at once, up to the order of float sums and, in bfloat16,
one rounding of the cell state between two pieces. A model with aligned layers reads every text at once, because their
matrices mix the two directions.

Glossary: D directions (2, or 1 without `bidirectional`; along the last axis the forward one comes first), B batch, T
words, S words of a piece, P projection, H cell, L layers.

As in bilm-tf and AllenNLP, the residual is not part of the state; `lstmp.py` lists how the state differs from theirs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..scan.kernels import kernels
from ..scan.operator import is_exporting
from ..scan.packed import scan_layer
from ..scan.parameters import Limits, Scanned
from ..scan.private_names import autocast_dtype, has_transforms, is_hooked, register_namedtuple
from ..scan.reading_order import BatchLayout
from .configuration_elmo import ElmoConfig
from .inputs import check_shape
from .lstmp import LSTMP

try:
    from transformers.modeling_layers import GradientCheckpointingLayer
except ImportError:  # not documented; without it, gradient checkpointing is refused
    GradientCheckpointingLayer = nn.Module


class BiLMState(NamedTuple):
    """The biLM's memory after a batch: forward state after the last word, backward state after the first.

    Attributes:
        hidden: `(L, B, DP)`, projected and clipped.
        cell: `(L, B, DH)`, clipped.
    """

    hidden: Tensor
    cell: Tensor

    def resize(self, batch_size: int) -> "BiLMState":
        """Keeps the first `batch_size` rows and adds rows of zeros for missing ones.

        Source: how AllenNLP's `_EncoderBase._get_initial_states` treats batches that shrink and grow.
        """
        padding = (0, 0, 0, max(batch_size - self.hidden.shape[1], 0))
        return BiLMState(*(nn.functional.pad(tensor[:, :batch_size], padding) for tensor in self))

    def update(self, newer: "BiLMState") -> "BiLMState":
        """Replaces the first rows by the rows of `newer`, the state of a smaller batch; the other rows stay.

        Source: AllenNLP's `_EncoderBase._update_states`.
        """
        pairs = zip(newer, self, strict=True)
        return BiLMState(*(torch.cat([new, old[:, new.shape[1] :]], dim=1) for new, old in pairs))


# `torch.export.save` writes this name into `.pt2` files, so it must never change. It is registered on import, because a
# process that opens such a file needs it too.
register_namedtuple(BiLMState, "elmo_hf.lstmp.BiLMState")


class BiLMLayer(GradientCheckpointingLayer):
    """All directions of one layer; each direction reads its own part of the output of the layer below."""

    def __init__(self, config: ElmoConfig, has_skip_connection: bool) -> None:
        """Makes an `LSTMP` per direction; with `has_skip_connection` the input is added to the output."""
        super().__init__()
        self.has_skip_connection = has_skip_connection
        self.forward_lstm = LSTMP(config)
        if config.bidirectional:
            self.backward_lstm = LSTMP(config)

    @property
    def lstms(self) -> list[LSTMP]:
        """The D directions."""
        return cast(list[LSTMP], list(self.children()))

    def forward(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        """Maps inputs `(B, T, DP)`, hidden `(B, DP)` and cell `(B, DH)` to outputs and last state in these shapes."""
        layout = layout.on(inputs.device)
        scan = self._scan_each if is_exporting() else self._scan
        outputs, hidden, cell = scan(inputs, layout, hidden, cell)
        return outputs + inputs if self.has_skip_connection else outputs, hidden, cell

    @torch.compiler.disable  # a compiled graph breaks here: the fast scan depends on the lengths of the texts
    def _scan(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        scan = self._scan_fast if inputs.numel() > 0 and self.can_scan_fast() else self._scan_each
        return scan(inputs, layout, hidden, cell)

    def can_scan_fast(self) -> bool:
        """Whether the fast scans give the same result as the layer's modules.

        The reference runs with adapters, hooks, offloading, `torch.func`, or weights that the kernels cannot read.
        """
        modules = [module for lstm in self.lstms for module in lstm.modules()]
        return (
            not has_transforms()
            and all(type(module) in (LSTMP, nn.Linear) and not is_hooked(module) for module in modules)
            and all(map(kernels().serves, self.parameters()))
        )

    def _scan_fast(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        device, lstm = inputs.device.type, self.forward_lstm
        dtype = autocast_dtype(device) or inputs.dtype
        weights = [lstm.weights() for lstm in self.lstms]
        limits = Limits(lstm.cell_clip, None if lstm.projection is None else lstm.projection_clip)
        return scan_layer(inputs, layout, hidden.to(dtype), cell, weights, limits)

    def _scan_each(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        """Scans each direction by itself with `LSTMP.forward`."""
        lstms = self.lstms
        parts = zip(*(tensor.chunk(len(lstms), dim=-1) for tensor in (inputs, hidden, cell)), strict=True)
        results = [
            lstm(part, layout.mask, *state, index == 1, None if layout.resets is None else layout.resets[index])
            for index, (lstm, (part, *state)) in enumerate(zip(lstms, parts, strict=True))
        ]
        outputs, hidden, cell = (torch.cat(each, dim=-1) for each in zip(*results, strict=True))
        return outputs, hidden, cell


class BiLM(nn.Module):
    """The stack of layers over the token vectors.

    Source: `_build_ops` of `BidirectionalLanguageModelGraph` in bilm-tf, `ElmoLstm` in AllenNLP.
    """

    piece_words = 2048  # S
    alignment: Tensor

    def __init__(self, config: ElmoConfig) -> None:
        """Makes `num_hidden_layers` layers; skip connections, if any, start at the second layer.

        The buffer `alignment` `(K, DP, DP)` has the matrices of the K `aligned_layers`.
        """
        super().__init__()
        self.projection_size, self.cell_size = config.projection_size, config.cell_size
        self.num_directions = config.num_directions
        self.layers = nn.ModuleList(
            BiLMLayer(config, has_skip_connection=config.use_skip_connections and index > 0)
            for index in range(config.num_hidden_layers)
        )
        self.aligned_layers = [*(config.aligned_layers or ())]
        if self.aligned_layers:
            width = self.num_directions * self.projection_size
            self.register_buffer("alignment", torch.empty(len(self.aligned_layers), width, width))

    def init_parameters(self) -> None:
        """Starts with identities as matrices of aligned layers."""
        if self.aligned_layers:
            init.copy_(self.alignment, torch.eye(self.alignment.shape[-1]).expand_as(self.alignment))

    def forward(
        self,
        token_vectors: Tensor,
        mask: Tensor,
        state: BiLMState | None = None,
        resets: Sequence[Tensor] | None = None,
        dropout: float = 0.0,
    ) -> tuple[list[Tensor], BiLMState]:
        """Runs all layers.

        Args:
            token_vectors: `(B, T, P)`, zero where the mask is False; or `(B, T, DP)` if each direction reads its own
                text. The words are in text order for the backward direction too.
            mask: `(B, T)`, True on words.
            state: from the previous batch, or None for zeros.
            resets: for each direction `(B, T)`, True on words before which its state is set to zero; None means never.
            dropout: probability of dropping an element of each layer's input; a skip connection adds the dropped
                input, as in bilm-tf.

        Returns:
            L+1 tensors `(B, T, DP)`, and the state after this batch, detached. The first tensor is `token_vectors`, one
            copy per direction if they are `(B, T, P)`. Aligned layers are multiplied by their matrices.

        Raises:
            ValueError: if the state has the wrong shape for this batch.
        """
        hidden, cell = self._initial_state(token_vectors, state)
        is_shared = token_vectors.shape[-1] == self.projection_size
        outputs = [torch.cat([token_vectors] * self.num_directions, dim=-1) if is_shared else token_vectors]
        layout = BatchLayout(mask, resets, self.num_directions)
        last_states = []
        for layer, *layer_state in zip(self.layers, hidden, cell, strict=True):
            inputs = nn.functional.dropout(outputs[-1], dropout) if dropout > 0 else outputs[-1]
            output, *last_state = layer(inputs, layout, *layer_state)
            outputs.append(output)
            last_states.append(last_state)
        for index, number in enumerate(self.aligned_layers):
            outputs[number] = outputs[number] @ self.alignment[index].T
        return outputs, BiLMState(*(torch.stack(parts).detach() for parts in zip(*last_states, strict=True)))

    def read_in_pieces(
        self,
        token_vectors: Callable[[slice], Tensor],
        length: int,
        keep: Callable[[list[Tensor]], Tensor],
        state: BiLMState | None = None,
    ) -> tuple[Tensor, BiLMState]:
        """Reads texts of equal length T in pieces, in evaluation mode and without gradient.

        Args:
            token_vectors: returns the vectors `(B, n, P)` of a part of the texts, boundaries included.
            length: T, at least 1.
            keep: maps the L+1 layers `(B, n, DP)` of a piece to the tensors to keep, `(K, B, n, DP)`. Each number may
                depend only on the layers' numbers at the same place, because the two halves belong to different words.
            state: from the previous batch, or None for zeros.

        Returns:
            the kept tensors, `(K, B, T, DP)`, and the state after these texts.
        """
        whole: Tensor | None = None
        piece_words = length if self.aligned_layers else self.piece_words
        for start in range(0, length, piece_words):
            stop = min(start + piece_words, length)
            parts = (slice(start, stop), slice(length - stop, length - start))[: self.num_directions]
            vectors = torch.cat([token_vectors(part) for part in parts], dim=-1)
            layers, state = self(vectors, vectors.new_ones(vectors.shape[:2], dtype=torch.bool), state)
            piece = keep(layers)
            whole = piece.new_empty(*piece.shape[:2], length, piece.shape[-1]) if whole is None else whole
            halves = (tensor.chunk(len(parts), -1) for tensor in (whole, piece))
            for part, target, source in zip(parts, *halves, strict=True):
                target[:, :, part] = source
        return cast(Tensor, whole), cast(BiLMState, state)

    def _initial_state(self, token_vectors: Tensor, state: BiLMState | None) -> BiLMState:
        sizes = (self.num_directions * size for size in (self.projection_size, self.cell_size))
        shapes = [(len(self.layers), token_vectors.shape[0], size) for size in sizes]
        if state is None:
            return BiLMState(*(token_vectors.new_zeros(shape) for shape in shapes))
        for name, tensor, shape in zip(BiLMState._fields, state, shapes, strict=True):
            check_shape(f"state.{name}", tensor, shape)  # `state.resize` changes the batch size
        return BiLMState(*(tensor.to(token_vectors.device, token_vectors.dtype) for tensor in state))
