# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""The language models that pretrain an ELMo (Peters et al. 2018, §3.1).

    ids -> token encoder -> biLM -> top layer, a half for each direction -> softmax over V words

From top to bottom: the softmax, the forward and the backward model with their losses, and the forward model alone in
the form of transformers' causal language models. Each section has its equations and its glossary.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import CausalLMOutput
from transformers.utils import ModelOutput

from .configuration_elmo import ELMO_HF, ElmoConfig
from .layers_elmo import IGNORED, BiLMState, check_shape
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel, HasState, can_return_tuple

# ---- The softmax -----------------------------------------------------------------------------------------------------
#
# The softmax over words that both language models share (Peters et al. 2018, §3.1).
#
# For a biLM output h `(P,)`, the matrix W `(V, P)` and the bias b `(V,)`, word k has probability
#
#     p(k | h) = exp(u_k) / sum_j exp(u_j),    u_k = W_k . h + b_k
#
# Glossary: N predictions, P projection, V words of the vocabulary. Class k is line k, from 0, of the vocabulary. Losses
# are in nats.

BLOCK_LOGITS = 2**21  # a block's logits fit a processor's cache (8 MiB in float32) unless the vocabulary is very large
LEAST_BLOCK_SIZE = 128  # predictions


class WordSoftmax(nn.Module):
    """The matrix and bias of the softmax; with `share_embedding_softmax` the matrix is the word embedding's."""

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the bias, and the matrix unless it is shared."""
        super().__init__()
        assert config.num_softmax_words is not None
        self.bias = nn.Parameter(torch.empty(config.num_softmax_words))
        if config.share_embedding_softmax:
            self.register_parameter("weight", None)
        else:
            self.weight = nn.Parameter(torch.empty(config.num_softmax_words, config.projection_size))

    def init_parameters(self) -> None:
        """Draws bilm-tf's random weights."""
        if self.weight is not None:
            init.normal_(self.weight, std=1 / math.sqrt(self.weight.shape[1]))
        init.zeros_(self.bias)


def word_log_probs(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Maps h `(N, P)` and targets `(N,)` to log p(target) `(N,)` in float32 at least, block by block.

    Source: `_build_loss` of bilm-tf's `LanguageModel`.
    """
    size, wide = block_size(len(bias)), torch.promote_types(hidden.dtype, torch.float32)
    losses = [
        nn.functional.cross_entropy(nn.functional.linear(block, weight, bias).to(wide), classes, reduction="none")
        for block, classes in zip(hidden.split(size), targets.split(size), strict=True)
    ]
    return -torch.cat(losses)


def block_size(num_words: int) -> int:
    """How many predictions are taken at once."""
    return max(LEAST_BLOCK_SIZE, BLOCK_LOGITS // num_words)


# ---- Both language models --------------------------------------------------------------------------------------------
#
# The two language models that pretrain an ELMo (Peters et al. 2018, §3.1).
#
# The two models share only the token encoder and the softmax. For a sentence w_1 .. w_n with the boundaries w_0 = `<S>`
# and w_{n+1} = `</S>` each predicts n+1 words:
#
#     forward    sum_{t=1..n+1} log p(w_t | w_0 .. w_{t-1})
#     backward   sum_{t=0..n}   log p(w_t | w_{t+1} .. w_{n+1})
#     loss = (mean forward cross-entropy + mean backward cross-entropy) / 2        in nats per prediction
#            the forward one alone in a model of one direction, `bidirectional=False`
#
# This file is part of a saved folder: it takes padded sentences with `labels` and the full softmax. `pretraining.py` of
# the package adds training on streams, a sampled softmax and scores.
#
# Glossary: D directions, B batch, T words, C characters per word, P projection, V words of the softmax.
#
# Deliberate difference from AllenNLP's `LanguageModel`: no softmax class for padding.

DIRECTIONS = ("forward", "backward")
# Arguments that only the package's class takes.
OF_PACKAGE = {"forward_targets", "backward_targets", "backward_input_ids", "candidates"}


@dataclass
class ElmoForPreTrainingOutput(HasState, ModelOutput):
    """The output of `ElmoForPreTraining`; losses need labels or targets, and are None for a missing direction.

    Attributes:
        loss: mean of all directions' losses, in nats per prediction; training minimises it.
        forward_loss, backward_loss: mean cross-entropies; absent if the loss is sampled. exp(loss) is bilm-tf's
            perplexity, the geometric mean of both directions'.
        sampled_forward_loss, sampled_backward_loss: in training with the sampled softmax, they replace the two losses
            above; they are lower, and their exp is not a perplexity.
        forward_log_probs, backward_log_probs: with `output_log_probs=True`, `(B, T)` natural log-probabilities of the
            word at each position (sentences) or of each target (streams); zero where nothing is predicted.
        forward_logits, backward_logits: `(B, T, V)` for the word after or before a position, see `output_logits`.
        state_hidden: `(B, L, 2P)`, see `HasState`.
        state_cell: `(B, L, 2H)`, see `HasState`.
        hidden_states: with `output_hidden_states=True`, the biLM's layers, as in `ElmoModelOutput`.
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    sampled_forward_loss: Tensor | None = None
    sampled_backward_loss: Tensor | None = None
    forward_log_probs: Tensor | None = None
    backward_log_probs: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    state_hidden: Tensor | None = None
    state_cell: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoForPreTraining(ElmoPreTrainedModel):
    """The biLM with one softmax over words on top of all directions (`LanguageModel` in bilm-tf's `training.py`)."""

    # A saved language model embeds too.
    pipelines = ElmoModel.pipelines

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with bilm-tf's random weights; the config must have the number of words of the softmax."""
        super().__init__(config)
        if config.num_softmax_words is None and config.share_embedding_softmax:
            config.num_softmax_words = config.vocab_size - 1
        if config.num_softmax_words is None:
            raise ValueError(
                "a language model needs `num_softmax_words`, the size of its vocabulary; this config has none. "
                "Make a vocabulary with `elmo-hf vocab`, then load with `num_softmax_words=...`."
            )
        self.elmo = ElmoModel(config)
        self.softmax = WordSoftmax(config)
        self.post_init()
        self.set_trainable_parts()

    def set_trainable_parts(self) -> None:
        """Freezes the mixes: no loss reads them, and distributed training would wait for their gradients."""
        super().set_trainable_parts()
        self.elmo.mixes.requires_grad_(False)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves the model with the softmax in shards of its own, which loading the biLM skips."""
        weights = kwargs.pop("state_dict", None) or self.state_dict()
        # Shards are filled in order, so the first, with room for the encoder alone, ends with it.
        weights = dict(sorted(weights.items(), key=lambda item: item[0].startswith("softmax.")))
        encoder_bytes = sum(tensor.nbytes for name, tensor in weights.items() if not name.startswith("softmax."))
        super().save_pretrained(save_directory, state_dict=weights, **({"max_shard_size": encoder_bytes} | kwargs))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        state: BiLMState | None = None,
        output_log_probs: bool = False,
        output_logits: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ElmoForPreTrainingOutput:
        """Runs the language models over sentences.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids for word input.
            attention_mask: `(B, T)`, 1 on words and boundaries, 0 on padding on either side; None: from the ids.
            labels: `(B, T)`, the class of the word at each position, boundaries included; -100 for none.
            state: the state after the previous batch; None starts from zeros.
            output_log_probs: whether to return log-probabilities.
            output_logits: whether to return logits; None: if there is nothing to predict.
            output_hidden_states: whether to return all layers; None: as in the config.
            **kwargs: as in `ElmoModel`, and those of the package's class.

        Raises:
            ValueError: if a shape is wrong.
            ImportError: if a window of streams or a sampled loss needs the package.
        """
        if OF_PACKAGE & kwargs.keys() or (self.training and self.config.softmax == "sampled"):
            self.require_package()
        vectors, mask, targets, resets, distance = self.read(input_ids, attention_mask, labels, **kwargs)
        dropout = self.config.lm_dropout if self.training else 0.0
        layers, next_state = self.elmo.bilm(vectors, mask, state, resets, dropout)
        top = nn.functional.dropout(layers[-1], dropout, training=self.training)
        hidden = dict(zip(DIRECTIONS, top.chunk(self.config.num_directions, dim=-1), strict=False))
        output = {} if targets is None else self.losses(hidden, targets, output_log_probs, distance, **kwargs)
        for name, part in hidden.items() if output_logits or (output_logits is None and targets is None) else ():
            output[f"{name}_logits"] = nn.functional.linear(part, *self.output_table)
        return ElmoForPreTrainingOutput(
            state_hidden=next_state.hidden.transpose(0, 1),
            state_cell=next_state.cell.transpose(0, 1),
            hidden_states=self.layers_wanted(layers, output_hidden_states),
            **output,
        )

    def require_package(self, *_: Any, **__: Any) -> Any:
        """Raises ImportError: only the package's class can do this."""
        raise ImportError(f"streams, sampled losses and scores need {ELMO_HF}: load with its `ElmoForPreTraining`.")

    score = predict_words = require_package

    def read(self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, **kwargs: Any) -> Any:
        """The biLM's input, and the words that it predicts: in each direction the next word that it reads.

        Returns vectors `(B, T, P)`; the mask `(B, T)`; classes `(B, T)` for each direction, -100 for none, or None;
        resets as in `BiLM`; and the distance in columns from a state to the word that it predicts.
        """
        vectors, mask = self.elmo.embed_words(input_ids, attention_mask)
        if labels is None:
            return vectors, mask, None, None, 1
        check_shape("labels", labels, mask.shape)
        labels = labels.masked_fill(~mask, IGNORED)
        after = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        before = nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED)
        return vectors, mask, [targets.masked_fill(~mask, IGNORED) for targets in (after, before)], None, 1

    def losses(
        self, hidden: dict[str, Tensor], targets: list[Tensor], output_log_probs: bool, distance: int, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Mean cross-entropies, and log-probabilities `(B, T)` of the targets, by name.

        `hidden` has the top outputs `(B, T, P)` of each direction by its name. Log-probabilities are moved from the
        column of the state by `distance` to the word predicted.
        """
        output: dict[str, Tensor] = {}
        chosen: dict[str, tuple[Tensor, Tensor]] = {}
        totals: dict[str, Tensor] = {}
        for (name, vectors), classes in zip(hidden.items(), targets, strict=False):
            is_predicted = classes != IGNORED
            chosen[name] = vectors[is_predicted], classes[is_predicted].long()
            if output_log_probs:
                log_probs = word_log_probs(*chosen[name], *self.output_table)
                totals[f"{name}_loss"] = -log_probs.sum()
                placed = log_probs.new_zeros(classes.shape).masked_scatter(is_predicted, log_probs)
                output[f"{name}_log_probs"] = placed.roll(distance if name == "forward" else -distance, dims=1)
        totals = self.totals(chosen, totals, **kwargs)
        counts = [max(len(classes), 1) for _, classes in chosen.values()]
        means = {name: total / number for (name, total), number in zip(totals.items(), counts, strict=True)}
        return output | means | {"loss": torch.stack([*means.values()]).mean()}

    def totals(
        self, chosen: dict[str, tuple[Tensor, Tensor]], exact: dict[str, Tensor], **kwargs: Any
    ) -> dict[str, Tensor]:
        """Each direction's summed loss by name: `exact`, or computed from `chosen`, outputs `(N, P)` and classes."""
        return exact or {
            f"{name}_loss": -word_log_probs(*pair, *self.output_table).sum() for name, pair in chosen.items()
        }

    @property
    def output_table(self) -> tuple[Tensor, Tensor]:
        """W and b of the softmax; a shared W is the word embedding without its padding row."""
        is_shared = self.config.share_embedding_softmax
        weight = self.elmo.get_input_embeddings().weight[1:] if is_shared else self.softmax.weight
        return weight, self.softmax.bias


# ---- The forward language model alone --------------------------------------------------------------------------------
#
# The forward language model, called as transformers' causal language models are: ids in, logits of the next word out.
#
#     p(word k after position t | the words up to t) = softmax(logits[b, t])[k]
#
# Word k is line k, from 1, of the softmax's vocabulary, as are the input ids of a model that reads words. 0 is padding,
# with probability 0; its logit is finite, so entropies are too. Glossary: B batch, T words, V words of the softmax.
#
# Deliberate differences from other causal models: no `generate`, and no state in the output.


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
