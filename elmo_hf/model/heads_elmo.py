# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""ELMo in a task (Peters et al. 2018, §3.3): the task's encoder, and the models of three tasks.

    ids -> biLM -> layers -> mixes -> representations -> task encoder -> word vectors -> the task's classifier

From top to bottom: the words of a batch as one row for each text, the encoder, what the models share, the CRF, and the
models that classify texts, label words and answer questions. Each section has the equations and the glossary that it
needs.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import TextClassificationPipeline, TokenClassificationPipeline
from transformers import initialization as init
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils import ModelOutput, logging

from .configuration_elmo import ELMO_HF, ElmoConfig, require
from .layers_elmo import (
    IGNORED,
    LOGIT_OF_ZERO,
    POOLINGS,
    check_range,
    check_shape,
    checked_words,
    may_depend_on,
    may_look_at,
    refuse_numbers,
)
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel, can_return_tuple
from .scan_elmo import (
    State,
    Stepped,
    autocast_dtype,
    breaks_compiled_graphs,
    has_transforms,
    is_exporting,
    lstm,
    scan_words,
)

logger = logging.get_logger(__name__)

# ---- Texts as rows ---------------------------------------------------------------------------------------------------
#
# Takes the words of each text from a batch, and puts vectors back in their positions.
#
# A batch row may hold padding, boundaries and a pair of texts; the layers after the biLM see words only:
#
#     row      <pad> <S> a_1 a_2 </S> <S> b_1 </S>
#     texts    a_1 a_2
#              b_1
#
# Glossary: B batch, T positions of a row, N texts (all first texts, then all second texts), W words of the longest
# text.


class TextRows:
    """Moves values between batch rows and texts; `mask` `(N, W)` is True on words, which come first; W > 0 if T > 0."""

    def __init__(self, masks: Sequence[Tensor]) -> None:
        """Takes a mask `(B, T)` of the words of each row's first text, and one of its second text."""
        mask = torch.cat(list(masks))
        # A stable sort that moves words to the front, from operations that every exporter supports.
        places_of_words = mask.cumsum(dim=1)
        places_of_others = mask.sum(dim=1, keepdim=True) + (~mask).cumsum(dim=1)
        place = torch.where(mask, places_of_words, places_of_others) - 1
        positions = torch.arange(mask.shape[1], device=mask.device).expand_as(place)
        order = torch.zeros_like(place).scatter(1, place, positions)
        if may_depend_on(mask) and len(mask) > 0:
            # Cuts to the longest text.
            order = order[:, : max(int(mask.sum(dim=1).max()), 1)]
        self.masks = masks
        self.batch_size, self.num_positions = masks[0].shape
        self.mask = mask.gather(1, order)
        self._order = order
        self._rows = torch.arange(self.batch_size, device=mask.device).repeat(len(masks)).unsqueeze(1)

    def take(self, values: Tensor) -> Tensor:
        """Maps `(B, T, ...)` to `(N, W, ...)`; values outside the mask are arbitrary."""
        return values[self._rows, self._order]

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Splits `(N, ...)` into `(B, ...)` for the first texts and `(B, ...)` for the second."""
        return values.unflatten(0, (len(self.masks), self.batch_size)).unbind()

    def put_back(self, values: Tensor) -> Tensor:
        """Maps `(N, W, ...)` to `(B, T, ...)`, zero outside words."""
        trailing = [1] * (values.dim() - 2)
        index = self._order.view(*self._order.shape, *trailing).expand_as(values)
        words = values.masked_fill(~self.mask.view(*self.mask.shape, *trailing), 0)
        rows = words.new_zeros(words.shape[0], self.num_positions, *values.shape[2:]).scatter(1, index, words)
        # Each position belongs to at most one text.
        return torch.stack(self.split(rows)).sum(dim=0)


def reverse_words(values: Tensor, mask: Tensor) -> Tensor:
    """Reverses the words of each text: `values` `(N, W, D)`, `mask` `(N, W)`; values after the words are arbitrary."""
    places = mask.sum(dim=1, keepdim=True) - 1 - torch.arange(mask.shape[1], device=mask.device)
    return values.gather(1, places.clamp(min=0).unsqueeze(-1).expand_as(values))


# ---- The task's encoder ----------------------------------------------------------------------------------------------
#
# The layers between ELMo and a task's classifier (Peters et al. 2018, §3.3).
#
# The paper adds ELMo to the input and the output of a task's recurrent network, each time with its own scalar mix.
#
#     none    e_t = [ELMo_t; ELMo'_t], or [x_t; ELMo_t; ELMo'_t] if x is the task's own
#     lstm    e_t = [LSTM([x_t; ELMo_t]) in both directions; ELMo'_t]
#
# With `mark_size`, [m_t; ELMo_t] replaces ELMo_t; m_t is one of two learned vectors, for words with mark 0 and 1. If
# the mark shows the predicate, labels of words can be semantic roles (He et al. 2017).
#
# Glossary: x word vector, P wide, or X wide if it comes from the task's own table, ELMo the first representation (2P),
# ELMo' the R - 1 further ones side by side, where R is `num_output_representations`, e the classifier's input (D), N
# texts, W words of the longest text, P projection, S cell of each direction of the task's LSTM (`task_hidden_size`).
# Texts are rows of `TextRows`: words first, then padding, no boundaries.
#
# Deliberate difference from the paper's models: with `word_vectors` in the config, x is a row of the task's own table,
# as in the paper; without, x is the first P numbers of layer 0. They are the biLM's own context-free vector, unless
# layer 0 is one of `aligned_layers`, whose matrix has then mixed its two copies.


class LSTM(nn.LSTM):
    """`nn.LSTM` of one direction, from a state of zeros; compiled graphs break here."""

    @breaks_compiled_graphs
    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        """Maps `(N, W, input_size)` to `(N, W, S)`; word by word in a graph that is being exported."""
        # torch chooses the LSTM before autocast casts. For float32 inputs it chooses oneDNN's, which then gets bfloat16
        # and fails where the processor has no bfloat16 products. So we cast first.
        dtype = autocast_dtype(inputs.device.type)
        if dtype is not None:
            inputs = inputs.to(dtype)
        if inputs.shape[1] == 0:  # torch's LSTM refuses it
            return inputs.new_zeros(inputs.shape[0], 0, self.hidden_size)
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(self, name).to(inputs.dtype) for name in names]
        zeros = inputs.new_zeros(inputs.shape[0], self.hidden_size)
        if not is_exporting() and not has_transforms():  # `torch.func` knows no rule for torch's LSTM
            outputs = lstm(inputs, [zeros[None], zeros[None]], weights)
            if outputs is not None:
                return outputs
        input_weight, recurrent_weight, input_bias, recurrent_bias = weights

        def step(state: State, word: State) -> Stepped:
            hidden, cell = state
            gates = word[0] + nn.functional.linear(hidden, recurrent_weight, recurrent_bias)
            input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
            cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            return (hidden, cell), hidden

        gate_inputs = nn.functional.linear(inputs, input_weight, input_bias).transpose(0, 1)
        _, outputs = scan_words(step, (zeros, zeros), (gate_inputs,))
        return outputs.transpose(0, 1)


class BiLSTM(nn.Module):
    """A bidirectional LSTM over texts of different lengths; gates and weights are torch's."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        """Takes the input size and S."""
        super().__init__()
        self.forward_lstm = LSTM(input_size, hidden_size, batch_first=True)
        self.backward_lstm = LSTM(input_size, hidden_size, batch_first=True)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Maps `(N, W, input_size)` to `(N, W, 2S)`, forward half first, zero where `mask` `(N, W)` is False."""
        # Padding follows the words in both directions, so no word depends on it.
        forward = self.forward_lstm(inputs)
        backward = self.backward_lstm(reverse_words(inputs, mask))
        both = torch.cat([forward, reverse_words(backward, mask)], dim=-1)
        return both.masked_fill(~mask.unsqueeze(-1), 0)


class TaskEncoder(nn.Module):
    """Makes the word vectors for a task's classifier, of `output_size` D."""

    def __init__(self, config: ElmoConfig) -> None:
        """Builds the encoder that `task_encoder` of the config names."""
        super().__init__()
        self.word_vector_size = 0
        if config.word_vectors is not None:
            self.word_vector_size = config.word_vectors["size"]
        elmo_size = config.num_directions * config.projection_size
        mark_size = config.mark_size or 0
        if mark_size > 0:
            self.mark_vectors = nn.Embedding(2, mark_size)
        self.lstm: BiLSTM | None = None
        if config.task_encoder == "lstm":
            token_size = config.projection_size if config.word_vectors is None else self.word_vector_size
            self.lstm = BiLSTM(token_size + mark_size + elmo_size, config.task_hidden_size)
            feature_size = 2 * config.task_hidden_size
        else:
            feature_size = self.word_vector_size + mark_size + elmo_size
        self.output_size = feature_size + (config.num_output_representations - 1) * elmo_size

    def forward(
        self, token_vectors: Tensor, representations: Sequence[Tensor], mask: Tensor, marks: Tensor | None = None
    ) -> Tensor:
        """Maps x `(N, W, P or X)`, representations `(N, W, 2P)` and `mask` `(N, W)` to e.

        Where `mask` is False, e is arbitrary.
        `marks` `(N, W)`, 0 or 1 where `mask` is True, are given if the config has `mark_size`.
        """
        features = representations[0]
        if marks is not None:
            features = torch.cat([self.mark_vectors(marks.long() * mask), features], dim=-1)
        if self.lstm is not None or self.word_vector_size > 0:  # otherwise x is of layer 0, which ELMo contains
            features = torch.cat([token_vectors, features], dim=-1)
        if self.lstm is not None:
            features = self.lstm(features, mask)
        return torch.cat([features, *representations[1:]], dim=-1)


def compare(first: Tensor, second: Tensor) -> Tensor:
    """Maps u and v `(..., D)` to [u; v; |u - v|; u * v] `(..., 4D)`."""
    return torch.cat([first, second, (first - second).abs(), first * second], dim=-1)


# ---- What task models share ------------------------------------------------------------------------------------------
#
# The shared part of all models for a task: a biLM, frozen in part or whole, its mixes, and the task's encoder.
#
#     ids -> biLM -> layers -> mixes -> representations -> task encoder -> word vectors -> the task's classifier
#
# Freezing is `requires_grad=False` only: autograd stores nothing below the first parameter that learns, and an
# adapter in a frozen layer still gets its gradient. Task models run the biLM without dropout, so its layers are the
# same in training and evaluation. A frozen biLM's layers can be computed once and passed as `bilm_layers`, as
# `feature_cache.py` of the package does.
#
# Glossary: B batch, T positions of a row, boundaries and padding included, C characters per word, P projection,
# L layers, N texts, W words of the longest text, D width of an encoded word.
#
# Deliberate difference from other models of transformers: the biLM reads the two texts of a pair separately, each
# from the zero state. For pipelines, collators and `datasets` both texts are one row `<S> a </S> <S> b </S>`, which
# the model splits at each `<S>`.


class EncodedTexts(NamedTuple):
    """The words of a batch, ready for a classifier: their vectors and places, and the biLM's L+1 layers."""

    vectors: Tensor  # (N, W, D), arbitrary after a text's last word
    rows: TextRows
    layers: tuple[Tensor, ...]  # (B, T, 2P) each
    is_first: Tensor  # (B, T), True at each row's first position that is not padding: `<S>`, if there are boundaries


class ElmoTaskModel(ElmoPreTrainedModel):
    """A biLM with mixes and an encoder.

    A subclass adds the classifier, calls `post_init`, and has `classify` and `output_class`, or its own `forward`.
    """

    # From a pretraining checkpoint.
    _keys_to_ignore_on_load_unexpected = [r"^softmax\."]
    num_texts = 1  # per row
    has_said_what_learns = False
    advice_on_pairs = ""  # ends the error for a row that holds a pair where the model takes one text
    output_class: type[ModelOutput]

    def __init__(self, config: ElmoConfig) -> None:
        """Initialises `elmo` and `task_encoder`."""
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.task_encoder = TaskEncoder(config)
        self.word_vectors = None
        if config.word_vectors is not None:
            num_rows = config.word_vectors["num_words"] + 1  # row 0 is padding
            self.word_vectors = nn.Embedding(num_rows, config.word_vectors["size"], padding_idx=0)

    def post_init(self) -> None:
        """Initialises weights, and freezes the parts that the config names."""
        super().post_init()
        self.set_trainable_parts()

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """As in `ElmoPreTrainedModel`, with `num_texts` texts in each row, and all inputs that the config asks for."""
        ids = torch.cat([self._dummy_texts()] * self.num_texts, dim=1)
        inputs = {"input_ids": ids}
        if self.config.word_vectors is not None:
            inputs["word_vector_ids"] = ids.new_ones(ids.shape[:2])
        if self.config.mark_size is not None:
            inputs["marks"] = ids.new_zeros(ids.shape[:2])
        return inputs

    def set_trainable_parts(self) -> None:
        """Sets `requires_grad` of mixes, word vectors and each part of the biLM from the config."""
        super().set_trainable_parts()
        if self.word_vectors is not None:
            self.word_vectors.requires_grad_(self.config.word_vectors["trainable"])
        modules = [self.elmo.token_encoder, *self.elmo.bilm.layers]
        for name, module in zip(self.config.bilm_parts, modules, strict=True):
            module.requires_grad_(name not in self.config.frozen_parts)

    def train(self, mode: bool = True) -> "ElmoTaskModel":
        """Switches to training or evaluation; before the first training, logs what learns if the biLM does not."""
        if mode and not self.has_said_what_learns:
            self.has_said_what_learns = True
            self._say_what_learns()
        return super().train(mode)

    def _say_what_learns(self) -> None:
        bilm = [*self.elmo.token_encoder.parameters(), *self.elmo.bilm.parameters()]
        num_learned = sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
        is_frozen = not any(parameter.requires_grad for parameter in bilm)
        if is_frozen and num_learned > 0:
            logger.warning(
                f"The biLM is frozen, so {num_learned:,} of {self.num_parameters():,} numbers learn. A usual learning "
                "rate for them is 1e-3; at BERT's, such as 5e-5, they hardly move. With `freeze_bilm=False` all learn."
            )

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves the model; the saved config has no softmax of a language model, which is not saved."""
        num_softmax_words = self.config.num_softmax_words
        share_embedding_softmax = self.config.share_embedding_softmax
        self.config.num_softmax_words = None
        self.config.share_embedding_softmax = False
        try:
            super().save_pretrained(save_directory, **kwargs)
        finally:
            self.config.num_softmax_words = num_softmax_words
            self.config.share_embedding_softmax = share_embedding_softmax

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        word_vector_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        marks: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the task's model on a batch.

        Args:
            input_ids: `(B, T, C)` character ids, or `(B, T)` word ids, with `num_texts` texts in each row.
            attention_mask: `(B, T)`, 1 on words and boundaries; None means every position with an id above 0.
            bilm_layers: `(B, T, L+1, 2P)`, the biLM's layers for these rows, if already computed.
            labels: the task's labels, which add a `loss` to the output; see `classify` of the class.
            output_hidden_states: whether to return the biLM's layers, `(B, T, 2P)` each, as `hidden_states`.
            word_vector_ids: `(B, T)`, the index of each word's vector, if the config has `word_vectors`.
            inputs_embeds: in place of `input_ids`, as in `ElmoModel`; every position of the mask is then a word.
            marks: `(B, T)`, 0 or 1 at each word and any number elsewhere, if the config has `mark_size`.
            **kwargs: as in `ElmoModel`.

        Raises:
            TypeError: if ids are not integers.
            ValueError: as in `encode_texts` and `classify`.
        """
        texts = self.encode_texts(input_ids, attention_mask, bilm_layers, inputs_embeds, word_vector_ids, marks)
        loss, logits = self.classify(texts, labels, **kwargs)
        layers = self.layers_wanted(texts.layers, output_hidden_states)
        return self.output_class(loss=loss, logits=logits, hidden_states=layers)

    @torch.no_grad()
    def compute_bilm_layers(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> Tensor:
        """The biLM's layers `(B, T, L+1, 2P)`, to pass as `bilm_layers` with the same ids and mask."""
        ids, mask = checked_words(input_ids, attention_mask, self.config)
        texts = self._texts(ids, mask)
        layers = self._run_bilm(self.elmo.embed_ids(ids, mask), mask, texts)
        return torch.stack(layers, dim=2)

    def _run_bilm(self, embeddings: Tensor, mask: Tensor, texts: list[Tensor]) -> list[Tensor]:
        """The L+1 layers `(B, T, 2P)` over embeddings `(B, T, P)`; it reads each text alone, from the zero state.

        `mask` `(B, T)` is True on words and boundaries; each mask in `texts` is True on one text of each row.
        """
        if len(texts) == 1:
            return self.elmo.bilm(embeddings, mask)[0]
        rows = TextRows(texts)
        layers, _ = self.elmo.bilm(rows.take(embeddings), rows.mask)
        return [rows.put_back(layer) for layer in layers]

    def encode_texts(
        self,
        input_ids: Any,
        attention_mask: Tensor | None,
        bilm_layers: Tensor | None,
        inputs_embeds: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        marks: Tensor | None = None,
    ) -> EncodedTexts:
        """Encodes the words of a batch; the arguments are those of `forward`.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if both or neither of `input_ids` and `inputs_embeds` are given, if a shape is wrong, if a row
                does not have `num_texts` texts, if `marks` are given without `mark_size`, or if `bilm_layers` are
                given although the biLM learns.
        """
        if inputs_embeds is None:
            ids, mask = checked_words(input_ids, attention_mask, self.config)
            texts = self._texts(ids, mask)
            is_word = ~self.elmo.boundaries(ids)
        else:
            require(input_ids is None, "input_ids", "None with `inputs_embeds`", input_ids)
            require(self.num_texts == 1, "inputs_embeds", "None for pairs, which only ids tell apart", "a tensor")
            embeddings, mask = self.elmo.embed_embeds(inputs_embeds, attention_mask)
            texts = [mask]
            is_word = mask
        if self.config.mark_size is not None:
            check_shape("marks", marks, mask.shape)
        require(marks is None or self.config.mark_size is not None, "marks", "None without `mark_size`", "a tensor")
        if bilm_layers is None:
            if inputs_embeds is None:
                embeddings = self.elmo.embed_ids(ids, mask)
            layers = self._run_bilm(embeddings, mask, texts)
        else:
            shape = (*mask.shape, self.config.num_hidden_layers + 1, self.config.hidden_size)
            check_shape("bilm_layers", bilm_layers, shape)
            if self.training and self.config.frozen_parts != self.config.bilm_parts:
                raise ValueError(
                    "`bilm_layers` were computed once and cannot follow a biLM that learns; train with "
                    f"`freeze_bilm=True`, found {self.config.freeze_bilm!r}, or leave them out."
                )
            layers = list(bilm_layers.to(self.dtype).unbind(dim=2))
        representations = self.elmo.mix(layers, mask)
        rows = TextRows([text & is_word for text in texts])
        vectors = self.task_encoder(
            rows.take(self.token_vectors(word_vector_ids, layers, mask)),
            [rows.take(representation) for representation in representations],
            rows.mask,
            None if marks is None else rows.take(marks),
        )
        is_first = mask & (mask.cumsum(dim=1) == 1)
        return EncodedTexts(vectors, rows, tuple(layers), is_first)

    def token_vectors(self, word_vector_ids: Any, layers: list[Tensor], mask: Tensor) -> Tensor:
        """The task encoder's x `(B, T, ...)`: its own vectors with dropout, or the first P numbers of layer 0."""
        if self.word_vectors is None:
            return layers[0][..., : self.config.projection_size]
        check_shape("word_vector_ids", word_vector_ids, mask.shape)
        return self.elmo.dropout(self.word_vectors(word_vector_ids))

    def mix_penalty(self) -> Tensor | float:
        """The `scalar_mix_l2` term of the loss; 0 in evaluation and for frozen mixes."""
        if not self.training or self.config.scalar_mix_l2 == 0:
            return 0.0
        mixes = [mix for mix in self.scalar_mixes_of_all() if mix.logits.requires_grad]
        return self.config.scalar_mix_l2 * sum(mix.penalty() for mix in mixes)

    def _texts(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """A mask `(B, T)` of each row's first text with its boundaries, and one of its second text."""
        is_begin = self.elmo.begins(ids) & mask
        # On a GPU too, although Python waits for it: one text too many would be left out in silence.
        if may_depend_on(is_begin):
            self._refuse_wrong_texts(is_begin.sum(dim=1))
        text = is_begin.cumsum(dim=1).clamp(min=1)  # 1 in the first text, 2 in the second
        return [mask & (text == number) for number in range(1, self.num_texts + 1)]

    def _refuse_wrong_texts(self, num_begins: Tensor) -> None:
        """Raises ValueError unless each row has `num_texts` texts; `num_begins` `(B,)` counts their beginnings."""
        if self.num_texts == 1:
            expected = "one text"
            is_wrong = num_begins > 1  # without boundaries a row is one text
        else:
            expected = "a pair of texts, `tokenizer(text, text_pair)`"
            is_wrong = num_begins != self.num_texts
        wrong_rows = is_wrong.nonzero().flatten().tolist()
        if wrong_rows:
            row = wrong_rows[0]
            count = int(num_begins[row])
            begin = "<bos>" if self.config.alphabet == "code_points" else "<S>"
            raise ValueError(
                f"each row of `input_ids` must hold {expected}, found {count} `{begin}` in row {row}."
                f"{self._advice_on_begins(count, begin)}"
            )

    def _advice_on_begins(self, count: int, begin: str) -> str:
        """What to do about a row in which the boundary `begin` occurs `count` times, not once for each text."""
        if count < self.num_texts:
            return ""
        advice = f" A word `{begin}` in a text is a boundary too; spell it differently."
        if self.num_texts == 1:
            advice += self.advice_on_pairs
        return advice


# ---- The linear-chain CRF --------------------------------------------------------------------------------------------
#
# A linear-chain conditional random field over the labels of a text (Lafferty et al. 2001; Lample et al. 2016).
#
#     score(y) = start[y_1] + sum_t e_t[y_t] + sum_t transitions[y_{t-1}, y_t] + end[y_W]
#     log Z    = log sum_y exp score(y)                            by messages from left to right
#     loss     = log Z - log Z over the y that agree with the known labels
#
#     m_1     = start           m_{t+1}[k] = log sum_j exp(alpha_t[j] + transitions[j, k]),    alpha_t = m_t + e_t
#     beta_W  = end             beta_t[j] = log sum_k exp(transitions[j, k] + e_{t+1}[k] + beta_{t+1}[k])
#     log p(y_t = k) = alpha_t[k] + beta_t[k] - log Z
#
# With labels named in the IOB2 scheme, `I-X` may follow only `B-X` and `I-X`; every other transition to `I-X` has
# probability 0.
#
# Glossary: N texts, W words of the longest text, K labels; e emissions `(N, W, K)`, one score for each word and label.
# Words come first in their row, and padding leaves messages unchanged.
#
# Deliberate differences from common implementations: the loss sums over unknown labels (-100), so it is exact for
# partly labelled texts; illegal transitions are masked on use, so weight decay cannot make them possible again.


class LinearChainCRF(nn.Module):
    """Scores label sequences by `transitions` `(K, K)`, from row to column, `start` `(K,)` and `end` `(K,)`.

    Compiled graphs break at its methods, because their loops over words would need a graph for each length. An exported
    graph holds them, but not with `strict=True`.
    """

    def __init__(self, labels: list[str]) -> None:
        """Takes the names of the K labels."""
        super().__init__()
        self.labels = labels
        self.transitions = nn.Parameter(torch.zeros(len(labels), len(labels)))
        self.start = nn.Parameter(torch.zeros(len(labels)))
        self.end = nn.Parameter(torch.zeros(len(labels)))
        self._impossible_rows: list[list[bool]] | None = None  # not made yet

    @property
    def _impossible(self) -> list[list[bool]]:
        """Like `transitions`, with a last row for the beginning of a text.

        Made on first use: a model on the meta device, made only to check shapes, must not hold K² entries. A list,
        because loading loses a tensor that is neither a parameter nor a persistent buffer.
        """
        if self._impossible_rows is None:
            names = frozenset(self.labels)
            self._impossible_rows = []
            for first in [*self.labels, "O"]:
                self._impossible_rows.append([not may_follow(first, second, names) for second in self.labels])
        return self._impossible_rows

    def init_parameters(self) -> None:
        """Starts from zeros."""
        for parameter in self.parameters():
            init.zeros_(parameter)

    @breaks_compiled_graphs
    def loss(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Negative log-likelihood, summed over texts, in float32 at least.

        `labels` are `(N, W)`, -100 where unknown; `mask` `(N, W)` is True on words, which come first in each row.

        Raises:
            ValueError: if there is no such label, or if it may not follow the one before it.
        """
        if mask.shape[1] == 0:
            return _wide(emissions).sum()  # 0, with a gradient
        is_known = mask & (labels != IGNORED)
        labels = labels.masked_fill(~is_known, 0).long()
        agrees = labels.unsqueeze(-1) == torch.arange(len(self.labels), device=labels.device)
        self._refuse_illegal(labels, is_known)
        emissions = _wide(emissions)
        agreeing = emissions.masked_fill(~agrees & is_known.unsqueeze(-1), LOGIT_OF_ZERO)
        both = torch.cat([emissions, agreeing])
        log_of_all, log_of_agreeing = self.log_partition(both, torch.cat([mask, mask])).chunk(2)
        return (log_of_all - log_of_agreeing).sum()

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Maps emissions `(N, W, K)` to log Z `(N,)`, 0 for a text without words."""
        emissions, transitions, start, end = self._scores(emissions)
        alphas = _alphas(emissions, mask, transitions, start)
        return (alphas[:, -1] + end).logsumexp(dim=-1).masked_fill(~mask[:, 0], 0)

    @breaks_compiled_graphs
    def log_marginals(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Maps emissions `(N, W, K)` to log p(y_t = k) `(N, W, K)`, arbitrary on padding."""
        emissions, transitions, start, end = self._scores(emissions)

        def step(state: State, word: State) -> Stepped:
            (beta,) = state
            emission, is_word = word
            previous_beta = (transitions + (emission + beta).unsqueeze(1)).logsumexp(dim=2)
            return (torch.where(is_word, previous_beta, beta),), beta

        ends = end.expand_as(emissions[:, 0])
        _, betas = scan_words(step, (ends,), _by_word(emissions, mask), reverse=True)
        alphas = _alphas(emissions, mask, transitions, start)
        return (alphas + betas.transpose(0, 1)).log_softmax(dim=-1)

    @torch.no_grad()
    @breaks_compiled_graphs
    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Maps emissions `(N, W, K)` to each text's best labels `(N, W)` (Viterbi), arbitrary on padding."""
        emissions, transitions, start, end = self._scores(emissions)
        stay = torch.arange(len(start), device=mask.device)

        # `origin` is the best label before each label of the next word. After the last word each label points to
        # itself, so that going back over padding keeps the last label.
        def step(state: State, word: State) -> Stepped:
            message, best = state
            emission, is_word, has_next = word
            best = torch.where(is_word, message + emission, best)
            message, origin = (best.unsqueeze(2) + transitions).max(dim=1)
            return (message, best), torch.where(has_next, origin, stay)

        def step_back(state: State, word: State) -> Stepped:
            (next_label,) = state
            (origin,) = word
            label = origin.gather(1, next_label)
            return (label,), label.squeeze(1)

        has_next = mask.cumsum(dim=1) < mask.sum(dim=1, keepdim=True)
        words = (*_by_word(emissions, mask), has_next.t().unsqueeze(-1))
        # `best` is written at the first word, so any numbers of its shape may stand there before.
        starts = start.expand_as(emissions[:, 0])
        (_, best), origins = scan_words(step, (starts, starts), words)
        last = (best + end).argmax(dim=-1, keepdim=True)
        _, labels = scan_words(step_back, (last,), (origins,), reverse=True)
        return labels.t()

    def _scores(self, emissions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Emissions, transitions, start and end in float32 at least, with illegal transitions impossible."""
        impossible = torch.tensor(self._impossible, device=emissions.device)
        transitions = _wide(self.transitions).masked_fill(impossible[:-1], LOGIT_OF_ZERO)
        start = _wide(self.start).masked_fill(impossible[-1], LOGIT_OF_ZERO)
        return _wide(emissions), transitions, start, _wide(self.end)

    def _refuse_illegal(self, labels: Tensor, is_known: Tensor) -> None:
        """Raises ValueError if there is no such label `(N, W)`, or a known one may not follow the one before it."""
        # On a GPU too, although Python waits for it: a wrong label would only make the loss very large.
        if not may_depend_on(labels):
            return
        check_range("labels", labels, len(self.labels) - 1)
        # The label before each word: K for the beginning of the text; after an unknown label, any may follow.
        before = nn.functional.pad(labels[:, :-1], (1, 0), value=len(self.labels))
        is_known = is_known & nn.functional.pad(is_known[:, :-1], (1, 0), value=True)
        impossible = torch.tensor(self._impossible, device=labels.device)[before, labels] & is_known
        illegal_places = impossible.nonzero().tolist()
        if illegal_places:
            text, word = illegal_places[0]
            names = [*self.labels, "the beginning of a text"]
            label = names[labels[text, word]]
            previous = names[before[text, word]]
            raise ValueError(
                f"label {label!r} cannot follow {previous!r}, found at word {word} of text {text}; with a CRF an "
                "entity begins with B-: `elmo_hf.tasks.label_schemes.to_iob2` converts the labels of other schemes, in "
                f"{ELMO_HF}."
            )


def _alphas(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor) -> Tensor:
    """Alphas `(N, W, K)`."""

    def step(state: State, word: State) -> Stepped:
        message, alpha = state
        emission, is_word = word
        alpha = torch.where(is_word, message + emission, alpha)
        return ((alpha.unsqueeze(2) + transitions).logsumexp(dim=1), alpha), alpha

    # `alpha` is written at the first word, so any numbers of its shape may stand there before.
    starts = start.expand_as(emissions[:, 0])
    _, alphas = scan_words(step, (starts, starts), _by_word(emissions, mask))
    return alphas.transpose(0, 1)


def may_follow(first: str, second: str, labels: Collection[str]) -> bool:
    """Whether IOB2 allows label `second` after `first` ("O" before a text); if no label is `B-X`, `I-X` is free."""
    prefix, _, kind = second.partition("-")
    is_inner = prefix == "I" and f"B-{kind}" in labels
    return not is_inner or first in (f"B-{kind}", f"I-{kind}")


def _by_word(emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions `(W, N, K)` and mask `(W, N, 1)`."""
    return emissions.transpose(0, 1), mask.t().unsqueeze(-1)


def _wide(tensor: Tensor) -> Tensor:
    """The tensor in float32 at least."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


# ---- Classification of texts -----------------------------------------------------------------------------------------
#
# Classifies texts or pairs of texts, or maps them to numbers.
#
#     u      = pool(e_1 .. e_W)                       over a text's words without boundaries; zero if there are none
#     logits = A u + b                                one text
#     logits = A [u; v; |u - v|; u * v] + b           a pair of texts; * multiplies element by element
#
#     mean, max  as in `layers_elmo.py`
#     attention  sum_t a_t e_t,  a = softmax_t(q . e_t)    with a learned query q
#
# Glossary: A and b the classifier's weights, B batch, T positions of a row, N texts, W words of the longest text, D
# width of an encoded word.
#
# Deliberate difference from other models of transformers: the biLM reads the texts of a pair separately, because it was
# not trained on joined texts, and the classifier compares them (Conneau et al. 2017).


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
            return POOLINGS[self.pooling](vectors, mask)
        mask = mask.unsqueeze(-1)
        scores = self.query(vectors)
        # Under autocast the scores have another dtype than the vectors, so the lowest number is that of the scores.
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=1)
        return (weights * vectors.masked_fill(~mask, 0)).sum(dim=1)


# The name in the configs of folders that an earlier version saved.
ElmoTextClassificationPipeline = TextClassificationPipeline


class ElmoForSequenceClassification(ElmoTaskModel):
    """Classifies texts, or pairs with `text_pairs`; labels and losses are as in every transformers model."""

    advice_on_pairs = (
        " For pairs of texts, make the classifier with `text_pairs=True`, an argument of `from_pretrained` and a field "
        "of config.json."
    )
    output_class = SequenceClassifierOutput
    pipelines = {"text-classification": (TextClassificationPipeline, "AutoModelForSequenceClassification")}

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

        Raises:
            ValueError: if a multi-label label is not from 0.0 to 1.0.
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
        # After the loss, because transformers sets `problem_type` there.
        if self.config.problem_type == "multi_label_classification" and may_look_at(labels):
            illegal_labels = labels[(labels < 0) | (labels > 1)]
            refuse_numbers("labels", "from 0.0 to 1.0 in multi-label classification", illegal_labels)
        return loss + self.mix_penalty(), logits


# ---- Labels of words -------------------------------------------------------------------------------------------------
#
# Labels each word, with or without a CRF over the labels of a text.
#
#     e_t = A v_t + b                                      one score for each label
#     without a CRF   loss = mean_t -log softmax(e_t)[y_t]
#     with a CRF      loss = sum over texts of -log p(y), divided by the number of labels in the batch
#
# Labels align with `input_ids`, as the usual collator makes them: one for each word, and -100 on boundaries and
# padding.
#
# Glossary: v encoded word (`EncodedTexts`), A and b the classifier's weights, p probability of a text's whole sequence
# of labels (`LinearChainCRF`), B batch, T positions of a row, N texts, W words of the longest text, K labels.
#
# Deliberate differences: transformers' pipeline expects parts of words with one id each; ours reads whole words with
# a row of character ids each, and takes the word's text from its offsets. Unlike in other models with a CRF, `logits`
# in evaluation are the CRF's log p(y_t = k), with the label of the best sequence raised to the top. So pipelines and
# metrics work without changes: the argmax is the best sequence, and the softmax is a probability.

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
            start = int(offset_mapping[index][0])
            end = int(offset_mapping[index][1])
            if word_ids is not None and word_to_chars_map is not None:
                shift = word_to_chars_map[word_ids[index]][0]  # type: ignore[index]
                start += shift
                end += shift
            entry = {
                "word": sentence[start:end],
                "scores": scores[index],
                "start": start,
                "end": end,
                "index": index,
                "is_subword": False,
            }
            entries.append(entry)
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

        `labels` are `(B, T)`, -100 to ignore a position; a CRF sums over all labels of such words. If all labels are
        -100, the loss is 0. The Trainer passes `num_items_in_batch`, the number of labels by which to divide the loss.

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
        """The loss `()` of emissions `(N, W, K)` and labels `(N, W)`, with the penalty; `num_items` divides it."""
        labels = labels.masked_fill(~mask, IGNORED)
        num_labels = (labels != IGNORED).sum()
        divisor = num_labels if num_items is None else torch.as_tensor(num_items, device=labels.device)
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
        raised = torch.maximum(marginals.gather(-1, best), others + MARGIN)
        return marginals.scatter(-1, best, raised)


# ---- Answers to questions --------------------------------------------------------------------------------------------
#
# Finds the answer to a question as a span of words in a context, or that the context has none.
#
#     q_j, c_i    encoded words of the question and the context, which the biLM reads separately
#     s_ij        = w_q . q_j + w_qc . (q_j * c_i)                         Seo et al. (2017), equation 1
#     a_i         = sum_j softmax_j(s_ij) q_j                              the question, weighted for word i
#     g_i         = [c_i; a_i; |c_i - a_i|; c_i * a_i]                     * multiplies element by element
#     start, end  = W m_i + b,    m = LSTM(g) in both directions with `task_encoder="lstm"`, else g
#     start_0     = end_0 = 0                                              no answer, at the first `<S>` of the row
#     loss        = (-log softmax(start)[first word] - log softmax(end)[last word]) / 2       mean over questions
#     null odds   = start_0 + end_0 - max (start_i + end_j)                over all spans i <= j < i + max_answer_words
#
# The answer is the span with the largest start_i + end_j. Each softmax runs over the words of the context and "no
# answer". "No answer" has the fixed logit 0 and all others contain b, so learning b is learning the logit -b for "no
# answer", which Levy et al. (2017) append to the logits of BiDAF.
#
# Glossary: B batch, T positions of a row, Q words of the longest question or context, D width of an encoded word.
#
# Deliberate differences from the paper's BiDAF: attention goes from context to question only, without the term for c_i
# alone, which would cancel in the softmax; start and end are predicted in the same way.
#
# Deliberate differences from other models of transformers: outside the context, only the first `<S>` has a logit, and
# all others are the lowest number; the loss refuses a label before the context; it leaves out -100 (other models take
# position 0 for it), and any label after the context (others score it if it is inside the row).

# The lowest number of the narrowest type: a logit that is not above it masks a position.
LOWEST = torch.finfo(torch.float16).min


class QuestionAttention(nn.Module):
    """Attends from each word of the context to the question."""

    def __init__(self, size: int) -> None:
        """Takes the vectors' size D."""
        super().__init__()
        self.question = nn.Linear(size, 1, bias=False)
        self.product = nn.Linear(size, 1, bias=False)

    def forward(self, context: Tensor, question: Tensor, question_mask: Tensor) -> Tensor:
        """Maps contexts and questions `(B, Q, D)` with mask `(B, Q)` to a_i `(B, Q, D)`, zero for an empty question."""
        product = (context * self.product.weight) @ question.transpose(1, 2)  # (B, Q, Q): context by question
        similarity = product + self.question(question).transpose(1, 2)
        weights = similarity.masked_fill(~question_mask.unsqueeze(1), torch.finfo(similarity.dtype).min).softmax(dim=-1)
        return weights @ question.masked_fill(~question_mask.unsqueeze(-1), 0)


class Answer(NamedTuple):
    """A span `context[start:end]`; `score` is the product of the probabilities of its first and last word.

    "No answer" has an empty text, from 0 to 0; its score is the product of its two probabilities.
    """

    text: str
    start: int
    end: int
    score: float


def extract_answers(
    start_logits: Tensor,
    end_logits: Tensor,
    offset_mapping: Tensor | Sequence[Any],
    contexts: Sequence[str],
    max_answer_words: int = 30,
    null_threshold: float | None = None,
) -> list[Answer]:
    """Finds the best answer in each of B contexts.

    A context without words has no answer. Its score is 1 with a threshold, because "no answer" is then the only one
    that is possible, and 0 without, because then no answer at all has a probability.

    Args:
        start_logits: `(B, T)`, the model's.
        end_logits: `(B, T)`, the model's.
        offset_mapping: `(B, T, 2)`, the tokenizer's (`return_offsets_mapping=True`).
        contexts: the B contexts.
        max_answer_words: length of the longest answer.
        null_threshold: for a model that was trained with questions without an answer: if the null odds are larger than
            this (0 in SQuAD 2's evaluation), there is no answer; probabilities then include that of no answer. None:
            every context with words has an answer.

    Raises:
        ValueError: if a threshold is given, and a row has no logit for no answer.
    """
    answers: list[Answer] = []
    for start, end, offsets, context in zip(start_logits, end_logits, offset_mapping, contexts, strict=True):
        logits = torch.stack([torch.as_tensor(start), torch.as_tensor(end)]).float()
        is_masked = logits[0] <= LOWEST
        positions = (~is_masked).nonzero().flatten().tolist()
        words = [position for position in positions if _is_word(offsets[position])]
        nulls = [position for position in positions if not _is_word(offsets[position])]
        if null_threshold is None:
            nulls = []
        elif not nulls:
            raise ValueError(
                "`null_threshold` needs a logit for no answer at a row's first boundary, found none in row "
                f"{len(answers)}. "
                "The package's `ElmoForQuestionAnswering` gives one; without a threshold every question has an answer."
            )
        if not words:
            answers.append(Answer("", 0, 0, 1.0 if nulls else 0.0))
            continue
        log_probs = logits[:, words + nulls].log_softmax(dim=1)
        first, last = _best_span(log_probs[:, : len(words)], max_answer_words)
        score = log_probs[0, first] + log_probs[1, last]
        if null_threshold is not None:
            null_score = log_probs[:, -1].sum()
            if null_score - score > null_threshold:
                answers.append(Answer("", 0, 0, null_score.exp().item()))
                continue
        begin = int(offsets[words[first]][0])
        stop = int(offsets[words[last]][1])
        answers.append(Answer(context[begin:stop], begin, stop, score.exp().item()))
    return answers


def _best_span(log_probs: Tensor, max_words: int) -> tuple[int, int]:
    """The first and last word of the best span, from log-probabilities `(2, W)` of the first and the last word."""
    scores = log_probs[0].unsqueeze(1) + log_probs[1]
    is_span = torch.ones_like(scores, dtype=torch.bool).triu().tril(max_words - 1)
    best = int(scores.masked_fill(~is_span, -torch.inf).argmax())
    return divmod(best, len(scores))  # row and column


def _is_word(offset: Any) -> bool:
    """Whether a position is a word; scripts put None in place of the offsets of positions outside the context."""
    return offset is not None and int(offset[0]) < int(offset[1])


class ElmoForQuestionAnswering(ElmoTaskModel):
    """Finds answers to questions; each row is `tokenizer(question, context)`."""

    num_texts = 2
    extract_answers = staticmethod(extract_answers)

    def __init__(self, config: ElmoConfig) -> None:
        """Initialises random weights."""
        super().__init__(config)
        size = self.task_encoder.output_size
        self.attention = QuestionAttention(size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.lstm: BiLSTM | None = None
        if config.task_encoder == "lstm":
            self.lstm = BiLSTM(4 * size, config.task_hidden_size)
            self.qa_outputs = nn.Linear(2 * config.task_hidden_size, 2)
        else:
            self.qa_outputs = nn.Linear(4 * size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        word_vector_ids: Tensor | None = None,
        marks: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Returns `start_logits` and `end_logits` `(B, T)`; other arguments are those of `ElmoTaskModel.forward`.

        `start_positions` and `end_positions` `(B,)` are the positions of the answer's first and last word. 0, or the
        position of the row's first `<S>`, means that the context has no answer. The loss leaves out -100 and positions
        after the context's last word, which transformers' `run_qa.py` gives to an answer that begins with the last
        word. If it leaves out everything, it is 0.

        Raises:
            TypeError: if ids are not integers.
            ValueError: as in `encode_texts`, or if another position is before the context.
        """
        inputs_embeds = kwargs.get("inputs_embeds")
        texts = self.encode_texts(input_ids, attention_mask, bilm_layers, inputs_embeds, word_vector_ids, marks)
        question, context = texts.rows.split(texts.vectors)
        question_mask, context_mask = texts.rows.split(texts.rows.mask)
        vectors = self.dropout(compare(context, self.attention(context, question, question_mask)))
        if self.lstm is not None:
            vectors = self.lstm(vectors, context_mask)
        logits = self.qa_outputs(vectors)
        # Zero outside the context, where only the place of "no answer" keeps its logit.
        logits = texts.rows.put_back(torch.cat([torch.zeros_like(logits), logits]))
        is_context = texts.rows.masks[1]
        has_logit = is_context | texts.is_first
        logits = logits.masked_fill(~has_logit.unsqueeze(-1), torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            starts = _targets("start_positions", start_positions, is_context, texts.is_first)
            ends = _targets("end_positions", end_positions, is_context, texts.is_first)
            mean = (_cross_entropy(start_logits, starts) + _cross_entropy(end_logits, ends)) / 2
            loss = mean + self.mix_penalty()
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=self.layers_wanted(texts.layers, output_hidden_states),
        )


def _targets(name: str, positions: Tensor, is_context: Tensor, is_first: Tensor) -> Tensor:
    """Maps a caller's positions to those of the loss, `(B,)`: the first `<S>` in place of 0, -100 for what is left out.

    `is_context` and `is_first` `(B, T)` are True on the words of the context and on the first `<S>` of each row.
    """
    batch_size, num_positions = is_context.shape
    if positions.dim() == 2:  # data that was split for several GPUs has one more axis
        positions = positions.squeeze(-1)
    check_shape(name, positions, (batch_size,))
    positions = positions.to(is_context.device).long()
    first = is_first.int().argmax(dim=1)
    places = torch.arange(num_positions, device=is_context.device)
    last_word = torch.where(is_context, places, -1).amax(dim=1)

    is_null = (positions == 0) | (positions == first)
    is_left_out = (positions == IGNORED) | (positions > last_word)
    is_word = is_context.gather(1, positions.clamp(0, num_positions - 1).unsqueeze(1)).squeeze(1)
    _refuse_positions(name, positions, is_null | is_left_out | is_word)
    return torch.where(is_null, first, positions.masked_fill(is_left_out, IGNORED))


@breaks_compiled_graphs
def _refuse_positions(name: str, positions: Tensor, is_legal: Tensor) -> None:
    """Raises ValueError unless `is_legal` `(B,)` is True for all positions `(B,)`."""
    # On a GPU too, although Python waits for it: a wrong position would only make the loss very large.
    if not may_depend_on(positions):
        return
    illegal_rows = (~is_legal).nonzero().flatten().tolist()
    if illegal_rows:
        row = illegal_rows[0]
        raise ValueError(
            f"`{name}` must be positions of words of the context, 0 for no answer, or -100 to leave a question out of "
            f"the loss, found {positions[row].item()} in row {row}, before the context, which is the row's second text "
            "(`sequence_index=1` in `char_to_token`)."
        )


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(logits `(B, T)`)[target `(B,)`] in float32 at least; -100 is left out, 0 if all are."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    total = nn.functional.cross_entropy(logits.to(wide), targets, ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)
