"""Words to labels, one each; with or without a CRF over the labels of a text.

    e_t = W v_t + b                                      one score for each label
    without a CRF   loss = mean_t -log softmax(e_t)[y_t]
    with a CRF      loss = -log p(y) / W                 p of the whole sequence, see `crf.py`

Labels stand at the positions of `input_ids`: one for each word, and -100 on boundaries and padding, which is what the
usual loop over `word_ids()` and the usual collator give.

Glossary: B batch, T positions of a row, N texts, W words of the longest text, K labels.

Deliberate difference from other models with a CRF: in evaluation `logits` already are the CRF's answer, log p(y_t = k)
of each word, with the label of the best sequence raised to the top where it is not there by itself. Their argmax is the
best sequence and their softmax a probability, which is all that pipelines and metrics look at.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from ..model.configuration_elmo import ElmoConfig
from ..model.pipeline_elmo import ElmoTokenClassificationPipeline
from .crf import LinearChainCRF
from .task_model import ElmoTaskModel

IGNORE_INDEX = -100
# How far above all others the label of the best sequence is raised, as a difference of log-probabilities.
MARGIN = 1e-3


class ElmoForTokenClassification(ElmoTaskModel):
    """Labels the words of texts."""

    pipelines = {"token-classification": (ElmoTokenClassificationPipeline, "AutoModelForTokenClassification")}
    # The Trainer counts the labels of all batches that it accumulates.
    accepts_loss_kwargs = True

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with random weights; `num_labels` and `id2label` are transformers' own fields."""
        super().__init__(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(self.task_encoder.output_size, config.num_labels)
        self.crf = None
        if config.use_crf:
            self.crf = LinearChainCRF([config.id2label[index] for index in range(config.num_labels)])
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
    ) -> TokenClassifierOutput:
        """Labels a batch.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids.
            attention_mask: `(B, T)`, 1 on words and boundaries; None: every position that has an id above 0.
            bilm_layers: `(B, T, L+1, 2P)`, the biLM's layers of these rows where they were computed before.
            labels: `(B, T)`, -100 where a position is not to be learned from; a CRF sums over the labels of such words.
            output_hidden_states: whether to return the biLM's layers.
            return_dict: False for a plain tuple.
            **kwargs: `num_items_in_batch`, the number of labels that the loss is divided by, as the Trainer gives it;
                others are accepted and ignored.

        Returns:
            `logits` `(B, T, K)`, zero on boundaries and padding, with `labels` the `loss`, and the layers
            `(B, T, 2P)` as `hidden_states`.

        Raises:
            ValueError: if a row holds a pair of texts, a shape is wrong, or labels are illegal for the CRF.
        """
        texts = self.encode_texts(input_ids, attention_mask, bilm_layers, kwargs)
        mask = texts.rows.mask
        emissions = self.classifier(self.dropout(texts.vectors))
        loss = None
        if labels is not None:
            loss = self._loss(emissions, texts.rows.take(labels), mask, kwargs.get("num_items_in_batch"))
        answers = emissions if self.crf is None or self.training else self._answers(self.crf, emissions, mask)
        return TokenClassifierOutput(
            loss=loss,
            logits=texts.rows.put_back(answers),
            hidden_states=tuple(texts.layers) if output_hidden_states else None,
        )

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, LinearChainCRF):
            for parameter in module.parameters():
                init.zeros_(parameter)
        else:
            super()._init_weights(module)

    def _loss(self, emissions: Tensor, labels: Tensor, mask: Tensor, num_items: Tensor | int | None) -> Tensor:
        labels = labels.masked_fill(~mask, IGNORE_INDEX)
        num_labels = (labels != IGNORE_INDEX).sum()
        if self.crf is None:
            loss = self.loss_function(emissions, labels, self.config, num_items_in_batch=num_items)
        else:
            loss = self.crf.loss(emissions, labels, mask) / (num_labels if num_items is None else num_items)
        # Where a batch is run in several parts, each adds its share of the penalty.
        return loss + self.mix_penalty() * (1 if num_items is None else num_labels / num_items)

    @staticmethod
    def _answers(crf: LinearChainCRF, emissions: Tensor, mask: Tensor) -> Tensor:
        """Log-probabilities `(N, W, K)` of each word's labels; the largest is that of the best sequence's label."""
        marginals = crf.log_marginals(emissions, mask)
        best = crf.decode(emissions, mask).unsqueeze(-1)
        others = marginals.scatter(-1, best, -torch.inf).amax(dim=-1, keepdim=True)
        return marginals.scatter(-1, best, torch.maximum(marginals.gather(-1, best), others + MARGIN))
