"""What stands between ELMo and a task's classifier (Peters et al. 2018, §3.3).

The paper puts ELMo into a task's model in two places, each with a scalar mix of its own: beside the input of its
recurrent network, and beside its output.

    none    e_t = ELMo_t
    lstm    e_t = [LSTM([x_t; ELMo_t]) in both directions; ELMo'_t]           ELMo' where there are two representations

    x context-free word vector (P), ELMo and ELMo' representations (2P), e what the classifier reads (D)

Glossary: N texts, W words of the longest text, P projection, S cell of each direction of the task's LSTM
(`task_hidden_size`). Texts are rows of words alone, without boundaries, padding after them (see `text_rows.py`).

Deliberate differences from the paper's models: x is the biLM's own context-free vector, not a second embedding of the
word, so that a folder has one tokenizer and one vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.configuration_elmo import ElmoConfig
from ..scan.operator import State, Stepped, scan_words, uses_operator
from .text_rows import reverse_words


class BiLSTM(nn.Module):
    """An LSTM in both directions over texts of different lengths; gates and weights are torch's."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Makes two LSTMs with cells of `hidden_size`."""
        super().__init__()
        self.forward_lstm = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.backward_lstm = nn.LSTM(input_size, hidden_size, batch_first=True)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Maps `(N, W, input_size)` to `(N, W, 2S)`, forward half first, zero where `mask` `(N, W)` is False."""
        # Padding stands after the words in both runs, so that no word's vector can depend on it.
        forward = _run(self.forward_lstm, inputs)
        backward = _run(self.backward_lstm, reverse_words(inputs, mask))
        return torch.cat([forward, reverse_words(backward, mask)], dim=-1).masked_fill(~mask.unsqueeze(-1), 0)


def _run(lstm: nn.LSTM, inputs: Tensor) -> Tensor:
    """The outputs `(N, W, S)` of an LSTM over `(N, W, input_size)`; one graph serves every length."""
    if not uses_operator():
        return lstm(inputs)[0]

    def step(state: State, word: State) -> Stepped:
        hidden, cell = state
        gates = word[0] + nn.functional.linear(hidden, recurrent_weight, recurrent_bias)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
        hidden = output_gate.sigmoid() * cell.tanh()
        return (hidden, cell), hidden

    input_weight, recurrent_weight, input_bias, recurrent_bias = lstm.all_weights[0]
    gate_inputs = nn.functional.linear(inputs, input_weight, input_bias).transpose(0, 1)
    zeros = inputs.new_zeros(inputs.shape[0], lstm.hidden_size)
    return scan_words(step, (zeros, zeros), (gate_inputs,))[1].transpose(0, 1)


class TaskEncoder(nn.Module):
    """Word vectors for a task's classifier.

    Attributes:
        output_size: D.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `task_encoder`, `task_hidden_size`, `num_output_representations` and the biLM's sizes of `config`.

        Raises:
            ValueError: if there are more representations than places to put them.
        """
        super().__init__()
        most = 2 if config.task_encoder == "lstm" else 1
        if config.num_output_representations > most:
            raise ValueError(
                f"with `task_encoder={config.task_encoder!r}` a model for a task uses at most {most} of "
                f"`num_output_representations`, found {config.num_output_representations}."
            )
        self.lstm = None
        self.output_size = 2 * config.projection_size
        if config.task_encoder == "lstm":
            self.lstm = BiLSTM(3 * config.projection_size, config.task_hidden_size)
            beside_output = config.num_output_representations - 1
            self.output_size = 2 * config.task_hidden_size + beside_output * 2 * config.projection_size

    def forward(self, token_vectors: Tensor, representations: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Encodes words.

        Args:
            token_vectors: `(N, W, P)`.
            representations: one or two of `(N, W, 2P)`.
            mask: `(N, W)`, True on words, which stand first.

        Returns:
            `(N, W, D)`; without an LSTM, what stands where the mask is False has no meaning.
        """
        if self.lstm is None:
            return representations[0]
        encoded = self.lstm(torch.cat([token_vectors, representations[0]], dim=-1), mask)
        return torch.cat([encoded, *representations[1:]], dim=-1)


def compare(first: Tensor, second: Tensor) -> Tensor:
    """Puts [u; v; |u - v|; u . v] side by side: `(..., D)` and `(..., D)` to `(..., 4D)`."""
    return torch.cat([first, second, (first - second).abs(), first * second], dim=-1)
