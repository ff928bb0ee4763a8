"""The two language models that pretrain an ELMo (Peters et al. 2018, §3.1).

They share only the token encoder and the softmax. For a sentence w_1 .. w_n with the boundaries w_0 = `<S>` and
w_{n+1} = `</S>` each predicts n+1 words:

    forward    sum_{t=1..n+1} log p(w_t | w_0 .. w_{t-1})
    backward   sum_{t=0..n}   log p(w_t | w_{t+1} .. w_{n+1})
    loss = (mean forward cross-entropy + mean backward cross-entropy) / 2        in nats per prediction
           the forward one's alone in a model of one direction, `bidirectional=False`

There are two ways to call the model, always in text order (the backward language model reads the last column first):

    sentences  padded and masked, as from the tokenizer, with `labels`: for evaluation, scoring and fine-tuning
    streams    windows of T words of endless rows of sentences without padding, a forward and a backward window of
               their own texts, with the state after the window before: bilm-tf's training

Glossary: D directions, B batch, T words, C characters per word, P projection, V words of the softmax.

Deliberate differences from bilm-tf: backward windows are in text order. Chosen words of a stream may reset the state. A
sampled loss has a name of its own and never occurs in evaluation. From AllenNLP's `LanguageModel`: no softmax class for
padding.
"""

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from ..model.bilm import BiLMState
from ..model.configuration_elmo import ELMO_HF, ElmoConfig
from ..model.inputs import IGNORED, check_shape
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel, HasState
from .corpus import Corpus
from .scoring import DEFAULT_ROWS, DIRECTIONS, Scores, evaluating, score_carried, score_from_zero
from .softmax import Candidates, WordSoftmax

STREAM_ARGUMENTS = ("forward_targets", "backward_targets", "forward_resets", "backward_resets")


@dataclass
class ElmoForPreTrainingOutput(HasState, ModelOutput):
    """What `ElmoForPreTraining` returns; losses need labels or targets. With one direction the other's are None.

    Attributes:
        loss: mean of all directions' losses, in nats per prediction: what training minimises.
        forward_loss, backward_loss: mean cross-entropies; absent if the loss is sampled. exp(loss) is bilm-tf's
            perplexity, the geometric mean of both directions'.
        sampled_forward_loss, sampled_backward_loss: replace them in training with the sampled softmax; lower, and no
            perplexities.
        state_hidden: `(B, L, 2P)`, see `HasState`.
        state_cell: `(B, L, 2H)`, see `HasState`.
        forward_log_probs, backward_log_probs: with `output_log_probs=True`, `(B, T)` natural log-probabilities: for
            sentences of the word at each position, for streams of each target; zero where nothing is predicted.
        forward_logits, backward_logits: if `output_logits=True`, `(B, T, V)` for the word after or before a position.
        hidden_states: with `output_hidden_states=True`, the biLM's layers, as in `ElmoModelOutput`.
    """

    loss: Tensor | None = None
    forward_loss: Tensor | None = None
    backward_loss: Tensor | None = None
    sampled_forward_loss: Tensor | None = None
    sampled_backward_loss: Tensor | None = None
    state_hidden: Tensor | None = None
    state_cell: Tensor | None = None
    forward_log_probs: Tensor | None = None
    backward_log_probs: Tensor | None = None
    forward_logits: Tensor | None = None
    backward_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class ElmoForPreTraining(ElmoPreTrainedModel):
    """The biLM with one softmax over words on top of all directions (`LanguageModel` in bilm-tf's `training.py`)."""

    # A saved language model embeds too.
    pipelines = ElmoModel.pipelines

    def __init__(self, config: ElmoConfig) -> None:
        """Makes the model with bilm-tf's random weights.

        Raises:
            ValueError: if the config lacks the number of words of the softmax.
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
        self.softmax = WordSoftmax(config)
        self.post_init()
        self.set_trainable_parts()

    def set_trainable_parts(self) -> None:
        """Freezes the mixes: no loss reads them, and distributed training would wait for their gradients."""
        super().set_trainable_parts()
        self.elmo.mixes.requires_grad_(False)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves the softmax, often larger than the biLM, in shards that loading the biLM skips."""
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
        backward_input_ids: Tensor | None = None,
        forward_targets: Tensor | None = None,
        backward_targets: Tensor | None = None,
        forward_resets: Tensor | None = None,
        backward_resets: Tensor | None = None,
        candidates: Sequence[Candidates] | None = None,
        output_log_probs: bool = False,
        output_logits: bool = False,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> ElmoForPreTrainingOutput:
        """Runs the language models over sentences, or over windows of streams.

        Windows have `backward_input_ids`; those of a model of one direction have `forward_targets` instead.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids for word input; for streams the forward ones.
            attention_mask: `(B, T)`, 1 on words and boundaries, 0 on padding on either side; None derives it.
            labels: for sentences `(B, T)`, the class of the word at each position, boundaries included; -100 for none.
            state: after the batch before; None starts from zeros.
            backward_input_ids: the backward stream's ids in text order; the last column is read first.
            forward_targets: `(B, T)`, the class of the word after each `input_ids`; -100 for none.
            backward_targets: `(B, T)`, the class of the word before each `backward_input_ids`; -100 for none.
            forward_resets: `(B, T)`, True on `input_ids` before which the forward state is set to zero.
            backward_resets: `(B, T)`, True on `backward_input_ids` before which the backward state is set to zero.
            candidates: for the sampled softmax, the words drawn for each direction; None draws them.
            output_log_probs: whether to return log-probabilities, from the exact softmax.
            output_logits: whether to return logits.
            output_hidden_states: whether to return all layers; None: what the config says.
            return_dict: False for a plain tuple.
            **kwargs: ignored, as in every transformers model.

        Raises:
            ValueError: if labels or targets do not fit the way of calling, or a shape is wrong.
        """
        targets, resets = (forward_targets, backward_targets), (forward_resets, backward_resets)
        of_streams = dict(zip(STREAM_ARGUMENTS, targets + resets, strict=True))
        num_directions = self.config.num_directions
        if num_directions == 1:
            of_backward = {name: of_streams[name] for name in ("backward_targets", "backward_resets")}
            _refuse({"backward_input_ids": backward_input_ids} | of_backward, "one direction")
        is_window = (forward_targets if num_directions == 1 else backward_input_ids) is not None
        if not is_window:
            _refuse(of_streams, "sentences")
            vectors, mask = self.elmo.embed_words(input_ids, attention_mask)
            if labels is not None:
                check_shape("labels", labels, mask)
                targets = _neighbours(labels, mask)
        else:
            _refuse({"labels": labels, "attention_mask": attention_mask}, "streams")
            vectors, mask = self._embed_streams([ids for ids in (input_ids, backward_input_ids) if ids is not None])
            for name, value in of_streams.items():
                if value is not None:
                    check_shape(name, value, mask)
        dropout = self.config.lm_dropout if self.training else 0.0
        layers, next_state = self.elmo.bilm(vectors, mask, state, _all_resets(resets[:num_directions], mask), dropout)
        top = nn.functional.dropout(layers[-1], dropout, training=self.training)
        hidden = dict(zip(DIRECTIONS, top.chunk(num_directions, dim=-1), strict=False))
        output = self._losses(hidden, targets, candidates, output_log_probs, int(not is_window))
        for name, part in hidden.items() if output_logits else ():
            output[f"{name}_logits"] = self.softmax.logits(part, self._shared_weight)
        return ElmoForPreTrainingOutput(
            state_hidden=next_state.hidden.transpose(0, 1),
            state_cell=next_state.cell.transpose(0, 1),
            hidden_states=self.layers_wanted(layers, output_hidden_states),
            **output,
        )

    def score(
        self,
        sentences: Iterable[Sequence[str]],
        tokenizer: Any,
        *,
        carries_state: bool = False,
        num_rows: int = DEFAULT_ROWS,
    ) -> Scores:
        """Log-probabilities, surprisals and perplexities of a text, with the exact softmax and without dropout.

        Sentences are lists of words without boundaries. Each starts from the zero state, or with `carries_state` from
        the state of the sentence before, as in bilm-tf's test; then `num_rows` rows are read side by side, and 1 reads
        the text in its order. The tokenizer is an `ElmoTokenizer` with the softmax's vocabulary.

        Raises:
            ValueError: if a sentence is a string, or the tokenizer has no vocabulary of predicted words.
        """
        corpus = Corpus.from_sentences(sentences, tokenizer)
        with evaluating(self):
            return score_carried(self, corpus, num_rows) if carries_state else score_from_zero(self, corpus)

    def predict_words(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The words that fit a gap: `elmo_hf.predict_words(model, tokenizer, words, ...)`; needs the package."""
        if importlib.util.find_spec("elmo_hf") is None:
            raise ImportError(f"`predict_words` needs {ELMO_HF}.")
        return importlib.import_module("elmo_hf").predict_words(self, *args, **kwargs)

    @property
    def _shared_weight(self) -> Tensor | None:
        """The word embedding without its padding row, if it is the softmax's matrix too."""
        return self.elmo.get_input_embeddings().weight[1:] if self.config.share_embedding_softmax else None

    def _embed_streams(self, streams: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Word vectors `(B, T, DP)` of all streams, and a mask that is True everywhere."""
        shapes = [tuple(ids.shape) for ids in streams]
        if len(set(shapes)) > 1:
            raise ValueError(
                f"`input_ids` and `backward_input_ids` must have one shape, found {shapes[0]} and {shapes[1]}."
            )
        vectors, mask = self.elmo.embed_words(torch.cat(streams))
        return torch.cat(vectors.chunk(len(streams)), dim=-1), torch.ones_like(mask[: len(streams[0])])

    def _losses(
        self,
        hidden: dict[str, Tensor],
        targets: Sequence[Tensor | None],
        candidates: Sequence[Candidates] | None,
        output_log_probs: bool,
        distance: int,
    ) -> dict[str, Tensor]:
        """Losses, if all directions have targets, and log-probabilities `(B, T)` of the targets, by name.

        Log-probabilities are given `distance` columns from the state: 1 moves them to the word predicted.
        """
        softmax, weight = self.softmax, self._shared_weight
        is_sampled = self.training and self.config.softmax == "sampled"
        output: dict[str, Tensor] = {}
        chosen: dict[str, tuple[Tensor, Tensor]] = {}
        totals: list[Tensor] = []
        for (name, vectors), classes in zip(hidden.items(), targets, strict=False):
            if classes is None:
                continue
            is_predicted = classes != IGNORED
            chosen[name] = vectors[is_predicted], classes[is_predicted].long()
            if output_log_probs:
                log_probs = softmax.log_probs(*chosen[name], weight)
                totals.append(-log_probs.sum())
                log_probs = log_probs.new_zeros(classes.shape).masked_scatter(is_predicted, log_probs)
                output[f"{name}_log_probs"] = log_probs.roll(distance if name == "forward" else -distance, dims=1)
            elif not is_sampled:
                totals.append(softmax(*chosen[name], weight))
        if len(chosen) == len(hidden):
            if is_sampled:
                states, words = ([pair[part] for pair in chosen.values()] for part in (0, 1))
                totals = softmax.sampled(states, words, weight, candidates)
            losses = [total / max(len(classes), 1) for total, (_, classes) in zip(totals, chosen.values(), strict=True)]
            names = [f"{'sampled_' if is_sampled else ''}{name}_loss" for name in chosen]
            output |= dict(zip(names, losses, strict=True)) | {"loss": torch.stack(losses).mean()}
        return output


def _neighbours(labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """For each position the classes `(B, T)` of the word after it and of the word before it, -100 beyond the text."""
    labels = labels.masked_fill(~mask, IGNORED)
    after = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    before = nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED)
    return after.masked_fill(~mask, IGNORED), before.masked_fill(~mask, IGNORED)


def _all_resets(resets: Sequence[Tensor | None], mask: Tensor) -> list[Tensor] | None:
    if all(reset is None for reset in resets):
        return None
    return [torch.zeros_like(mask) if reset is None else reset.bool() for reset in resets]


def _refuse(arguments: dict[str, Tensor | None], way: str) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise ValueError(
            f"`{'`, `'.join(given)}` cannot be given with {way}: sentences take `input_ids`, `attention_mask` and "
            "`labels`; streams take `input_ids`, with two directions `backward_input_ids`, and targets and resets."
        )
