"""An ELMo that keeps each batch row's LSTM state from call to call, as AllenNLP, bilm-tf and DeepPavlov do.

Row r starts from the final state of row r in the previous call, or from zeros if no earlier batch had that many rows.
After a smaller batch, the states of the other rows are kept for later calls. Use this class for code written for those
libraries; `ElmoModel` itself takes and returns its state and keeps none.

Glossary: B batch, T words of the longest sentence, C ids of a word, P projection, L layers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..model.bilm import BiLMState
from ..model.configuration_elmo import require
from ..model.inputs import any_of_word
from ..tokenizer.tokenization_elmo import ElmoTokenizer


class Words(NamedTuple):
    """Vectors of words, without boundaries; zero on padding, which is on the right.

    Attributes:
        mask: `(B, T)`, True on words.
        token_vectors: `(B, T, P)`, context-free.
        layers: `(L+1, B, T, 2P)`.
        mixed: `(B, T, 2P)`, the scalar mix of the layers.
    """

    mask: Tensor
    token_vectors: Tensor
    layers: Tensor
    mixed: Tensor


class StatefulElmo(nn.Module):
    """An `ElmoModel` that keeps its state between calls.

    Attributes:
        model: the model.
        tokenizer: its tokenizer.
        stateful: whether calls read and update the kept state; if False, every call starts from zeros.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: ElmoTokenizer) -> None:
        """Starts without a state."""
        super().__init__()
        self.model, self.tokenizer = model, tokenizer
        self.stateful = True
        self._states: dict[str, BiLMState] = {}

    def reset_states(self) -> None:
        """Forgets the state of earlier calls, in every stream."""
        self._states = {}

    def encode(self, sentences: Sequence[Sequence[str]], num_positions: int) -> Tensor:
        """Ids `(B, T, C)` or `(B, T)` of lists of words, padded on the right.

        T is `num_positions`, which must be at least the length of the longest list, and the two boundaries, if the
        model reads them.

        Raises:
            ValueError: if a sentence is a string.
        """
        string = next((words for words in sentences if isinstance(words, str)), None)
        require(string is None, "sentences", "lists of words", string)
        length = num_positions + self.tokenizer.num_special_tokens_to_add()
        return self.tokenizer(
            list(map(list, sentences)),
            is_split_into_words=True,
            padding="max_length",
            padding_side="right",
            max_length=length,
            return_tensors="pt",
        )["input_ids"]

    def forward(self, input_ids: Tensor, stream: str = "") -> Words:
        """Runs the model on ids of `encode`; calls with the same `stream` share a state."""
        input_ids = input_ids.to(self.model.device)
        before = self._states.get(stream) if self.stateful else None
        if before is not None:
            before = BiLMState(*(tensor.to(input_ids.device) for tensor in before))
        output = self.model(
            input_ids,
            state=None if before is None else before.resize(len(input_ids)),
            output_hidden_states=True,
        )
        if self.stateful:
            self._states[stream] = output.state if before is None else before.update(output.state)
        num_boundaries = self.tokenizer.num_special_tokens_to_add()
        mask = any_of_word(input_ids > 0)[:, num_boundaries:]  # the boundaries and the words are in front
        start, end = num_boundaries // 2, num_boundaries // 2 + mask.shape[1]

        def words(vectors: Tensor) -> Tensor:
            return vectors[..., start:end, :].masked_fill(~mask.unsqueeze(-1), 0)

        layers = words(torch.stack(output.hidden_states))
        return Words(mask, words(output.token_embeddings), layers, words(output.last_hidden_state))
