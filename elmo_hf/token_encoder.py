"""The context-free token encoders: a word's characters, or its id, to one vector (Peters et al. 2018, §3.4).

The character CNN of Kim et al. (2016): embed the C character ids of a word, convolve with filters of several
widths, keep each filter's maximum over positions, refine with highway layers (Srivastava et al. 2015), project.

    m_f = act(max_t (W_f * x)_t + b_f)                        one number a filter, concatenated to m in R^F
    g   = sigmoid(W_g m + b_g)
    m  <- g . relu(W_t m + b_t) + (1 - g) . m                 `num_highway_layers` times
    v   = W_p m + b_p                                         in R^P

The word embedding is a table with one row of P numbers for each word id.

Glossary: N words, C characters per word, E character embedding, F filters in total, P projection.

Deliberate differences from the original code: the highway `gate` multiplies the *new* value, as in bilm-tf's files
(where it is called `W_carry`) and as in the equation above; AllenNLP's `Highway` gates the old value and flips the
signs on load. Row 0 of every table is the zero vector of padding, which bilm-tf adds only when it reads a file.
"""

import torch
from torch import Tensor, nn

from .configuration_elmo import ElmoConfig


class Highway(nn.Module):
    """One highway layer, g . relu(transform(x)) + (1 - g) . x with g = sigmoid(gate(x)).

    Source: `high` in bilm-tf's `_build_word_char_embeddings`. Always relu, also where the CNN uses tanh.
    """

    def __init__(self, size: int) -> None:
        """Makes a layer on vectors of `size` numbers."""
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps `(N, F)` to `(N, F)`."""
        gate = self.gate(inputs).sigmoid()
        return gate * self.transform(inputs).relu() + (1 - gate) * inputs


class CharacterCNN(nn.Module):
    """Character ids of words to word vectors; nothing depends on the neighbouring words.

    Source: `_build_word_char_embeddings` in bilm-tf, `_ElmoCharacterEncoder` in AllenNLP.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `vocab_size`, `char_*`, `num_highway_layers` and `projection_size` of `config`."""
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.char_embedding_size, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_embedding_size, count, kernel_size=width) for width, count in config.char_filters
        )
        self.activation = {"relu": torch.relu, "tanh": torch.tanh}[config.char_activation]
        self.highways = nn.ModuleList(Highway(config.num_filters) for _ in range(config.num_highway_layers))
        self.projection = nn.Linear(config.num_filters, config.projection_size) if config.char_projection else None

    def forward(self, character_ids: Tensor) -> Tensor:
        """Maps `(N, C)` character ids to `(N, P)` word vectors."""
        return self.encode(self.embedding(character_ids))

    def encode(self, characters: Tensor) -> Tensor:
        """Maps `(N, C, E)` character embeddings to `(N, P)` word vectors."""
        characters = characters.transpose(1, 2)  # (N, E, C)
        features = [self.activation(convolution(characters).amax(dim=-1)) for convolution in self.convolutions]
        words = torch.cat(features, dim=-1)  # (N, F)
        for highway in self.highways:
            words = highway(words)
        return words if self.projection is None else self.projection(words)


class WordEmbedding(nn.Module):
    """Word ids to word vectors: one table, for biLMs trained without characters.

    Source: `_build_word_embeddings` in bilm-tf.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `vocab_size` and `projection_size` of `config`."""
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.projection_size, padding_idx=0)

    def forward(self, word_ids: Tensor) -> Tensor:
        """Maps `(N,)` word ids to `(N, P)` word vectors."""
        return self.embedding(word_ids)
