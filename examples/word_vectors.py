"""Models for a task over word vectors learned with it, without a biLM: what ELMo is compared with."""

import torch
from torch import Tensor

from elmo_hf import ElmoForSequenceClassification, ElmoForTokenClassification
from elmo_hf.task_model import ElmoTaskModel


class WithoutBiLM(ElmoTaskModel):
    """Every layer is the context-free word vector, and the biLM is never run."""

    # Saved folders would open as models with a biLM, so they carry no code.
    _auto_class = None

    def run_bilm(self, input_ids: Tensor, mask: Tensor, texts: list[Tensor]) -> list[Tensor]:
        """The word vectors twice, L+1 times."""
        vectors, _ = self.elmo.embed_words(input_ids, mask)
        return [torch.cat([vectors, vectors], dim=-1)] * (self.config.num_hidden_layers + 1)


class WordsForSequenceClassification(WithoutBiLM, ElmoForSequenceClassification):
    """The classifier over learned word embeddings."""


class WordsForTokenClassification(WithoutBiLM, ElmoForTokenClassification):
    """The labeller over learned word embeddings."""
