"""Texts, and pairs of texts, to classes or numbers.

    u      = pool(e_1 .. e_W)                            over a text's words, boundaries excluded; zeros for no words
    logits = W u + b                                     one text
    logits = W [u; v; |u - v|; u . v] + b                a pair of texts

    mean       sum_t e_t / W
    max        max_t e_t, each feature on its own
    attention  sum_t a_t e_t,  a = softmax_t(q . e_t)    with a learned query q

Glossary: B batch, T positions of a row, N texts, W words of the longest text, D width of an encoded word.

Deliberate difference from other models of transformers: a pair is compared, not read as one string, which the biLM
never saw in its training (the comparison is that of Conneau et al. 2017).
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from ..model.configuration_elmo import ElmoConfig
from ..model.modeling_elmo import masked_mean
from ..model.pipeline_elmo import ElmoTextClassificationPipeline
from .task_encoder import compare
from .task_model import ElmoTaskModel


class Pooler(nn.Module):
    """One vector of the words of each text."""

    def __init__(self, config: ElmoConfig, size: int) -> None:
        """Pools vectors of `size` numbers as `pooling` of `config` says."""
        super().__init__()
        self.pooling = config.pooling
        if self.pooling == "attention":
            self.query = nn.Linear(size, 1, bias=False)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Maps `(N, W, D)` under `mask` `(N, W)` to `(N, D)`, zero for a text without words."""
        if self.pooling == "mean":
            return masked_mean(vectors, mask)
        mask = mask.unsqueeze(-1)
        lowest = torch.finfo(vectors.dtype).min
        if self.pooling == "max":
            return vectors.masked_fill(~mask, lowest).amax(dim=1).masked_fill(~mask.any(dim=1), 0)
        weights = self.query(vectors).masked_fill(~mask, lowest).softmax(dim=1)
        return (weights * vectors.masked_fill(~mask, 0)).sum(dim=1)


class ElmoForSequenceClassification(ElmoTaskModel):
    """Classifies texts, or with `text_pairs` pairs of them; labels and losses are those of every transformers model."""

    pipelines = {"text-classification": (ElmoTextClassificationPipeline, "AutoModelForSequenceClassification")}

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with random weights; `num_labels` and `problem_type` are transformers' own fields."""
        super().__init__(config)
        self.num_texts = 2 if config.text_pairs else 1
        size = self.task_encoder.output_size
        self.pooler = Pooler(config, size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(4 * size if config.text_pairs else size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classifies a batch.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids.
            attention_mask: `(B, T)`, 1 on words and boundaries; None: every position that has an id above 0.
            bilm_layers: `(B, T, L+1, 2P)`, the biLM's layers of these rows where they were computed before.
            labels: `(B,)` classes; for multi-label classification `(B, num_labels)` of 0.0 and 1.0; for regression
                `(B,)` or `(B, num_labels)` numbers.
            output_hidden_states: whether to return the biLM's layers.
            return_dict: False for a plain tuple.
            **kwargs: accepted and ignored, as every transformers model does.

        Returns:
            `logits` `(B, num_labels)`, with `labels` the `loss`, and the layers `(B, T, 2P)` as `hidden_states`.

        Raises:
            ValueError: if a row does not hold the number of texts that `text_pairs` says, or a shape is wrong.
        """
        texts = self.encode_texts(input_ids, attention_mask, bilm_layers, kwargs)
        pooled = self.pooler(texts.vectors, texts.rows.mask)
        if self.num_texts == 2:
            pooled = compare(*texts.rows.split(pooled))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config) + self.mix_penalty()
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=tuple(texts.layers) if output_hidden_states else None
        )
