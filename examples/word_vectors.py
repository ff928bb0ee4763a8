"""Models for a task with word vectors that learn, with ELMo or without, to compare both.

The paper replaces a model's word vector x by [x; ELMo] (Peters et al. 2018, §3.3). The package's models use the biLM's
context-free vector as x, so that a folder has one tokenizer. Here x comes from a table over the training set's words:

    WithWordVectors    x learns with the task; the layers are precomputed by a biLM that reads characters
    WithoutBiLM        every layer is x, twice, and no biLM runs

`input_ids` `(B, T)` are word ids in both. Do not open saved folders with the Auto classes: they would add a biLM.
"""

import torch
from torch import Tensor

from elmo_hf import ElmoForSequenceClassification, ElmoForTokenClassification
from elmo_hf.tasks.task_model import ElmoTaskModel


class WithWordVectors(ElmoTaskModel):
    """A model for a task on precomputed `bilm_layers`, with word vectors that learn."""

    def set_trainable_parts(self) -> None:
        """Makes the table of word vectors learn, regardless of the config."""
        super().set_trainable_parts()
        self.elmo.token_encoder.requires_grad_(True)

    def token_vectors(self, input_ids: Tensor, mask: Tensor, layers: list[Tensor]) -> Tensor:
        """The learned word vectors `(B, T, P)`, with the dropout of representations."""
        vectors, _ = self.elmo.embed_words(input_ids, mask)
        return self.elmo.dropout(vectors)


class WithoutBiLM(WithWordVectors):
    """Every layer is the context-free word vector."""

    def run_bilm(self, input_ids: Tensor, mask: Tensor, texts: list[Tensor]) -> list[Tensor]:
        """L+1 layers, each with the word vectors twice."""
        vectors, _ = self.elmo.embed_words(input_ids, mask)
        return [torch.cat([vectors, vectors], dim=-1)] * (self.config.num_hidden_layers + 1)


class WordsForSequenceClassification(WithoutBiLM, ElmoForSequenceClassification):
    """The classifier on learned word vectors."""


class WordsForTokenClassification(WithoutBiLM, ElmoForTokenClassification):
    """The labeller on learned word vectors."""


class WordsAndElmoForSequenceClassification(WithWordVectors, ElmoForSequenceClassification):
    """The classifier on [x; ELMo]."""


class WordsAndElmoForTokenClassification(WithWordVectors, ElmoForTokenClassification):
    """The labeller on [x; ELMo]."""
