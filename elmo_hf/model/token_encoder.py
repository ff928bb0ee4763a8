"""The context-free token encoders: a word's characters, or its id, to one vector (Peters et al. 2018, §3.4).

The character CNN of Kim et al. (2016) embeds the C character ids of a word, convolves them with filters of several
widths and keeps each filter's maximum over positions; highway layers (Srivastava et al. 2015) and a projection follow.

    m_f = act(max_t (W_f * x)_t + b_f)                        one value per filter, concatenated to m in R^F
    g   = sigmoid(W_g m + b_g)
    m  <- g . relu(W_t m + b_t) + (1 - g) . m                 `num_highway_layers` times
    v   = W_p m + b_p                                         in R^P

With word vectors beside the characters (ELMoForManyLangs), v = W_p [u, m] + b_p, where u in R^W is the word's entry in
a second table. The word embedding alone is a table u with v = u, or v = W_p u + b_p.

A word's ids end in repetitions of one id, the filler. A filter has the same value at all positions where it sees only
filler, so the maximum needs only one of these positions. Words of similar length are therefore computed in blocks, each
cut to the length that its longest word needs; the result is exact.

A word's vector depends only on its ids, so equal words of a batch are computed once. A hash of the ids, h(w) = sum_c
w_c m^c mod 2^64 with m odd, finds equal words, which are then compared id by id, so a collision cannot change the
result.

Glossary: N words, U distinct words, C characters per word, E character embedding, F filters in total, W word embedding,
P projection.

Deliberate differences from the original code: the highway `gate` multiplies the *new* value, as in bilm-tf's files
(which call it `W_carry`); the `Highway` of AllenNLP and ELMoForManyLangs gates the old value, so its W_g and b_g have
the opposite sign. Entry 0 of every table is the zero vector of padding, which bilm-tf adds when it reads a file.
"""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..scan.kernels import apply
from .configuration_elmo import ElmoConfig
from .inputs import may_depend_on_data

# Positions (words times characters) convolved at once: 21 MB in float32 for the widest filters of the original model;
# on a GPU 134 MB, because there each block costs some forty launches.
BLOCK_CHARACTERS, GPU_BLOCK_CHARACTERS = 5120, 32768
# m of h(w): Knuth's multiplier of a linear congruential generator modulo 2^64.
MULTIPLIER = 6364136223846793005


class Highway(nn.Module):
    """One highway layer: always relu, even if the CNN uses tanh (`high` in bilm-tf's `_build_word_char_embeddings`)."""

    def __init__(self, size: int) -> None:
        """Makes a layer for vectors of width `size`."""
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def init_parameters(self) -> None:
        """Draws bilm-tf's random weights; the gate starts nearly closed."""
        _init_linear(self.transform)
        _init_linear(self.gate, bias=-2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps `(N, F)` to `(N, F)`."""
        return torch.lerp(inputs, apply(self.transform, inputs).relu(), apply(self.gate, inputs).sigmoid())


class CharacterCNN(nn.Module):
    """Maps the character ids of each word to a word vector, independently of other words.

    Source: `_build_word_char_embeddings` in bilm-tf, `_ElmoCharacterEncoder` in AllenNLP; with word vectors,
    `ConvTokenEmbedder` in ELMoForManyLangs.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `vocab_size`, `num_input_words`, `char_*`, `word_*`, `num_highway_layers`, `projection_size`."""
        super().__init__()
        self.max_word_length = config.max_word_length
        self.num_characters = config.num_characters
        self.widest_filter = max(width for width, _ in config.char_filters)
        self.embedding = nn.Embedding(config.num_characters + 1, config.char_embedding_size, padding_idx=0)
        self.word_embedding = None
        if config.word_embedding_size is not None:
            self.word_embedding = nn.Embedding(config.num_input_words + 1, config.word_embedding_size, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_embedding_size, count, kernel_size=width) for width, count in config.char_filters
        )
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[config.char_activation]
        self.highways = nn.ModuleList(Highway(config.num_filters) for _ in range(config.num_highway_layers))
        num_features = config.num_filters + (config.word_embedding_size or 0)
        self.projection = nn.Linear(num_features, config.projection_size) if config.char_projection else None

    def init_parameters(self) -> None:
        """Draws bilm-tf's random weights; the convolutions' weights depend on the activation."""
        init.uniform_(self.embedding.weight, -1, 1)
        _init_padding(self.embedding)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if self.activation is torch.relu:
                init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                init.normal_(convolution.weight, std=1 / math.sqrt(convolution.weight[0].numel()))
            init.zeros_(convolution.bias)
        if self.word_embedding is not None:
            init.xavier_uniform_(self.word_embedding.weight)
            _init_padding(self.word_embedding)
        if self.projection is not None:
            _init_linear(self.projection)

    def forward(self, ids: Tensor, block_characters: int | None = None) -> Tensor:
        """Maps character ids `(N, C)`, or `(N, C + 1)` with the word's id last, to word vectors `(N, P)`."""
        if not may_depend_on_data() or len(ids) == 0:
            return self._embed(ids, self.max_word_length)
        lengths, order = _lengths(ids[:, : self.max_word_length]).sort(descending=True, stable=True)
        num_positions = (lengths + self.widest_filter).clamp(max=self.max_word_length).tolist()
        vectors, start = [], 0
        limit = block_characters or (BLOCK_CHARACTERS if ids.device.type == "cpu" else GPU_BLOCK_CHARACTERS)
        while start < len(ids):
            block = order[start : start + max(1, limit // num_positions[start])]
            vectors.append(self._embed(ids[block], num_positions[start]))
            start += len(block)
        return torch.cat(vectors)[order.argsort()]

    def _embed(self, ids: Tensor, num_positions: int) -> Tensor:
        word_vectors = None
        if self.word_embedding is not None:
            # Word ids follow the character ids; padding, id 0, stays entry 0.
            word_vectors = self.word_embedding((ids[:, -1] - self.num_characters).clamp(min=0))
        return self.encode(self.embedding(ids[:, :num_positions]), word_vectors)

    def encode(self, characters: Tensor, word_vectors: Tensor | None = None) -> Tensor:
        """Maps `(N, C, E)` character embeddings, and `(N, W)` word vectors if the model has them, to `(N, P)`."""
        characters = characters.transpose(1, 2)  # (N, E, C)
        features = [self.activation(apply(convolution, characters).amax(dim=-1)) for convolution in self.convolutions]
        words = torch.cat(features, dim=-1)  # (N, F)
        for highway in self.highways:
            words = highway(words)
        if word_vectors is not None:
            words = torch.cat([word_vectors, words], dim=-1)  # (N, W + F)
        return words if self.projection is None else apply(self.projection, words)


class WordEmbedding(nn.Module):
    """Word ids to word vectors, for biLMs trained without characters.

    Source: `_build_word_embeddings` in bilm-tf; with the linear layer, `ConvTokenEmbedder` in ELMoForManyLangs.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `vocab_size`, `word_embedding_size` and `projection_size` of `config`."""
        super().__init__()
        width = config.word_embedding_size
        self.embedding = nn.Embedding(config.vocab_size, width or config.projection_size, padding_idx=0)
        self.projection = None if width is None else nn.Linear(width, config.projection_size)

    def init_parameters(self) -> None:
        """Draws Glorot's uniform weights, TensorFlow's default, for the table."""
        init.xavier_uniform_(self.embedding.weight)
        _init_padding(self.embedding)
        if self.projection is not None:
            _init_linear(self.projection)

    def forward(self, word_ids: Tensor) -> Tensor:
        """Maps `(N,)` word ids to `(N, P)` word vectors."""
        words = self.embedding(word_ids)
        return words if self.projection is None else self.projection(words)


def distinct_rows(ids: Tensor, multiplier: int = MULTIPLIER) -> tuple[Tensor, Tensor]:
    """The distinct words `(U, C)` or `(U,)` of `ids` `(N, C)` or `(N,)`, and each word's index among them, `(N,)`."""
    words = ids.unsqueeze(1) if ids.dim() == 1 else ids
    powers = torch.full((words.shape[1],), multiplier, device=ids.device).cumprod(dim=0)
    hashes, which = (words * powers).sum(dim=1).unique(return_inverse=True)
    indices = torch.arange(len(ids), device=ids.device)
    distinct = ids[torch.full_like(hashes, len(ids)).scatter_reduce_(0, which, indices, "amin")]
    if not torch.equal(distinct[which], ids):
        # Two words share a hash: compare the ids themselves, which takes longer.
        return torch.unique(ids, dim=0, return_inverse=True)
    return distinct, which


def _init_padding(embedding: nn.Embedding) -> None:
    if not getattr(embedding.weight, "_is_hf_initialized", False):
        init.zeros_(embedding.weight[embedding.padding_idx])


def _init_linear(linear: nn.Linear, bias: float = 0.0) -> None:
    init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
    init.constant_(linear.bias, bias)


def _lengths(ids: Tensor) -> Tensor:
    """`(N,)`, how many of the ids `(N, C)` precede the final run of one id."""
    differs = ids != ids[:, -1:]
    return (differs * torch.arange(1, ids.shape[1] + 1, device=ids.device)).amax(dim=1)
