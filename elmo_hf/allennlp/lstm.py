"""AllenNLP's `ElmoLstm`: all layers of both directions, with the state of each batch row kept between calls.

    z_t = W x_t + U h_{t-1} + b              `input_linearity`, and `state_linearity` with its bias
    c_t = clip(sigmoid(z_f) . c_{t-1} + sigmoid(z_i) . tanh(z_g), +-memory_cell_clip_value)
    h_t = clip(V (sigmoid(z_o) . tanh(c_t)), +-state_projection_clip_value)     V is `state_projection`
    y_t = h_t + x_t in all layers but the first

`forward_layer_k` and `backward_layer_k` are the two directions of layer k. b includes the forget bias. A layer with the
parts that it was made with gives their tensors to the fast scans of `ElmoModel`. With hooks, with wrapped or replaced
parts, with dropout, or with an input that is not P wide, each direction is called as in AllenNLP.

Glossary: B batch, T words, P `hidden_size`, H `cell_size`, L layers; the parts of z, in this order: z_i of the
input gate, z_f of the forget gate, z_g of the candidate, z_o of the output gate.

Deliberate differences: there is no sorting, so a row may have gaps between words; a row without words keeps its state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from elmo_hf.conversion.hdf5 import read_arrays
from elmo_hf.conversion.readers.hdf5_layout import FORGET_BIAS, allennlp_rules
from elmo_hf.conversion.readers.torch_layout import lstm_rules
from elmo_hf.conversion.rules import export_arrays, import_arrays

from ..model.layers_elmo import BiLMState, check_shape, lstmp_step
from ..model.scan_elmo import (
    BatchLayout,
    Limits,
    Scanned,
    Weights,
    autocast_dtype,
    current_kernels,
    has_transforms,
    is_hooked,
    scan_layer,
)
from ..public import ElmoConfig
from .pretrained import local_file, refuse_former_names, to_tensors

DIRECTIONS = ("forward", "backward")


class LstmCellWithProjection(nn.Module):
    """One direction of one layer."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_size: int,
        go_forward: bool = True,
        recurrent_dropout_probability: float = 0.0,
        memory_cell_clip_value: float | None = None,
        state_projection_clip_value: float | None = None,
    ) -> None:
        """Makes a direction with random weights; a limit of 0 or None does not clip.

        Args:
            input_size: the width of an input.
            hidden_size: P.
            cell_size: H.
            go_forward: whether the first word is read first.
            recurrent_dropout_probability: in training, how probably an element of h_t is dropped, for all t alike.
            memory_cell_clip_value: the limit of c_t.
            state_projection_clip_value: the limit of h_t.
        """
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.cell_size = cell_size
        self.go_forward = go_forward
        self.recurrent_dropout_probability = recurrent_dropout_probability
        self.memory_cell_clip_value = memory_cell_clip_value
        self.state_projection_clip_value = state_projection_clip_value
        self.input_linearity = nn.Linear(input_size, 4 * cell_size, bias=False)
        self.state_linearity = nn.Linear(hidden_size, 4 * cell_size)
        self.state_projection = nn.Linear(cell_size, hidden_size, bias=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws an orthogonal matrix for each gate; the bias is 1 for the forget gate and else 0."""
        for weight in (self.input_linearity.weight, self.state_linearity.weight):
            for gate in weight.chunk(4):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(self.state_linearity.bias)
        nn.init.ones_(self.state_linearity.bias.chunk(4)[1])

    def limits(self) -> Limits:
        """The limits of c_t and h_t."""
        return Limits(self.memory_cell_clip_value or None, self.state_projection_clip_value or None)

    def drops(self) -> bool:
        """Whether a call drops elements of h_t."""
        return self.training and self.recurrent_dropout_probability > 0

    def can_scan_fast(self) -> bool:
        """Whether the fast scans give what `forward` gives."""
        linears = [self.input_linearity, self.state_linearity, self.state_projection]
        if self.drops() or is_hooked(self):
            return False
        if any(type(linear) is not nn.Linear or is_hooked(linear) for linear in linears):
            return False
        if self.input_linearity.bias is not None or self.state_projection.bias is not None:
            return False
        if self.state_linearity.bias is None or self.input_linearity.in_features != self.hidden_size:
            return False
        supports = current_kernels().supports
        return supports(self.state_linearity.bias) and all(supports(linear.weight) for linear in linears)

    def weights(self) -> Weights:
        """The parameters for the fast scans."""
        weight_of = current_kernels().weight_of
        return Weights(
            weight_of(self.input_linearity),
            self.state_linearity.bias,
            weight_of(self.state_linearity),
            weight_of(self.state_projection),
        )

    def forward(
        self,
        inputs: Tensor,
        batch_lengths: Sequence[int],
        initial_state: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Reads texts word by word.

        Args:
            inputs: `(B, T, input_size)`, the words of each text first.
            batch_lengths: the number of words of each text.
            initial_state: `(1, B, P)` and `(1, B, H)`; None for zeros.

        Returns:
            h_t `(B, T, P)` in text order, zero on padding, and the state after the last word read, as `initial_state`.
        """
        batch_size, length, _ = inputs.shape
        lengths = torch.as_tensor(batch_lengths, device=inputs.device).unsqueeze(1)
        if initial_state is None:
            hidden = inputs.new_zeros(batch_size, self.hidden_size)
            cell = inputs.new_zeros(batch_size, self.cell_size)
        else:
            hidden, cell = (tensor.squeeze(0) for tensor in initial_state)
        factors = torch.ones_like(hidden)
        if self.drops():
            factors = nn.functional.dropout(factors, self.recurrent_dropout_probability)
        gate_inputs = self.input_linearity(inputs)
        outputs = [hidden] * length
        places = list(range(length))
        if not self.go_forward:
            places.reverse()
        for place in places:
            gates = gate_inputs[:, place] + self.state_linearity(hidden)
            next_hidden, next_cell = lstmp_step(gates, cell, 0.0, self.state_projection, self.limits())
            is_word = place < lengths
            hidden = torch.where(is_word, next_hidden * factors, hidden)
            cell = torch.where(is_word, next_cell, cell)
            outputs[place] = hidden.masked_fill(~is_word, 0)
        vectors = torch.stack(outputs, dim=1) if outputs else inputs.new_zeros(batch_size, 0, self.hidden_size)
        return vectors, (hidden.unsqueeze(0), cell.unsqueeze(0))


class ElmoLstm(nn.Module):
    """All layers.

    Attributes:
        stateful: whether calls read and update the kept state; if False, every call starts from zeros.
        use_skip_connections: whether layers after the first add their input to their output, as in AllenNLP.
        _states: None, or the state: `(L, rows, 2P)` and `(L, rows, 2H)`; may be set.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_size: int,
        num_layers: int,
        requires_grad: bool = False,
        recurrent_dropout_probability: float = 0.0,
        memory_cell_clip_value: float | None = None,
        state_projection_clip_value: float | None = None,
    ) -> None:
        """Makes layers with random weights, which train until `load_weights` is called.

        Args:
            input_size: the width of the first layer's input.
            hidden_size: P.
            cell_size: H.
            num_layers: L.
            requires_grad: whether loaded weights train.
            recurrent_dropout_probability: as in `LstmCellWithProjection`, as are the two limits.
            memory_cell_clip_value: the limit of c_t.
            state_projection_clip_value: the limit of h_t.
        """
        super().__init__()
        self.stateful = True
        self.use_skip_connections = True
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.cell_size = cell_size
        self.num_layers = num_layers
        self.requires_grad = requires_grad
        self._states: Sequence[Tensor] | None = None
        for index in range(num_layers):
            for direction in DIRECTIONS:
                cell = LstmCellWithProjection(
                    input_size if index == 0 else hidden_size,
                    hidden_size,
                    cell_size,
                    direction == "forward",
                    recurrent_dropout_probability,
                    memory_cell_clip_value,
                    state_projection_clip_value,
                )
                self.add_module(f"{direction}_layer_{index}", cell)
        self.register_load_state_dict_pre_hook(refuse_former_names)

    @property
    def forward_layers(self) -> list[nn.Module]:
        """The forward direction of each layer."""
        return [self.get_submodule(f"forward_layer_{index}") for index in range(self.num_layers)]

    @property
    def backward_layers(self) -> list[nn.Module]:
        """The backward direction of each layer."""
        return [self.get_submodule(f"backward_layer_{index}") for index in range(self.num_layers)]

    def load_weights(self, weight_file: str | Path) -> None:
        """Loads the layers from a `weights.hdf5`, a path or an address; they train if `requires_grad`.

        Raises:
            ConversionError: if the file is missing, has another format, or layers of other sizes.
        """
        config = ElmoConfig(
            projection_size=self.hidden_size,
            cell_size=self.cell_size,
            num_hidden_layers=self.num_layers,
            cell_projection=True,
        )
        rules = [rule for rule in allennlp_rules(config) if rule.targets[0].startswith("bilm.")]
        names = {rule.source for rule in rules}
        path = local_file(weight_file, read_arrays)
        layers = {name: array for name, array in read_arrays(path).items() if name in names}
        ours = import_arrays(rules, layers, str(path))
        self.load_state_dict(to_tensors(export_arrays(lstm_rules(config), ours), FORGET_BIAS))
        self.requires_grad_(self.requires_grad)

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forgets the state of earlier calls, or only that of the rows where `mask` `(rows,)` is True.

        Raises:
            ValueError: if there is a mask, and not for each row of the state.
        """
        if mask is None or self._states is None:
            self._states = None
            return
        num_rows = self._states[0].shape[1]
        if mask.shape != (num_rows,):
            raise ValueError(f"`mask` must have the shape ({num_rows},), one for each row, found {tuple(mask.shape)}.")
        is_forgotten = mask.bool().view(1, -1, 1)
        self._states = tuple(tensor.masked_fill(is_forgotten, 0) for tensor in self._states)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Maps word vectors `(B, T, input_size)` under `mask` `(B, T)` to L layers `(L, B, T, 2P)`, zero on padding."""
        mask = mask.bool()
        inputs = inputs.masked_fill(~mask.unsqueeze(-1), 0)
        carried = None
        if self.stateful and self._states is not None:
            carried = BiLMState(*(tensor.to(inputs.device, inputs.dtype) for tensor in self._states))
        before = self._initial_state(inputs, carried)
        layout = BatchLayout(mask)
        vectors = torch.cat([inputs, inputs], dim=-1)
        layers = []
        last_hidden = []
        last_cell = []
        for index in range(self.num_layers):
            outputs, hidden, cell = self._scan(index, vectors, layout, before.hidden[index], before.cell[index])
            if index > 0 and self.use_skip_connections:
                outputs = outputs + vectors
            vectors = outputs
            layers.append(outputs)
            last_hidden.append(hidden.detach())
            last_cell.append(cell.detach())
        if self.stateful:
            after = BiLMState(torch.stack(last_hidden), torch.stack(last_cell))
            self._states = after if carried is None else carried.update(after)
        return torch.stack(layers)

    def _initial_state(self, inputs: Tensor, carried: BiLMState | None) -> BiLMState:
        """The state of each row before a batch; ValueError if `_states` are of layers of other sizes."""
        shapes = [(self.num_layers, len(inputs), 2 * size) for size in (self.hidden_size, self.cell_size)]
        if carried is None:
            return BiLMState(*(inputs.new_zeros(shape) for shape in shapes))
        state = carried.resize(len(inputs))
        for index, (tensor, shape) in enumerate(zip(state, shapes, strict=True)):
            check_shape(f"_states[{index}]", tensor, shape)
        return state

    @torch.compiler.disable  # as in `BiLMLayer`
    def _scan(self, index: int, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        """Maps inputs `(B, T, .)`, hidden `(B, 2P)` and cell `(B, 2H)` of a layer to its outputs and last state."""
        parts = [self.get_submodule(f"{direction}_layer_{index}") for direction in DIRECTIONS]
        if inputs.numel() == 0 or not _can_scan_fast(parts):
            return _scan_by_calls(parts, inputs, layout.mask, hidden, cell)
        cells = cast(list[LstmCellWithProjection], parts)
        layout = layout.on(inputs.device)
        dtype = autocast_dtype(inputs.device.type) or inputs.dtype
        weights = [part.weights() for part in cells]
        return scan_layer(inputs, layout, hidden.to(dtype), cell, weights, cells[0].limits())


def _can_scan_fast(parts: Sequence[nn.Module]) -> bool:
    """Whether the fast scans give what calls of the two directions give."""
    if has_transforms() or any(type(part) is not LstmCellWithProjection for part in parts):
        return False
    forward, backward = cast(list[LstmCellWithProjection], parts)
    if not forward.go_forward or backward.go_forward or forward.limits() != backward.limits():
        return False
    return forward.can_scan_fast() and backward.can_scan_fast()


@dataclass(frozen=True)
class _TextsByLength:
    """The texts of a batch that have words, in the order in which AllenNLP gives them to a direction.

    Attributes:
        mask: `(B, T)`, True on words.
        texts: the R rows with words, by falling length.
        places: `(R, longest)`, where the words of each text are, then other places.
        lengths: the number of words of each text.
    """

    mask: Tensor
    texts: Tensor
    places: Tensor
    lengths: list[int]

    @classmethod
    def of(cls, mask: Tensor) -> "_TextsByLength":
        """The texts under a mask `(B, T)`."""
        lengths = mask.sum(dim=1)
        order = lengths.argsort(descending=True, stable=True)
        texts = order[lengths[order] > 0]
        text_lengths = lengths[texts].tolist()
        words_first = (~mask).long().argsort(dim=1, stable=True)  # (B, T)
        return cls(mask, texts, words_first[texts, : max(text_lengths, default=0)], text_lengths)


def _scan_by_calls(parts: Sequence[nn.Module], inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor) -> Scanned:
    """Calls each direction with what AllenNLP gives it: texts by falling length, none without words, words first."""
    texts = _TextsByLength.of(mask)
    forward, backward = parts
    forward_inputs, backward_inputs = inputs.chunk(2, dim=-1)
    forward_hidden, backward_hidden = hidden.chunk(2, dim=-1)
    forward_cell, backward_cell = cell.chunk(2, dim=-1)
    of_forward = _call_direction(forward, forward_inputs, texts, forward_hidden, forward_cell)
    of_backward = _call_direction(backward, backward_inputs, texts, backward_hidden, backward_cell)
    outputs = torch.cat([of_forward[0], of_backward[0]], dim=-1)
    last_hidden = torch.cat([of_forward[1], of_backward[1]], dim=-1)
    last_cell = torch.cat([of_forward[2], of_backward[2]], dim=-1)
    return outputs, last_hidden, last_cell


def _call_direction(part: nn.Module, inputs: Tensor, batch: _TextsByLength, hidden: Tensor, cell: Tensor) -> Scanned:
    """Maps one direction's inputs `(B, T, .)`, hidden `(B, P)` and cell `(B, H)` to its outputs and last state."""
    texts = batch.texts
    rows = texts.unsqueeze(1)
    state = (hidden[texts].unsqueeze(0), cell[texts].unsqueeze(0))
    outputs, (last_hidden, last_cell) = part(inputs[rows, batch.places], batch.lengths, state)
    in_place = outputs.new_zeros(*batch.mask.shape, outputs.shape[-1]).index_put((rows, batch.places), outputs)
    return (
        in_place.masked_fill(~batch.mask.unsqueeze(-1), 0),
        hidden.index_put((texts,), last_hidden.squeeze(0).to(hidden.dtype)),
        cell.index_put((texts,), last_cell.squeeze(0).to(cell.dtype)),
    )
