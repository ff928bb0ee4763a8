"""Labels each word, with or without a CRF over the labels of a text.

    e_t = W v_t + b                                      one score for each label
    without a CRF   loss = mean_t -log softmax(e_t)[y_t]
    with a CRF      loss = -log p(y) / W                 p of the whole sequence, see `crf.py`

Labels align with `input_ids`, as the usual collator makes them: one for each word, and -100 on boundaries and padding.

Glossary: B batch, T positions of a row, N texts, W words of the longest text, K labels.

Deliberate differences: transformers' pipeline expects parts of words with one id each; ours reads whole words with a
row of character ids each, and takes the word's text from its offsets. Unlike in other models with a CRF, `logits` in
evaluation are the CRF's log p(y_t = k), with the label of the best sequence raised to the top. So pipelines and metrics
work without changes: the argmax is the best sequence, and the softmax is a probability.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import TokenClassificationPipeline
from transformers.modeling_outputs import TokenClassifierOutput

from ..model.configuration_elmo import ElmoConfig
from ..model.inputs import IGNORED, check_shape
from .crf import LinearChainCRF
from .task_model import ElmoTaskModel, EncodedTexts

# The log-probability of the best sequence's label must exceed the others by this.
MARGIN = 1e-3


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """Labels words."""

    def gather_pre_entities(
        self,
        sentence: str,
        input_ids: Any,
        scores: np.ndarray,
        offset_mapping: Any,
        special_tokens_mask: np.ndarray,
        aggregation_strategy: Any,
        word_ids: list[int | None] | None = None,
        word_to_chars_map: list[tuple[int, int]] | None = None,
    ) -> list[dict[str, Any]]:
        """Returns one entry per word: its text, its `(num_labels,)` scores and its place in `sentence`.

        `scores` are `(T, num_labels)`; `special_tokens_mask` `(T,)` is 1 on boundaries; `offset_mapping` `(T, 2)` is in
        characters of the text. For text that came as words, offsets are in characters of each word; `word_ids` has the
        word at each position, and `word_to_chars_map` each word's start and end in `sentence`, the joined words.
        """
        entries = []
        for index in np.flatnonzero(special_tokens_mask == 0).tolist():
            start, end = (int(place) for place in offset_mapping[index])
            if word_ids is not None and word_to_chars_map is not None:
                shift = word_to_chars_map[word_ids[index]][0]  # type: ignore[index]
                start, end = start + shift, end + shift
            entry = {"word": sentence[start:end], "scores": scores[index], "start": start, "end": end}
            entries.append(entry | {"index": index, "is_subword": False})
        return entries


class ElmoForTokenClassification(ElmoTaskModel):
    """Labels the words of texts."""

    output_class = TokenClassifierOutput
    pipelines = {"token-classification": (ElmoTokenClassificationPipeline, "AutoModelForTokenClassification")}
    # Makes the Trainer pass `num_items_in_batch`.
    accepts_loss_kwargs = True

    def __init__(self, config: ElmoConfig) -> None:
        """Initialises random weights; `num_labels` and `id2label` are transformers' own fields."""
        super().__init__(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(self.task_encoder.output_size, config.num_labels)
        self.crf = None
        if config.use_crf:
            self.crf = LinearChainCRF([config.id2label[index] for index in range(config.num_labels)])
        self.post_init()

    def classify(
        self, texts: EncodedTexts, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None, **_: Any
    ) -> tuple[Tensor | None, Tensor]:
        """The loss, and the `logits` `(B, T, K)`, zero on boundaries and padding.

        `labels` are `(B, T)`, -100 to ignore a position; a CRF sums over all labels of such words. Without any other
        label the loss is 0. The Trainer passes `num_items_in_batch`, the number of labels by which to divide the loss.

        Raises:
            ValueError: if labels have another shape, or are illegal for the CRF.
        """
        mask = texts.rows.mask
        emissions = self.classifier(self.dropout(texts.vectors))
        loss = None
        if labels is not None:
            check_shape("labels", labels, texts.rows.masks[0].shape)
            loss = self._loss(emissions, texts.rows.take(labels), mask, num_items_in_batch)
        if self.crf is not None and not self.training and mask.shape[1] > 0:
            emissions = self._answers(self.crf, emissions, mask)
        return loss, texts.rows.put_back(emissions)

    def _loss(self, emissions: Tensor, labels: Tensor, mask: Tensor, num_items: Tensor | int | None) -> Tensor:
        labels = labels.masked_fill(~mask, IGNORED)
        num_labels = (labels != IGNORED).sum()
        if num_items is None:
            divisor = num_labels
        else:
            divisor = torch.as_tensor(num_items, device=labels.device)
        # A batch without labels has the loss 0, not 0 / 0.
        divisor = divisor.clamp(min=1)
        if self.crf is None:
            loss = self.loss_function(emissions, labels, self.config, num_items_in_batch=divisor)
        else:
            loss = self.crf.loss(emissions, labels, mask) / divisor
        penalty = self.mix_penalty()
        if num_items is None:
            return loss + penalty
        # Each part of an accumulated batch adds its share of the penalty.
        return loss + penalty * (num_labels / divisor)

    @staticmethod
    def _answers(crf: LinearChainCRF, emissions: Tensor, mask: Tensor) -> Tensor:
        """Log-probabilities `(N, W, K)`, the largest at the label of the best sequence."""
        marginals = crf.log_marginals(emissions, mask)
        best = crf.decode(emissions, mask).unsqueeze(-1)
        others = marginals.scatter(-1, best, -torch.inf).amax(dim=-1, keepdim=True)
        return marginals.scatter(-1, best, torch.maximum(marginals.gather(-1, best), others + MARGIN))
