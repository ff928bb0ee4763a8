"""The two language models that pretrain an ELMo (Peters et al. 2018, §3.1).

They share only the token encoder and the softmax. For a sentence w_1 .. w_n with the boundaries w_0 = `<S>` and
w_{n+1} = `</S>` each predicts n+1 words:

    forward    sum_{t=1..n+1} log p(w_t | w_0 .. w_{t-1})
    backward   sum_{t=0..n}   log p(w_t | w_{t+1} .. w_{n+1})
    loss = (mean forward cross-entropy + mean backward cross-entropy) / 2        in nats per prediction
           the forward one's alone in a model of one direction, `bidirectional=False`

The code of a saved folder reads sentences with `labels`, padded and masked, and predicts them by the full softmax. With
the package a model also trains on windows of streams (`windows.py`), which is bilm-tf's training, and with a sampled
softmax (`sampled_softmax.py`), scores texts (`scoring.py`) and fills gaps (`cloze.py`).

Glossary: D directions, B batch, T words, C characters per word, P projection, V words of the softmax.

Deliberate differences from bilm-tf: a sampled loss has a name of its own and never occurs in evaluation. From
AllenNLP's `LanguageModel`: no softmax class for padding.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from ..model.bilm import BiLMState
from ..model.configuration_elmo import ElmoConfig
from ..model.inputs import IGNORED, check_shape
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel, HasState
from ..model.package import part_of_package
from .softmax import WordSoftmax

DIRECTIONS = ("forward", "backward")
# Arguments that make a batch a window of streams.
OF_WINDOWS = ("backward_input_ids", *(f"{name}_{what}" for name in DIRECTIONS for what in ("targets", "resets")))


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
        candidates: Sequence[Any] | None = None,
        output_log_probs: bool = False,
        output_logits: bool = False,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ElmoForPreTrainingOutput:
        """Runs the language models over sentences, or over a window of streams, always in text order.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids for word input; of a window the forward ones.
            attention_mask: `(B, T)`, 1 on words and boundaries, 0 on padding on either side; None derives it.
            labels: of sentences `(B, T)`, the class of the word at each position, boundaries included; -100 for none.
            state: after the batch before; None starts from zeros.
            candidates: for the sampled softmax, the words drawn for each direction; None draws them.
            output_log_probs: whether to return log-probabilities, from the exact softmax.
            output_logits: whether to return logits.
            output_hidden_states: whether to return all layers; None: what the config says.
            **kwargs: the other arguments of a window, which `windows.py` of the package lists: `backward_input_ids`,
                targets and resets. Any others are as in `ElmoModel`.

        Raises:
            ValueError: if labels or targets do not fit the way of calling, or a shape is wrong.
            ImportError: if a window or a sampled loss needs the package and it is not installed.
        """
        window = {name: kwargs[name] for name in OF_WINDOWS if kwargs.get(name) is not None}
        resets: list[Tensor] | None = None
        if window:
            window |= {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
            given = {name: value for name, value in window.items() if value is not None}
            vectors, mask, targets, resets = part_of_package("language_model.windows").read_window(self, given)
        else:
            vectors, mask = self.elmo.embed_words(input_ids, attention_mask)
            targets = _neighbours(labels, mask)
        dropout = self.config.lm_dropout if self.training else 0.0
        layers, next_state = self.elmo.bilm(vectors, mask, state, resets, dropout)
        top = nn.functional.dropout(layers[-1], dropout, training=self.training)
        hidden = dict(zip(DIRECTIONS, top.chunk(self.config.num_directions, dim=-1), strict=False))
        output = self._losses(hidden, targets, candidates, output_log_probs, 0 if window else 1)
        for name, part in hidden.items() if output_logits else ():
            output[f"{name}_logits"] = self.softmax.logits(part, self._shared_weight)
        return ElmoForPreTrainingOutput(
            state_hidden=next_state.hidden.transpose(0, 1),
            state_cell=next_state.cell.transpose(0, 1),
            hidden_states=self.layers_wanted(layers, output_hidden_states),
            **output,
        )

    def score(
        self, sentences: Iterable[Sequence[str]], tokenizer: Any, *, carries_state: bool = False, num_rows: int = 32
    ) -> Any:
        """Log-probabilities, surprisals and perplexities of a text, the package's `Scores`: exact and without dropout.

        Sentences are lists of words without boundaries. Each starts from the zero state, or with `carries_state` from
        the state of the sentence before, as in bilm-tf's test; then `num_rows` rows are read side by side, and 1 reads
        the text in its order. The tokenizer is an `ElmoTokenizer` with the softmax's vocabulary.

        Raises:
            ImportError: if the package is not installed.
            ValueError: if a sentence is a string, or the tokenizer has no vocabulary of predicted words.
        """
        rows = num_rows if carries_state else None
        return part_of_package("language_model.scoring").score(self, sentences, tokenizer, rows)

    def predict_words(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The words that fit a gap: the package's `elmo_hf.predict_words(model, tokenizer, words, ...)`."""
        return part_of_package("language_model.cloze").predict_words(self, *args, **kwargs)

    @property
    def _shared_weight(self) -> Tensor | None:
        """The word embedding without its padding row, if it is the softmax's matrix too."""
        return self.elmo.get_input_embeddings().weight[1:] if self.config.share_embedding_softmax else None

    def _losses(
        self,
        hidden: dict[str, Tensor],
        targets: Sequence[Tensor | None],
        candidates: Sequence[Any] | None,
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
                part = part_of_package("language_model.sampled_softmax")
                sizes = len(softmax.bias), self.config.num_softmax_samples
                candidates = candidates or [part.draw_candidates(*sizes, softmax.bias.device) for _ in hidden]
                states, words = ([pair[which] for pair in chosen.values()] for which in (0, 1))
                totals = part.sampled_losses(softmax, states, words, candidates, weight)
            losses = [total / max(len(classes), 1) for total, (_, classes) in zip(totals, chosen.values(), strict=True)]
            names = [f"{'sampled_' if is_sampled else ''}{name}_loss" for name in chosen]
            output |= dict(zip(names, losses, strict=True)) | {"loss": torch.stack(losses).mean()}
        return output


def _neighbours(labels: Tensor | None, mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """For each position the classes `(B, T)` of the word after it and of the word before it, -100 beyond the text."""
    if labels is None:
        return None, None
    check_shape("labels", labels, mask.shape)
    labels = labels.masked_fill(~mask, IGNORED)
    after = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    before = nn.functional.pad(labels[:, :-1], (1, 0), value=IGNORED)
    return after.masked_fill(~mask, IGNORED), before.masked_fill(~mask, IGNORED)
