"""The language models that an ELMo is pretrained as (Peters et al. 2018, §3.1).

Two language models share the token encoder and the softmax, and nothing else. Of a sentence w_1 .. w_n with its
boundaries w_0 = `<S>` and w_{n+1} = `</S>` they predict n+1 words each:

    forward    sum_{t=1..n+1} log p(w_t | w_0 .. w_{t-1})
    backward   sum_{t=0..n}   log p(w_t | w_{t+1} .. w_{n+1})
    loss = (mean forward cross-entropy + mean backward cross-entropy) / 2        in nats per prediction

The model is called in one of two ways:

    sentences  padded and masked, as the tokenizer makes them, with `labels`: for evaluation, scoring and fine-tuning
    streams    windows of T words of rows without end, sentences one after the other without padding, the forward and
               the backward stream on their own, with the state of the window before: bilm-tf's training

Glossary: B batch, T words, C characters per word, P projection, H cell, L layers, V words of the softmax.

Deliberate differences from bilm-tf: a state may be reset at chosen words of a stream; a sampled loss is returned
under a name of its own, and never in evaluation. From AllenNLP's `LanguageModel`: no softmax class for padding.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from ..model.configuration_elmo import ElmoConfig
from ..model.lstmp import BiLMState
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .corpus import Corpus, WordTokenizer
from .scoring import DEFAULT_ROWS, Scores, score_carried, score_from_zero
from .softmax import AdaptiveSoftmax, Candidates, WordSoftmax

IGNORED = -100


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """What `ElmoForPreTraining` returns.

    Attributes:
        loss: mean of both directions' losses, in nats per prediction: what training minimises.
        forward_loss: mean cross-entropy of the forward language model; absent where the loss is sampled.
        backward_loss: likewise of the backward one. exp(loss) is bilm-tf's perplexity, the geometric mean of both.
        sampled_forward_loss: in its place in training with the sampled softmax; lower, and no perplexity.
        sampled_backward_loss: likewise.
        state: the `BiLMState` after this batch, cut off from the graph.
        forward_log_probs: returned when `output_log_probs=True`: `(B, T)`, for sentences log p of the word at each
            position, for streams of each target; zero where nothing is predicted. Natural logarithms.
        backward_log_probs: likewise, by the backward language model; for streams in its own order of reading.
        forward_logits: returned when `output_logits=True`: `(B, T, V)`, for the word after each position.
        backward_logits: likewise, for the word before each position; for streams in its own order of reading.
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    sampled_forward_loss: Tensor | None = None
    sampled_backward_loss: Tensor | None = None
    state: BiLMState | None = None
    forward_log_probs: Tensor | None = None
    backward_log_probs: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None


class ElmoForPreTraining(ElmoPreTrainedModel):
    """The biLM with a softmax over words on top of each direction.

    Source: `LanguageModel` in bilm-tf's `training.py`.
    """

    # A saved language model is opened for embedding too.
    pipelines = ElmoModel.pipelines

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with random weights, as bilm-tf draws them.

        Raises:
            ValueError: if the config does not say how many words the softmax has.
        """
        super().__init__(config)
        if config.num_softmax_words is None and config.share_embedding_softmax:
            config.num_softmax_words = config.vocab_size - 1
        if config.num_softmax_words is None:
            raise ValueError(
                "a language model needs `num_softmax_words`, the size of its vocabulary; this config has none. "
                "Make a vocabulary with `elmo-hf vocab`, then load with `num_softmax_words=...`."
            )
        self.elmo = ElmoModel(config)
        self.softmax: WordSoftmax | AdaptiveSoftmax
        self.softmax = AdaptiveSoftmax(config) if config.softmax == "adaptive" else WordSoftmax(config)
        self.post_init()

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves as every transformers model, with the softmax in shards of its own.

        Loading the biLM reads none of them; a released softmax is four times as large as its biLM.
        """
        weights = kwargs.pop("state_dict", None) or self.state_dict()
        # Shards are filled in order, so one that has room for the encoder alone ends with it.
        weights = dict(sorted(weights.items(), key=lambda item: item[0].startswith("softmax.")))
        encoder_bytes = sum(tensor.nbytes for name, tensor in weights.items() if not name.startswith("softmax."))
        super().save_pretrained(save_directory, state_dict=weights, **({"max_shard_size": encoder_bytes} | kwargs))

    def get_input_embeddings(self) -> nn.Embedding:
        """The character table, or the word table."""
        return self.elmo.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replaces the character table, or the word table."""
        self.elmo.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        state: BiLMState | None = None,
        backward_input_ids: Tensor | None = None,
        forward_targets: Tensor | None = None,
        backward_targets: Tensor | None = None,
        forward_resets: Tensor | None = None,
        backward_resets: Tensor | None = None,
        candidates: tuple[Candidates, Candidates] | None = None,
        output_log_probs: bool = False,
        output_logits: bool = False,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> ElmoForPreTrainingOutput:
        """Runs both language models over sentences, or over windows of streams where `backward_input_ids` are given.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids for word input; of streams, the forward one.
            attention_mask: `(B, T)`, 1 on words and boundaries, 0 on padding on either side. None: by the ids.
            labels: of sentences `(B, T)`, the class of the word at each position, boundaries included, -100 for a
                word that is not to be predicted.
            state: from the batch before, or None to start from zeros.
            backward_input_ids: the backward stream's ids in its own order of reading: the last word comes first.
            forward_targets: `(B, T)`, the class of the word that follows each one of the forward stream; -100 for none.
            backward_targets: likewise for the backward stream, in its own order of reading.
            forward_resets: `(B, T)`, True on words of the forward stream before which the state is set to zero.
            backward_resets: likewise for the backward stream, in its own order of reading.
            candidates: for the sampled softmax, the words drawn for each direction; None: drawn anew.
            output_log_probs: whether to return log-probabilities, from the exact softmax.
            output_logits: whether to return logits.
            return_dict: False for a plain tuple.
            **kwargs: accepted and ignored, as every transformers model does.

        Returns:
            an `ElmoForPreTrainingOutput`; losses only where there are labels or targets.

        Raises:
            ValueError: if labels or targets do not fit the way of calling, or a shape is wrong.
        """
        of_streams = {
            "forward_targets": forward_targets,
            "backward_targets": backward_targets,
            "forward_resets": forward_resets,
            "backward_resets": backward_resets,
        }
        if backward_input_ids is None:
            _refuse(of_streams, "sentences")
            vectors, mask = self.elmo.embed_words(input_ids, attention_mask)
            resets = None
            if labels is not None:
                _check_shapes({"labels": labels}, mask)
                forward_targets, backward_targets = _neighbours(labels, mask)
        else:
            _refuse({"labels": labels, "attention_mask": attention_mask}, "streams")
            vectors, mask = self._embed_streams(input_ids, backward_input_ids)
            _check_shapes(of_streams, mask)
            resets = _reading_order(forward_resets, backward_resets, mask)
            backward_targets = None if backward_targets is None else backward_targets.flip(1)
        dropout = self.config.lm_dropout if self.training else 0.0
        layers, next_state = self.elmo.bilm(vectors, mask, state, resets, dropout)
        hidden = nn.functional.dropout(layers[-1], dropout, training=self.training).chunk(2, dim=-1)

        log_probs = [
            self._log_probs(*pair) if output_log_probs else None
            for pair in zip(hidden, (forward_targets, backward_targets), strict=True)
        ]
        output: dict[str, Tensor] = {}
        if forward_targets is not None and backward_targets is not None:
            output |= self._losses(hidden, (forward_targets, backward_targets), candidates, log_probs)
        # Sentences: a word's own probability stands at the word, one place from the state that predicts it.
        shifts = (1, -1) if backward_input_ids is None else (0, 0)
        for index, (name, values) in enumerate(zip(("forward", "backward"), log_probs, strict=True)):
            is_reversed = name == "backward" and backward_input_ids is not None
            if values is not None:
                at_words = values.roll(shifts[index], dims=1)
                output[f"{name}_log_probs"] = at_words.flip(1) if is_reversed else at_words
            if output_logits:
                logits = self.softmax.logits(hidden[index], self._shared_weight)
                output[f"{name}_logits"] = logits.flip(1) if is_reversed else logits
        return ElmoForPreTrainingOutput(state=next_state, **output)

    def score(
        self,
        sentences: Iterable[Sequence[str]],
        tokenizer: WordTokenizer,
        *,
        carries_state: bool = False,
        num_rows: int = DEFAULT_ROWS,
    ) -> Scores:
        """Log-probabilities, surprisals and perplexities of a text, with the exact softmax and without dropout.

        Args:
            sentences: each a list of words, without boundaries.
            tokenizer: an `ElmoTokenizer` with the softmax's vocabulary.
            carries_state: False: each sentence from the zero state. True: as bilm-tf tests, with the state carried
                from sentence to sentence along `num_rows` rows.
            num_rows: rows that are read side by side where the state is carried; 1 reads the text as it stands.

        Raises:
            ValueError: if the tokenizer has no vocabulary of predicted words.
        """
        corpus = Corpus.from_sentences(sentences, tokenizer)
        was_training = self.training
        self.eval()
        scores = score_carried(self, corpus, num_rows) if carries_state else score_from_zero(self, corpus)
        self.train(was_training)
        return scores

    @property
    def _shared_weight(self) -> Tensor | None:
        """The word embedding without its padding row, where it is the softmax's matrix too."""
        return self.elmo.get_input_embeddings().weight[1:] if self.config.share_embedding_softmax else None

    def _embed_streams(self, forward_ids: Tensor, backward_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Word vectors `(B, T, 2P)`, the backward stream's in reading order, and a mask that is True everywhere."""
        if forward_ids.shape != backward_ids.shape:
            raise ValueError(
                "`input_ids` and `backward_input_ids` must have one shape, found "
                f"{tuple(forward_ids.shape)} and {tuple(backward_ids.shape)}."
            )
        vectors, mask = self.elmo.embed_words(torch.cat([forward_ids, backward_ids.flip(1)]))
        forward, backward = vectors.chunk(2)
        return torch.cat([forward, backward], dim=-1), torch.ones_like(mask[: len(forward_ids)])

    def _losses(
        self,
        hidden: tuple[Tensor, ...],
        targets: tuple[Tensor, Tensor],
        candidates: tuple[Candidates, Candidates] | None,
        log_probs: list[Tensor | None],
    ) -> dict[str, Tensor]:
        """By their names; exact losses are read off the log-probabilities where there are any."""
        softmax = self.softmax
        is_sampled = self.training and self.config.softmax == "sampled"
        losses: dict[str, Tensor] = {}
        for index, name in enumerate(("forward_loss", "backward_loss")):
            is_predicted = targets[index] != IGNORED
            chosen, classes = hidden[index][is_predicted], targets[index][is_predicted].long()
            if is_sampled and isinstance(softmax, WordSoftmax):
                drawn = None if candidates is None else candidates[index]
                total = softmax.sampled(chosen, classes, self._shared_weight, drawn)
            elif (values := log_probs[index]) is not None:
                total = -values.sum()
            else:
                total = softmax(chosen, classes, self._shared_weight)
            losses[f"sampled_{name}" if is_sampled else name] = total / max(len(classes), 1)
        forward, backward = losses.values()
        return losses | {"loss": (forward + backward) / 2}

    def _log_probs(self, hidden: Tensor, targets: Tensor | None) -> Tensor | None:
        """`(B, T)`, log p of each target, zero where there is none; None without targets."""
        if targets is None:
            return None
        is_predicted = targets != IGNORED
        log_probs = self.softmax.log_probs(hidden[is_predicted], targets[is_predicted].long(), self._shared_weight)
        return log_probs.new_zeros(targets.shape).masked_scatter(is_predicted, log_probs)


def _neighbours(labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """For each position the class of the word after it and of the word before it, -100 beyond the text.

    Args:
        labels: `(B, T)`.
        mask: `(B, T)`, True on words.
    """
    labels = labels.masked_fill(~mask, IGNORED)
    after = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    before = nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED)
    return after.masked_fill(~mask, IGNORED), before.masked_fill(~mask, IGNORED)


def _reading_order(forward: Tensor | None, backward: Tensor | None, mask: Tensor) -> tuple[Tensor, Tensor] | None:
    if forward is None and backward is None:
        return None
    nowhere = torch.zeros_like(mask)
    return (
        nowhere if forward is None else forward.bool(),
        nowhere if backward is None else backward.bool().flip(1),
    )


def _check_shapes(arguments: dict[str, Tensor | None], mask: Tensor) -> None:
    for name, value in arguments.items():
        if value is not None and value.shape != mask.shape:
            raise ValueError(
                f"`{name}` must have shape (batch, words) = {tuple(mask.shape)}, found {tuple(value.shape)}."
            )


def _refuse(arguments: dict[str, Tensor | None], way: str) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(
            f"`{'`, `'.join(given)}` cannot be given with {way}: sentences take `input_ids`, `attention_mask` and "
            "`labels`; streams take `input_ids`, `backward_input_ids`, and targets and resets of each direction."
        )
