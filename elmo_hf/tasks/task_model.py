"""What all models for a task share: a biLM that is frozen or learns by parts, its mixes, and the task's encoder.

    ids -> biLM -> layers -> mixes -> representations -> task encoder -> word vectors -> the task's classifier

Freezing is `requires_grad=False` and nothing else: where no parameter below learns, autograd stores nothing, and an
adapter put into a frozen layer still gets its gradient. The biLM has no dropout, so that it gives the same layers in
training and evaluation.

A text's layers never change while the biLM is frozen, so they may be computed once and given in place of running it
(`bilm_layers`, see `feature_cache.py`).

Glossary: B batch, T positions of a row, boundaries and padding included, C characters per word, P projection,
L layers, N texts, W words of the longest text, D width of an encoded word.

Deliberate difference from other models of transformers: a pair of texts, which the tokenizer puts side by side in one
row, `<S> a </S> <S> b </S>`, is two texts to the biLM, each run on its own from a state of zeros. The boundary is
found in the ids, so that a pair is one row for pipelines, collators and `datasets`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..model.configuration_elmo import ElmoConfig
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .task_encoder import TaskEncoder
from .text_rows import TextRows


class EncodedTexts(NamedTuple):
    """The words of a batch, ready for a classifier.

    Attributes:
        vectors: `(N, W, D)`, words only; meaningless after a text's last word.
        rows: where they stand in the batch; `rows.mask` `(N, W)` is True on words.
        layers: the L+1 layers `(B, T, 2P)` they are made of.
    """

    vectors: Tensor
    rows: TextRows
    layers: list[Tensor]


class ElmoTaskModel(ElmoPreTrainedModel):
    """A biLM with mixes and an encoder; a subclass adds the classifier and calls `post_init`."""

    # The language models of a pretraining checkpoint.
    _keys_to_ignore_on_load_unexpected = [r"^softmax\."]
    # How many texts a row holds.
    num_texts = 1

    def __init__(self, config: ElmoConfig) -> None:
        """Makes `elmo` and `task_encoder`."""
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.task_encoder = TaskEncoder(config)

    def post_init(self) -> None:
        """Initialises what the subclass made, and freezes what the config says."""
        super().post_init()
        self.set_trainable_parts()

    def set_trainable_parts(self) -> None:
        """Freezes the mixes and the parts of the biLM that the config says, and thaws the others."""
        super().set_trainable_parts()
        modules = [self.elmo.token_encoder, *self.elmo.bilm.layers]
        for name, module in zip(self.config.bilm_parts, modules, strict=True):
            module.requires_grad_(name not in self.config.frozen_parts)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves as every model of ours; the config no longer counts the words of a softmax that the folder has not."""
        self.config.num_softmax_words = None
        super().save_pretrained(save_directory, **kwargs)

    @torch.no_grad()
    def compute_bilm_layers(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The biLM's layers `(B, T, L+1, 2P)`, to be given as `bilm_layers` with the same ids and mask again."""
        mask = self.elmo.word_mask(input_ids, attention_mask)
        return torch.stack(self.run_bilm(input_ids, mask, self._texts(input_ids, mask)), dim=2)

    def run_bilm(self, input_ids: Tensor, mask: Tensor, texts: list[Tensor]) -> list[Tensor]:
        """The L+1 layers `(B, T, 2P)` of rows, each text run on its own.

        Args:
            input_ids: `(B, T, C)` or `(B, T)`.
            mask: `(B, T)`, True on words, boundaries included.
            texts: for each text of a row, `(B, T)`, True on its words, boundaries included.
        """
        if len(texts) == 1:
            return self.elmo.encode(input_ids, mask)
        rows = TextRows(texts)
        return [rows.put_back(layer) for layer in self.elmo.encode(rows.take(input_ids), rows.mask)]

    def encode_texts(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        bilm_layers: Tensor | None,
        others: Mapping[str, Any] | None = None,
    ) -> EncodedTexts:
        """Encodes the words of a batch.

        Args:
            input_ids: `(B, T, C)` or `(B, T)`.
            attention_mask: `(B, T)`, or None.
            bilm_layers: `(B, T, L+1, 2P)`, the layers of these very rows, computed before; or None.
            others: what else the model was given; `inputs_embeds` is refused, the rest is ignored.

        Raises:
            ValueError: if there are no `input_ids`, a row does not hold `num_texts` texts, or `bilm_layers` are of
                another shape or of a biLM that learns.
        """
        if input_ids is None or (others or {}).get("inputs_embeds") is not None:
            found = "none" if input_ids is None else "`inputs_embeds` beside them"
            raise ValueError(
                f"{type(self).__name__} needs `input_ids` and nothing in their place, found {found}: the ids say where "
                "words, texts and padding are. `ElmoModel` takes `inputs_embeds`; the biLM's layers, where they were "
                "computed before, go in as `bilm_layers` with their `input_ids`."
            )
        mask = self.elmo.word_mask(input_ids, attention_mask)
        texts = self._texts(input_ids, mask)
        if bilm_layers is None:
            layers = self.run_bilm(input_ids, mask, texts)
        else:
            self._check_bilm_layers(bilm_layers, mask)
            layers = list(bilm_layers.to(self.dtype).unbind(dim=2))
        representations = self.elmo.mix(layers, mask)
        is_word = ~self.elmo.boundaries(input_ids)
        rows = TextRows([text & is_word for text in texts])
        vectors = self.task_encoder(
            rows.take(self.token_vectors(input_ids, mask, layers)),
            [rows.take(representation) for representation in representations],
            rows.mask,
        )
        return EncodedTexts(vectors, rows, layers)

    def token_vectors(self, input_ids: Tensor, mask: Tensor, layers: list[Tensor]) -> Tensor:
        """The context-free word vectors `(B, T, P)`, the task encoder's x: those of the biLM, its first layer's halves.

        Args:
            input_ids: `(B, T, C)` or `(B, T)`.
            mask: `(B, T)`, True on words, boundaries included.
            layers: L+1 of `(B, T, 2P)`.
        """
        return layers[0].chunk(2, dim=-1)[0]

    def mix_penalty(self) -> Tensor | float:
        """What `scalar_mix_l2` adds to the loss: 0 in evaluation, and for mixes that do not learn."""
        if not self.training or self.config.scalar_mix_l2 == 0:
            return 0.0
        mixes = [mix for mix in self.scalar_mixes_of_all() if mix.logits.requires_grad]
        return self.config.scalar_mix_l2 * sum(mix.penalty() for mix in mixes)

    def _texts(self, input_ids: Tensor, mask: Tensor) -> list[Tensor]:
        """The positions `(B, T)` of each row's first text, boundaries included, of its second, and so on."""
        begins = self.elmo.begins(input_ids) & mask
        if not torch.compiler.is_compiling():  # a compiled graph cannot look at the data
            found = begins.sum(dim=1)
            # Without boundaries a row is one text.
            is_wrong = found > 1 if self.num_texts == 1 else found != self.num_texts
            if is_wrong.any():
                row = int(is_wrong.nonzero()[0])
                what = "one text" if self.num_texts == 1 else "a pair of texts, `tokenizer(text, text_pair)`"
                raise ValueError(
                    f"{type(self).__name__} reads {what}, in each row; row {row} of `input_ids` holds "
                    f"{int(found[row])} texts, counted by `<S>`. `text_pairs` in the config says whether texts are "
                    "classified in pairs."
                )
        number = begins.cumsum(dim=1).clamp(min=1)  # 1 in the first text, 2 in the second
        return [mask & (number == which) for which in range(1, self.num_texts + 1)]

    def _check_bilm_layers(self, bilm_layers: Tensor, mask: Tensor) -> None:
        expected = (*mask.shape, self.config.num_hidden_layers + 1, self.config.hidden_size)
        if tuple(bilm_layers.shape) != expected:
            raise ValueError(
                "`bilm_layers` must have shape (batch, words, layers + 1, 2 * projection) = "
                f"{expected}, found {tuple(bilm_layers.shape)}."
            )
        if self.training and self.config.frozen_parts != self.config.bilm_parts:
            raise ValueError(
                "`bilm_layers` were computed once and cannot follow a biLM that learns; train with "
                f"`freeze_bilm=True`, found {self.config.freeze_bilm!r}, or leave them out."
            )
