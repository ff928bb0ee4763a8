"""The softmax over words that both language models share (Peters et al. 2018, §3.1).

For a biLM output h `(P,)`, the matrix W `(V, P)` and the bias b `(V,)`, word k has probability

    p(k | h) = exp(u_k) / sum_j exp(u_j),    u_k = W_k . h + b_k

Glossary: N predictions, P projection, V words of the vocabulary. Class k is line k, from 0, of the vocabulary. Losses
are in nats.
"""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..model.configuration_elmo import ElmoConfig

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
    size, wide = block_size(len(bias)), torch.promote_types(hidden.dtype, torch.float32)
    losses = [
        nn.functional.cross_entropy(nn.functional.linear(block, weight, bias).to(wide), classes, reduction="none")
        for block, classes in zip(hidden.split(size), targets.split(size), strict=True)
    ]
    return -torch.cat(losses)


def block_size(num_words: int) -> int:
    """How many predictions are taken at once."""
    return max(LEAST_BLOCK_SIZE, BLOCK_LOGITS // num_words)
