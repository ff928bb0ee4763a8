"""Models for a task with word vectors learned along with it: without ELMo, which is compared with it, or beside it.

The paper replaces a model's word vector x by [x; ELMo] (Peters et al. 2018, §3.3). Our models take for x the biLM's own
context-free vector, so that a folder has one tokenizer; here x comes from a table over the words of the training set:

    WithWordVectors    x learned with the task; the layers are those of a biLM that reads characters, computed before
    WithoutBiLM        every layer is x, twice, and the biLM is never run

`input_ids` `(B, T)` are words' ids in both. Saved folders would open as models with a biLM of their own, so they carry
no code.
"""

import torch
from torch import Tensor

from elmo_hf import ElmoForSequenceClassification, ElmoForTokenClassification
from elmo_hf.tasks.task_model import ElmoTaskModel


class WithWordVectors(ElmoTaskModel):
    """A task's model over `bilm_layers` that always come with the ids, and word vectors that learn."""

    _auto_class = None

    def set_trainable_parts(self) -> None:
        """Makes the table of word vectors learn, whatever the config says of a biLM."""
        super().set_trainable_parts()
        self.elmo.token_encoder.requires_grad_(True)

    def token_vectors(self, input_ids: Tensor, mask: Tensor, layers: list[Tensor]) -> Tensor:
        """The learned word vectors `(B, T, P)`, with the dropout that representations have."""
        vectors, _ = self.elmo.embed_words(input_ids, mask)
        return self.elmo.dropout(vectors)


class WithoutBiLM(WithWordVectors):
    """Every layer is the context-free word vector."""

    def run_bilm(self, input_ids: Tensor, mask: Tensor, texts: list[Tensor]) -> list[Tensor]:
        """The word vectors twice, L+1 times."""
        vectors, _ = self.elmo.embed_words(input_ids, mask)
        return [torch.cat([vectors, vectors], dim=-1)] * (self.config.num_hidden_layers + 1)


class WordsForSequenceClassification(WithoutBiLM, ElmoForSequenceClassification):
    """The classifier over learned word vectors."""


class WordsForTokenClassification(WithoutBiLM, ElmoForTokenClassification):
    """The labeller over learned word vectors."""


class WordsAndElmoForSequenceClassification(WithWordVectors, ElmoForSequenceClassification):
    """The classifier over [x; ELMo]."""


class WordsAndElmoForTokenClassification(WithWordVectors, ElmoForTokenClassification):
    """The labeller over [x; ELMo]."""
