"""The layers between ELMo and a task's classifier (Peters et al. 2018, §3.3).

The paper adds ELMo to the input and the output of a task's recurrent network, each time with its own scalar mix.

    none    e_t = [ELMo_t; ELMo'_t], or [x_t; ELMo_t; ELMo'_t] if x is the task's own
    lstm    e_t = [LSTM([x_t; ELMo_t]) in both directions; ELMo'_t]           ELMo' if there are two representations

With `mark_size`, [m_t; ELMo_t] replaces ELMo_t; m_t is one of two learned vectors, for words with mark 0 and 1. If the
mark shows the predicate, labels of words can be semantic roles (He et al. 2017).

Glossary: x word vector (P, or X of the task's own), ELMo and ELMo' representations (2P), e the classifier's input (D),
N texts, W words of the longest text, P projection, S cell of each direction of the task's LSTM (`task_hidden_size`).
Texts are rows of `text_rows.py`: words first, then padding, no boundaries.

Deliberate difference from the paper's models: without `word_vectors` in the config, x is the biLM's own context-free
vector, the first P numbers of layer 0; with `word_vectors`, x is a row of the task's own table, as in the paper.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.configuration_elmo import ElmoConfig
from ..scan.operator import State, Stepped, is_exporting, scan_words
from ..scan.private_names import autocast_dtype, lstm
from .text_rows import reverse_words


class LSTM(nn.LSTM):
    """`nn.LSTM` of one direction, from a state of zeros; compiled graphs break here."""

    @torch.compiler.disable
    def forward(self, inputs: Tensor) -> Tensor:
        """Maps `(N, W, input_size)` to `(N, W, S)`; word by word in a graph that is being exported."""
        # Autocast's own cast comes too late: torch has chosen oneDNN for float32 then, whose LSTM fails in bfloat16 on
        # a processor that does not multiply it.
        inputs = inputs.to(autocast_dtype(inputs.device.type) or inputs.dtype)
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [self.get_parameter(name).to(inputs.dtype) for name in names]
        zeros = inputs.new_zeros(inputs.shape[0], self.hidden_size)
        outputs = None if is_exporting() else lstm(inputs, [zeros[None], zeros[None]], weights)
        if outputs is not None:
            return outputs
        input_weight, recurrent_weight, input_bias, recurrent_bias = weights

        def step(state: State, word: State) -> Stepped:
            hidden, cell = state
            gates = word[0] + nn.functional.linear(hidden, recurrent_weight, recurrent_bias)
            input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
            cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            return (hidden, cell), hidden

        gate_inputs = nn.functional.linear(inputs, input_weight, input_bias).transpose(0, 1)
        return scan_words(step, (zeros, zeros), (gate_inputs,))[1].transpose(0, 1)


class BiLSTM(nn.Module):
    """A bidirectional LSTM over texts of different lengths; gates and weights are torch's."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Takes the input size and S."""
        super().__init__()
        self.forward_lstm = LSTM(input_size, hidden_size, batch_first=True)
        self.backward_lstm = LSTM(input_size, hidden_size, batch_first=True)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Maps `(N, W, input_size)` to `(N, W, 2S)`, forward half first, zero where `mask` `(N, W)` is False."""
        # Padding follows the words in both directions, so no word depends on it.
        forward = self.forward_lstm(inputs)
        backward = self.backward_lstm(reverse_words(inputs, mask))
        return torch.cat([forward, reverse_words(backward, mask)], dim=-1).masked_fill(~mask.unsqueeze(-1), 0)


class TaskEncoder(nn.Module):
    """Makes the word vectors for a task's classifier, of `output_size` D."""

    def __init__(self, config: ElmoConfig) -> None:
        """Builds the encoder that `task_encoder` of the config names."""
        super().__init__()
        self.own_size = config.word_vectors["size"] if config.word_vectors else 0
        elmo_size = config.num_directions * config.projection_size
        mark_size = config.mark_size or 0
        if mark_size > 0:
            self.mark_vectors = nn.Embedding(2, mark_size)
        self.lstm, first_size = None, self.own_size + mark_size + elmo_size
        if config.task_encoder == "lstm":
            input_size = (self.own_size or config.projection_size) + mark_size + elmo_size
            self.lstm = BiLSTM(input_size, config.task_hidden_size)
            first_size = 2 * config.task_hidden_size
        self.output_size = first_size + (config.num_output_representations - 1) * elmo_size

    def forward(
        self, token_vectors: Tensor, representations: Sequence[Tensor], mask: Tensor, marks: Tensor | None = None
    ) -> Tensor:
        """Maps x `(N, W, P or X)`, representations `(N, W, 2P)` and `mask` `(N, W)` to e, arbitrary elsewhere.

        `marks` `(N, W)`, 0 or 1 where `mask` is True, are given if the config has `mark_size`.
        """
        first = representations[0]
        if marks is not None:
            first = torch.cat([self.mark_vectors(marks.long() * mask), first], dim=-1)
        if self.lstm is not None or self.own_size > 0:  # otherwise x is the biLM's own, which ELMo contains
            first = torch.cat([token_vectors, first], dim=-1)
        return torch.cat([first if self.lstm is None else self.lstm(first, mask), *representations[1:]], dim=-1)


def compare(first: Tensor, second: Tensor) -> Tensor:
    """Maps u and v `(..., D)` to [u; v; |u - v|; u . v] `(..., 4D)`."""
    return torch.cat([first, second, (first - second).abs(), first * second], dim=-1)
