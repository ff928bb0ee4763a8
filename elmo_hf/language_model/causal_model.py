"""The forward language model, called as transformers' causal language models are: ids in, logits of the next word out.

    p(word k after position t | the words up to t) = softmax(logits[b, t])[k]

Word k is line k, from 1, of the softmax's vocabulary, as are the input ids of a model that reads words. 0 is padding,
with probability 0; its logit is finite, so entropies are too. Glossary: B batch, T words, V words of the softmax.

Deliberate differences from other causal models: no `generate`, and no state in the output.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

from ..model.configuration_elmo import ElmoConfig
from ..model.inputs import IGNORED
from ..model.modeling_elmo import can_return_tuple
from .sentence_model import ElmoForPreTraining


class ElmoForCausalLM(ElmoForPreTraining):
    """The forward language model; of a biLM, only its forward direction is loaded, and saved again."""

    _keys_to_ignore_on_load_unexpected = [r"\.backward_lstm\."]

    def __init__(self, config: ElmoConfig) -> None:
        """Makes a model of one direction with random weights; `config` itself does not change."""
        config = copy.copy(config)
        config.bidirectional, config.hidden_size = False, config.projection_size
        super().__init__(config)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        token_encoder_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """Predicts the next word at each position: `logits` `(B, T, V + 1)`, and with labels the mean loss in nats.

        Arguments are those of `ElmoForPreTraining`, except `labels` `(B, T)`: the word's number at each position (not
        the next one's), 0 and -100 for none. `token_encoder_ids` are read in place of `input_ids`, for callers who look
        up `logits` at `input_ids`.
        """
        ids = input_ids if token_encoder_ids is None else token_encoder_ids
        classes = None if labels is None else torch.where(labels > 0, labels - 1, IGNORED)
        output = super().forward(ids, attention_mask, classes, **kwargs, output_logits=True, return_dict=True)
        least = torch.finfo(output.forward_logits.dtype).min
        logits = nn.functional.pad(output.forward_logits, (1, 0), value=least)
        return CausalLMOutput(output.loss, logits, output.hidden_states)
