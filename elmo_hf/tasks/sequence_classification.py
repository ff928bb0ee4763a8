"""Classifies texts or pairs of texts, or maps them to numbers.

    u      = pool(e_1 .. e_W)                            over a text's words without boundaries; zero if there are none
    logits = W u + b                                     one text
    logits = W [u; v; |u - v|; u . v] + b                a pair of texts

    mean, max  as in `pooling.py`
    attention  sum_t a_t e_t,  a = softmax_t(q . e_t)    with a learned query q

Glossary: B batch, T positions of a row, N texts, W words of the longest text, D width of an encoded word.

Deliberate difference from other models of transformers: the biLM reads the texts of a pair separately, because it was
not trained on joined texts, and the classifier compares them (Conneau et al. 2017).
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import TextClassificationPipeline
from transformers.modeling_outputs import SequenceClassifierOutput

from ..model.configuration_elmo import ElmoConfig
from ..model.inputs import IGNORED
from ..model.pooling import masked_max, masked_mean
from .task_encoder import compare
from .task_model import ElmoTaskModel, EncodedTexts


class Pooler(nn.Module):
    """Pools the word vectors of each text."""

    def __init__(self, config: ElmoConfig, size: int) -> None:
        """Takes the config's `pooling`, and the vectors' size D."""
        super().__init__()
        self.pooling = config.pooling
        if self.pooling == "attention":
            self.query = nn.Linear(size, 1, bias=False)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Maps `(N, W, D)` with `mask` `(N, W)` to `(N, D)`, zero for a text without words."""
        if self.pooling != "attention":
            return (masked_max if self.pooling == "max" else masked_mean)(vectors, mask)
        mask = mask.unsqueeze(-1)
        weights = self.query(vectors).masked_fill(~mask, torch.finfo(vectors.dtype).min).softmax(dim=1)
        return (weights * vectors.masked_fill(~mask, 0)).sum(dim=1)


class ElmoTextClassificationPipeline(TextClassificationPipeline):
    """transformers' pipeline as a class of a folder's code."""


class ElmoForSequenceClassification(ElmoTaskModel):
    """Classifies texts, or pairs with `text_pairs`; labels and losses are as in every transformers model."""

    output_class = SequenceClassifierOutput
    pipelines = {"text-classification": (ElmoTextClassificationPipeline, "AutoModelForSequenceClassification")}

    def __init__(self, config: ElmoConfig) -> None:
        """Initialises random weights; `num_labels` and `problem_type` are transformers' own fields."""
        super().__init__(config)
        self.num_texts = 2 if config.text_pairs else 1
        size = self.task_encoder.output_size
        self.pooler = Pooler(config, size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(4 * size if config.text_pairs else size, config.num_labels)
        self.post_init()

    def classify(self, texts: EncodedTexts, labels: Tensor | None, **_: Any) -> tuple[Tensor | None, Tensor]:
        """The loss, and the `logits` `(B, num_labels)`.

        `labels`: `(B,)` classes, -100 for a text that the loss leaves out; multi-label: 0.0 or 1.0 `(B, num_labels)`;
        regression: `(B,)` or `(B, num_labels)`. If the loss leaves out all texts, it is 0.
        """
        pooled = self.pooler(texts.vectors, texts.rows.mask)
        if self.num_texts == 2:
            pooled = compare(*texts.rows.split(pooled))
        logits = self.classifier(self.dropout(pooled))
        if labels is None:
            return None, logits
        # transformers divides the summed loss of classes by this number, and other losses do not read it. Its own mean
        # over no classes is NaN.
        num_classified = (labels != IGNORED).sum().clamp(min=1)
        loss = self.loss_function(
            labels=labels, pooled_logits=logits, config=self.config, num_items_in_batch=num_classified
        )
        return loss + self.mix_penalty(), logits
