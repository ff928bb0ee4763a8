"""The shared part of all models for a task: a biLM, frozen in part or whole, its mixes, and the task's encoder.

    ids -> biLM -> layers -> mixes -> representations -> task encoder -> word vectors -> the task's classifier

Freezing is `requires_grad=False` only: autograd stores nothing below the first parameter that learns, and an adapter in
a frozen layer still gets its gradient. The biLM has no dropout, so its layers are the same in training and evaluation.
A frozen biLM's layers can be computed once and passed as `bilm_layers` (see `feature_cache.py`).

Glossary: B batch, T positions of a row, boundaries and padding included, C characters per word, P projection,
L layers, N texts, W words of the longest text, D width of an encoded word.

Deliberate difference from other models of transformers: the biLM reads the two texts of a pair separately, each from
the zero state. For pipelines, collators and `datasets` both texts are one row `<S> a </S> <S> b </S>`, which the model
splits at each `<S>`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from ..model.configuration_elmo import ElmoConfig, require
from ..model.inputs import check_shape, checked_words
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel, can_return_tuple
from .task_encoder import TaskEncoder
from .text_rows import TextRows


class EncodedTexts(NamedTuple):
    """The words of a batch, ready for a classifier: their vectors and places, and the biLM's L+1 layers."""

    vectors: Tensor  # (N, W, D), arbitrary after a text's last word
    rows: TextRows
    layers: tuple[Tensor, ...]  # (B, T, 2P) each
    is_first: Tensor  # (B, T), True at each row's first position that is not padding: `<S>`, if there are boundaries


class ElmoTaskModel(ElmoPreTrainedModel):
    """A biLM with mixes and an encoder; a subclass adds the classifier, `classify`, and calls `post_init`."""

    # From a pretraining checkpoint.
    _keys_to_ignore_on_load_unexpected = [r"^softmax\."]
    num_texts = 1  # per row
    output_class: type[ModelOutput]

    def __init__(self, config: ElmoConfig) -> None:
        """Initialises `elmo` and `task_encoder`."""
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.task_encoder = TaskEncoder(config)
        self.word_vectors = None
        if config.word_vectors is not None:
            num_rows, size = config.word_vectors["num_words"] + 1, config.word_vectors["size"]
            self.word_vectors = nn.Embedding(num_rows, size, padding_idx=0)

    def post_init(self) -> None:
        """Initialises weights, and freezes the parts that the config names."""
        super().post_init()
        self.set_trainable_parts()

    def set_trainable_parts(self) -> None:
        """Sets `requires_grad` of mixes, word vectors and each part of the biLM from the config."""
        super().set_trainable_parts()
        if self.word_vectors is not None:
            self.word_vectors.requires_grad_(self.config.word_vectors["trainable"])
        modules = [self.elmo.token_encoder, *self.elmo.bilm.layers]
        for name, module in zip(self.config.bilm_parts, modules, strict=True):
            module.requires_grad_(name not in self.config.frozen_parts)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves the model; the config loses the softmax of a language model, which is not saved."""
        self.config.num_softmax_words, self.config.share_embedding_softmax = None, False
        super().save_pretrained(save_directory, **kwargs)

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
        return torch.stack(self._run_bilm(self.elmo.embed_ids(ids, mask), mask, self._texts(ids, mask)), dim=2)

    def _run_bilm(self, embeddings: Tensor, mask: Tensor, texts: list[Tensor]) -> list[Tensor]:
        """The L+1 layers `(B, T, 2P)` over embeddings `(B, T, P)`; it reads each text alone, from the zero state.

        `mask` `(B, T)` is True on words and boundaries; each mask in `texts` is True on one text of each row.
        """
        if len(texts) == 1:
            return self.elmo.bilm(embeddings, mask)[0]
        rows = TextRows(texts)
        return [rows.put_back(layer) for layer in self.elmo.bilm(rows.take(embeddings), rows.mask)[0]]

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
            ValueError: if a shape is wrong, if a row does not have `num_texts` texts, if `marks` are given without
                `mark_size`, or if `bilm_layers` are given although the biLM learns.
        """
        if inputs_embeds is None:
            ids, mask = checked_words(input_ids, attention_mask, self.config)
            texts, is_word = self._texts(ids, mask), ~self.elmo.boundaries(ids)
        else:
            require(self.num_texts == 1, "inputs_embeds", "None for pairs, which only ids tell apart", "a tensor")
            inputs_embeds, mask = self.elmo.embed_embeds(inputs_embeds, attention_mask)
            texts, is_word = [mask], mask
        if self.config.mark_size is not None:
            check_shape("marks", marks, mask.shape)
        require(marks is None or self.config.mark_size is not None, "marks", "None without `mark_size`", "a tensor")
        if bilm_layers is None:
            embeddings = self.elmo.embed_ids(ids, mask) if inputs_embeds is None else inputs_embeds
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
        """The task encoder's x `(B, T, ...)`: its own vectors with dropout, or the biLM's context-free ones."""
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
        begins = self.elmo.begins(ids) & mask
        if not torch.compiler.is_compiling():  # a compiled graph cannot read the data
            found = begins.sum(dim=1)
            # Without boundaries a row is one text.
            is_wrong = found > 1 if self.num_texts == 1 else found != self.num_texts
            for row in is_wrong.nonzero().flatten().tolist():
                what = "one text" if self.num_texts == 1 else "a pair of texts, `tokenizer(text, text_pair)`"
                raise ValueError(f"each row of `input_ids` must hold {what}, found {found[row]} `<S>` in row {row}.")
        text = begins.cumsum(dim=1).clamp(min=1)  # 1 in the first text, 2 in the second
        return [mask & (text == which) for which in range(1, self.num_texts + 1)]
