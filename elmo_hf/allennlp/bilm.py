"""AllenNLP's `_ElmoBiLm`: it has `_token_embedder` and `_elmo_lstm`, and calls one after the other.

    characters (B, T, C)  --_token_embedder-->  vectors (B, T+2, P)  --_elmo_lstm-->  L layers (B, T+2, 2P)

Old code hooks into a part, replaces it by its own module, or calls only one part, so each part takes and returns the
same as in AllenNLP.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging

from ..model.tokenization_elmo import BEGIN_SENTENCE, END_SENTENCE, CharacterCodec
from .character_encoder import _ElmoCharacterEncoder, add_sentence_boundaries
from .lstm import ElmoLstm
from .pretrained import Pretrained, read_pretrained

logger = logging.get_logger(__name__)

# Words that are computed at once for a table.
TABLE_BLOCK = 1024


class _ElmoBiLm(nn.Module):
    """All layers of the biLM; adds the boundaries around each sentence.

    Attributes:
        num_layers: L + 1.
        _word_embedding: the table of cached words, or None; it trains if the biLM does.
        _bos_embedding: with a table, the vector of `<S>`, `(P,)`.
        _eos_embedding: with a table, the vector of `</S>`, `(P,)`.
    """

    _bos_embedding: Tensor
    _eos_embedding: Tensor

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        pretrained: Pretrained | None = None,
    ) -> None:
        """Loads the two files, or takes `pretrained`; arguments and errors are those of `Elmo`."""
        super().__init__()
        if pretrained is None:
            pretrained = read_pretrained(options_file, weight_file)
        config = pretrained.config
        self._token_embedder = _ElmoCharacterEncoder(None, None, requires_grad, pretrained=pretrained)
        self._requires_grad = requires_grad
        self._word_embedding: nn.Embedding | None = None
        self.register_buffer("_bos_embedding", None, persistent=False)
        self.register_buffer("_eos_embedding", None, persistent=False)
        if vocab_to_cache and requires_grad:
            logger.warning("Cached words train apart from the character CNN, which other words go through.")
        if vocab_to_cache:
            self.create_cached_cnn_embeddings(vocab_to_cache)
        with torch.device("meta"):  # random weights would take longer than all the rest
            self._elmo_lstm = ElmoLstm(
                input_size=config.projection_size,
                hidden_size=config.projection_size,
                cell_size=config.cell_size,
                num_layers=config.num_hidden_layers,
                requires_grad=requires_grad,
                memory_cell_clip_value=config.cell_clip,
                state_projection_clip_value=config.projection_clip,
            )
        self._elmo_lstm.load_state_dict(pretrained.part("_elmo_lstm"), assign=True)
        self._elmo_lstm.requires_grad_(requires_grad)
        self._elmo_lstm.use_skip_connections = config.use_skip_connections
        self.num_layers: int = config.num_hidden_layers + 1

    def get_output_dim(self) -> int:
        """2P."""
        return 2 * self._token_embedder.get_output_dim()

    @torch.no_grad()
    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Computes the vectors of words once, for calls with `word_inputs`; the first word is padding.

        Sets `_word_embedding`, whose `weight` is `(words, P)`, zero in row 0, and `_bos_embedding` and
        `_eos_embedding`, `(P,)`.
        """
        device = next(self.parameters()).device
        words = CharacterCodec(self._token_embedder._max_word_length).encode([BEGIN_SENTENCE, END_SENTENCE, *tokens])
        blocks = torch.from_numpy(words).long().to(device).split(TABLE_BLOCK)
        # Each block is one sentence, in boundaries of its own.
        vectors = torch.cat([self._token_embedder(block[None])["token_embedding"][0, 1:-1] for block in blocks])
        table = vectors[2:].clone()
        table[0] = 0
        self._bos_embedding = vectors[0].clone()
        self._eos_embedding = vectors[1].clone()
        self._word_embedding = nn.Embedding.from_pretrained(table, freeze=not self._requires_grad, padding_idx=0)

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Runs the biLM.

        Args:
            inputs: `(B, T, C)` of `batch_to_ids`.
            word_inputs: `(B, T)` indices of cached words, 0 for padding; used only if all words are cached.

        Returns:
            `activations`, a list of L+1 tensors `(B, T+2, 2P)`, and `mask`, `(B, T+2)`, True on words and boundaries.
        """
        words = self._word_embedding
        if words is not None and word_inputs is not None and (word_inputs < words.num_embeddings).all():
            vectors, mask = add_sentence_boundaries(
                words(word_inputs), word_inputs > 0, self._bos_embedding, self._eos_embedding
            )
        else:
            embedded = self._token_embedder(inputs)
            vectors, mask = embedded["token_embedding"], embedded["mask"].bool()
        vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0)
        layers = self._elmo_lstm(vectors, mask)
        return {"activations": [torch.cat([vectors, vectors], dim=-1), *layers], "mask": mask}
