"""Lists of words in, vectors of words out, with the state carried from call to call (`stateful.py`).

Glossary: B batch, T words of the longest sentence, C ids of a word, P projection, L layers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..model.configuration_elmo import require
from ..model.layers_elmo import any_of_word
from ..public import ElmoTokenizer
from ..stateful import StatefulElmo


class Words(NamedTuple):
    """Vectors of words, without boundaries; zero on padding, which is on the right."""

    mask: Tensor  # `(B, T)`, True on words
    token_vectors: Tensor  # `(B, T, P)`, context-free
    layers: Tensor  # `(L+1, B, T, 2P)`
    mixed: Tensor  # `(B, T, 2P)`, the scalar mix of the layers


class StatefulWords(StatefulElmo):
    """A `StatefulElmo` with its tokenizer."""

    def __init__(self, model: PreTrainedModel, tokenizer: ElmoTokenizer) -> None:
        """Starts without a state."""
        super().__init__(model)
        self.tokenizer = tokenizer

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

    def forward(self, input_ids: Tensor, stream: str = "") -> Words:  # type: ignore[override]
        """Runs the model on ids of `encode`; calls with the same `stream` share a state."""
        input_ids = input_ids.to(self.model.device)
        output = super().forward(any_of_word(input_ids > 0), stream, input_ids=input_ids)
        num_boundaries = self.tokenizer.num_special_tokens_to_add()
        mask = any_of_word(input_ids > 0)[:, num_boundaries:]  # the boundaries and the words are in front
        start, end = num_boundaries // 2, num_boundaries // 2 + mask.shape[1]

        def words(vectors: Tensor) -> Tensor:
            return vectors[..., start:end, :].masked_fill(~mask.unsqueeze(-1), 0)

        layers = words(torch.stack(output.hidden_states))
        return Words(mask, words(output.token_embeddings), layers, words(output.last_hidden_state))
