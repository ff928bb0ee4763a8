# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""The language models that pretrain an ELMo (Peters et al. 2018, §3.1).

    ids -> token encoder -> biLM -> top layer, a half for each direction -> softmax over V words

From top to bottom: the softmax, the forward and the backward model with their losses, and the forward model alone in
the form of transformers' causal language models. Each section has its equations and its glossary.
"""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import CausalLMOutput
from transformers.utils import ModelOutput

from .configuration_elmo import ELMO_HF, ElmoConfig, require
from .layers_elmo import IGNORED, BiLMState, check_shape, may_depend_on
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
    size = block_size(len(bias))
    wide = torch.promote_types(hidden.dtype, torch.float32)
    losses = []
    for block, classes in zip(hidden.split(size), targets.split(size), strict=True):
        logits = nn.functional.linear(block, weight, bias).to(wide)
        losses.append(nn.functional.cross_entropy(logits, classes, reduction="none"))
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
# This file is part of a saved folder: it takes padded sentences with `labels` and the full softmax. The package adds
# training on streams, a sampled softmax and scores: `PackageParts` lists them.
#
# Glossary: D directions, B batch, T words, C characters per word, N predictions, P projection, V words of the softmax.
#
# Deliberate difference from AllenNLP's `LanguageModel`: no softmax class for padding.

DIRECTIONS = ("forward", "backward")
# The arguments that make a batch a window of streams, beside `input_ids`.
WINDOW_ARGUMENTS = ("backward_input_ids", "forward_targets", "forward_resets", "backward_targets", "backward_resets")


class LanguageModelBatch(NamedTuple):
    """A batch as the biLM reads it, and the words that it predicts: in each direction the next word that it reads."""

    vectors: Tensor  # (B, T, P); in a window of two directions (B, T, 2P), each direction's own words
    mask: Tensor  # (B, T), True on words and boundaries
    targets: Sequence[Tensor] | None  # for each direction (B, T), the class of the word to predict, -100 for none
    resets: Sequence[Tensor] | None  # as in `BiLM`
    # Distance in columns from a state to the word that it predicts: 1 in sentences, 0 in a window.
    columns_to_word: int


class PackageParts(Protocol):
    """What the package adds to `ElmoForPreTraining`; the first argument of each method is the model."""

    def read_window(
        self, model: "ElmoForPreTraining", sentences: Mapping[str, Tensor | None], window: Mapping[str, Tensor]
    ) -> LanguageModelBatch:
        """The batch of a window; `sentences` has `attention_mask` and `labels`, which must be None."""

    def full_loss(self, model: "ElmoForPreTraining", hidden: Tensor, classes: Tensor) -> Tensor:
        """The summed cross-entropy of outputs `(N, P)` and classes `(N,)`, with its gradient, in blocks."""

    def sampled_losses(
        self, model: "ElmoForPreTraining", predictions: Sequence[tuple[Tensor, Tensor]], candidates: Any
    ) -> Sequence[Tensor]:
        """Each direction's sum of sampled losses, of its outputs `(N, P)` and classes `(N,)`."""

    def score(
        self, model: "ElmoForPreTraining", sentences: Iterable[Sequence[str]], tokenizer: Any, **options: Any
    ) -> Any:
        """See `ElmoForPreTraining.score`."""

    def predict_words(
        self, model: "ElmoForPreTraining", tokenizer: Any, words: Sequence[str], *args: Any, **options: Any
    ) -> Any:
        """See `ElmoForPreTraining.predict_words`."""


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

    # The package sets it; it is None in code that a folder brings.
    package_parts: ClassVar[PackageParts | None] = None

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with bilm-tf's random weights; the config must have the number of words of the softmax."""
        super().__init__(config)
        if config.num_softmax_words is None and config.share_embedding_softmax:
            config.num_softmax_words = config.vocab_size - 1
        if config.num_softmax_words is None:
            raise ValueError(
                "a language model needs `num_softmax_words`, the size of its vocabulary; this config has none. "
                "Load with `num_softmax_words=...`, the number of words that it predicts, `<S>`, `</S>` and `<UNK>` "
                "among them."
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
        weights = kwargs.pop("state_dict", None)
        if weights is None:
            weights = self.state_dict()
        encoder_weights = {name: tensor for name, tensor in weights.items() if not name.startswith("softmax.")}
        softmax_weights = {name: tensor for name, tensor in weights.items() if name.startswith("softmax.")}
        if kwargs.get("max_shard_size") is None:
            # Shards are filled in order, so the first, with room for the encoder alone, ends with it.
            kwargs["max_shard_size"] = sum(tensor.nbytes for tensor in encoder_weights.values())
        super().save_pretrained(save_directory, state_dict=encoder_weights | softmax_weights, **kwargs)

    def push_to_hub(self, repo_id: str, *, max_shard_size: int | str | None = None, **kwargs: Any) -> Any:
        """Pushes like every transformers model; None lets `save_pretrained` choose the size of shards."""
        return super().push_to_hub(repo_id, max_shard_size=max_shard_size, **kwargs)

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
            output_logits: whether to return logits; None: yes without labels or targets.
            output_hidden_states: whether to return all layers; None: as in the config.
            **kwargs: as in `ElmoModel`; and, with the package, for a window of streams `backward_input_ids`, targets
                and resets in place of `attention_mask` and `labels`, see its `streams.py`, and `candidates`, the words
                drawn for each direction's sampled softmax; None draws them.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if a shape is wrong; if a window has arguments for sentences, or too few or too many arguments;
                if `inputs_embeds` are given, which `ElmoModel` reads in place of ids.
            ImportError: if a window of streams or a sampled loss needs the package.
        """
        inputs_embeds = kwargs.get("inputs_embeds")
        require(inputs_embeds is None, "inputs_embeds", "None: language models read `input_ids`", inputs_embeds)
        window = {name: kwargs[name] for name in WINDOW_ARGUMENTS if kwargs.get(name) is not None}
        candidates = kwargs.get("candidates")
        samples_words = self._trains_on_samples and labels is not None
        if candidates is not None or samples_words:
            self.require_package()  # here, before anything is computed
        if window:
            sentences = {"attention_mask": attention_mask, "labels": labels}
            batch = self.require_package().read_window(self, sentences, {"input_ids": input_ids} | window)
        else:
            batch = self.read_sentences(input_ids, attention_mask, labels)
        dropout = self.config.lm_dropout if self.training else 0.0
        layers, next_state = self.elmo.bilm(batch.vectors, batch.mask, state, batch.resets, dropout)
        top = nn.functional.dropout(layers[-1], dropout, training=self.training)
        hidden = dict(zip(self.direction_names, top.chunk(self.config.num_directions, dim=-1), strict=True))
        output: dict[str, Tensor] = {}
        if batch.targets is not None:
            output |= self.losses(hidden, batch, output_log_probs, candidates)
        if output_logits is None:
            output_logits = batch.targets is None
        if output_logits:
            for name, vectors in hidden.items():
                output[f"{name}_logits"] = nn.functional.linear(vectors, *self.output_table)
        return ElmoForPreTrainingOutput(
            state_hidden=next_state.hidden.transpose(0, 1),
            state_cell=next_state.cell.transpose(0, 1),
            hidden_states=self.layers_wanted(layers, output_hidden_states),
            **output,
        )

    def require_package(self) -> PackageParts:
        """What the package adds.

        Raises:
            ImportError: if this is code that a folder brings.
            NotImplementedError: if this is the causal model.
        """
        if self.package_parts is None:
            raise ImportError(
                f"streams, sampled losses and scores need {ELMO_HF}: load the model with its `ElmoForPreTraining`."
            )
        return self.package_parts

    def score(self, sentences: Iterable[Sequence[str]], tokenizer: Any, **options: Any) -> Any:
        """Log-probabilities, surprisals and perplexities of sentences, which are words without boundaries.

        Args:
            sentences: the words of each sentence.
            tokenizer: the model's, with the words of its softmax.
            **options: those of the function `score` in `scoring.py` of the package, which also says what is returned.

        Raises:
            ImportError: if this is code that a folder brings.
        """
        return self.require_package().score(self, sentences, tokenizer, **options)

    def predict_words(self, tokenizer: Any, words: Sequence[str], *args: Any, **options: Any) -> Any:
        """The words that fit one place of a sentence, by falling probability.

        Args:
            tokenizer: the model's, with the words of its softmax.
            words: the sentence without boundaries.
            *args: the place, from 0; without it, the first gap, `___`.
            **options: those of the function `elmo_hf.predict_words`, which also says what is returned.

        Raises:
            ImportError: if this is code that a folder brings.
        """
        return self.require_package().predict_words(self, tokenizer, words, *args, **options)

    def read_sentences(
        self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None
    ) -> LanguageModelBatch:
        """A batch of sentences as the biLM reads it; arguments as in `forward`."""
        vectors, mask = self.elmo.embed_words(input_ids, attention_mask)
        if labels is None:
            return LanguageModelBatch(vectors, mask, targets=None, resets=None, columns_to_word=1)
        check_shape("labels", labels, mask.shape)
        labels = labels.masked_fill(~mask, IGNORED)
        after = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        before = nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED)
        neighbours = {"forward": after, "backward": before}
        targets = [neighbours[name].masked_fill(~mask, IGNORED) for name in self.direction_names]
        return LanguageModelBatch(vectors, mask, targets, resets=None, columns_to_word=1)

    def losses(
        self, hidden: Mapping[str, Tensor], batch: LanguageModelBatch, output_log_probs: bool, candidates: Any
    ) -> dict[str, Tensor]:
        """Mean cross-entropies, and log-probabilities `(B, T)` of the targets, by the names of the output.

        `hidden` has the top outputs `(B, T, P)` of each direction by its name; `batch` has targets. Log-probabilities
        are moved from the column of a state to that of the word that it predicts.
        """
        assert batch.targets is not None
        output: dict[str, Tensor] = {}
        predictions: dict[str, tuple[Tensor, Tensor]] = {}
        sums: dict[str, Tensor] = {}
        for name, targets in zip(hidden, batch.targets, strict=True):
            is_predicted = targets != IGNORED
            predictions[name] = hidden[name][is_predicted], targets[is_predicted].long()
            if output_log_probs:
                log_probs = word_log_probs(*predictions[name], *self.output_table)
                sums[name] = -log_probs.sum()
                by_column = log_probs.new_zeros(targets.shape).masked_scatter(is_predicted, log_probs)
                columns = batch.columns_to_word if name == "forward" else -batch.columns_to_word
                output[f"{name}_log_probs"] = by_column.roll(columns, dims=1)
        prefix = ""
        if self._trains_on_samples:
            prefix = "sampled_"
            sampled_sums = self.require_package().sampled_losses(self, [*predictions.values()], candidates)
            sums = dict(zip(predictions, sampled_sums, strict=True))
        elif not output_log_probs:
            for name, (vectors, classes) in predictions.items():
                sums[name] = self.full_loss(vectors, classes)
        means: dict[str, Tensor] = {}
        for name, (_, classes) in predictions.items():
            means[f"{prefix}{name}_loss"] = sums[name] / max(len(classes), 1)
        loss = torch.stack([*means.values()]).mean()
        return output | means | {"loss": loss}

    def full_loss(self, vectors: Tensor, classes: Tensor) -> Tensor:
        """The summed cross-entropy of outputs `(N, P)` and classes `(N,)`; the package's takes less memory."""
        may_learn = torch.is_grad_enabled() and may_depend_on(vectors)
        if self.package_parts is not None and may_learn:
            return self.package_parts.full_loss(self, vectors, classes)
        return -word_log_probs(vectors, classes, *self.output_table).sum()

    @property
    def direction_names(self) -> tuple[str, ...]:
        """The names of the D directions."""
        return DIRECTIONS[: self.config.num_directions]

    @property
    def _trains_on_samples(self) -> bool:
        """Whether the losses are sampled: in training only, if the config says so."""
        return self.training and self.config.softmax == "sampled"

    @property
    def output_table(self) -> tuple[Tensor, Tensor]:
        """W and b of the softmax; a shared W is the word embedding without its padding row."""
        if self.config.share_embedding_softmax:
            return self.elmo.get_input_embeddings().weight[1:], self.softmax.bias
        return self.softmax.weight, self.softmax.bias


# ---- The forward language model alone --------------------------------------------------------------------------------
#
# The forward language model, called as transformers' causal language models are: ids in, logits of the next word out.
#
#     p(word k after position t | the words up to t) = softmax(logits[b, t])[k]
#
# Word k is line k, from 1, of the softmax's vocabulary, as are the input ids of a model that reads words. 0 is padding,
# with probability 0; its logit is finite, so entropies are too. Glossary: B batch, T words, V words of the softmax.
#
# Deliberate differences from other causal models: no `generate`, and no state in the output. Training always computes
# the full softmax, also of a config with the sampled one.


class ElmoForCausalLM(ElmoForPreTraining):
    """The forward language model.

    Loaded from a biLM's folder, it has only the forward direction, and saves only that.
    """

    # Of a biLM: its backward direction, and linear mixes of both directions, which in a folder of `ElmoModel` have no
    # prefix.
    _keys_to_ignore_on_load_unexpected = [r"\.backward_lstm\.", r"(^|\.)linear_mixes\."]

    def __init__(self, config: ElmoConfig) -> None:
        """Makes a model of one direction with random weights; `config` itself does not change."""
        config = copy.copy(config)
        if config.bidirectional:
            config.layer_mix = "scalar"  # a linear mix is of both directions, and no logits depend on it
        config.bidirectional = False
        config.hidden_size = config.projection_size
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
        the next one's), 0 and -100 for none. If the model reads characters, but your code indexes `logits` by the
        numbers of words, give the numbers as `input_ids` and the characters as `token_encoder_ids`, which the model
        then reads. `output_logits` has no effect.

        Raises:
            ValueError: if `output_log_probs` is True, if labels are rows of characters, or as in `ElmoForPreTraining`.
        """
        legal = "False in a causal model: `logits.log_softmax(dim=-1)` are all log-probabilities"
        require(not kwargs.get("output_log_probs"), "output_log_probs", legal, True)
        if labels is not None and labels.dim() == 3:
            raise ValueError(
                "`labels` must be the numbers of words, of shape (batch, words), found a tensor of shape "
                f"{tuple(labels.shape)}. Give `tokenizer.word_classes(words) + 1`; a copy of `input_ids`, as run_clm.py"
                " makes it, suits only models that read words by their numbers."
            )
        kwargs["output_logits"] = True
        ids = input_ids if token_encoder_ids is None else token_encoder_ids
        classes = None if labels is None else torch.where(labels > 0, labels - 1, IGNORED)
        output = super().forward(ids, attention_mask, classes, **kwargs, return_dict=True)
        least = torch.finfo(output.forward_logits.dtype).min
        logits = nn.functional.pad(output.forward_logits, (1, 0), value=least)
        return CausalLMOutput(output.loss, logits, output.hidden_states)

    def require_package(self) -> PackageParts:
        """Raises NotImplementedError: streams and scores are those of `ElmoForPreTraining`, with other arguments."""
        raise NotImplementedError(
            "`ElmoForCausalLM` has no streams, drawn words and scores: load the model with `ElmoForPreTraining` of "
            f"{ELMO_HF}."
        )

    @property
    def _trains_on_samples(self) -> bool:
        """False: the causal model always computes the full softmax."""
        return False
