"""A text of any length in bounded memory, exactly: the biLM reads it in pieces.

The two directions of a biLM never mix, and each carries its state from word to word. So both read a text of T words in
pieces of S words, the forward direction from its front and the backward one from its end, and go on with the state of
the piece before:

    step        1                  2                      ...
    forward     x_1 ... x_S        x_{S+1} ... x_2S
    backward    x_{T-S+1} ... x_T  x_{T-2S+1} ... x_{T-S}

After T / S steps each half of each layer has been computed once. Memory is what is kept of the layers, and two pieces.
The numbers are those of the whole text at once, up to the order of float sums and, in bfloat16, to a rounding of the
cells between two pieces.

Glossary: B batch, D directions, T words, S words of a piece, P projection, L layers.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from .bilm import BiLM, BiLMState

PIECE_WORDS = 2048


def read_in_pieces(
    bilm: BiLM,
    token_vectors: Callable[[slice], Tensor],
    length: int,
    keep: Callable[[list[Tensor]], Tensor],
    state: BiLMState | None = None,
) -> tuple[Tensor, BiLMState]:
    """Runs the biLM over texts of equal length, without gradient.

    Args:
        bilm: in evaluation mode.
        token_vectors: gives the vectors `(B, n, P)` of a part of the texts, boundaries included.
        length: T, at least 1.
        keep: from L+1 layers `(B, n, DP)` to what is kept of them, `(K, B, n, DP)`. Each number must depend on the
            layers at its own word and place alone: the two halves are of different words.
        state: from the batch before, or None for zeros.

    Returns:
        what is kept, `(K, B, T, DP)`, and the state after these texts.
    """
    whole: Tensor | None = None
    for start in range(0, length, PIECE_WORDS):
        stop = min(start + PIECE_WORDS, length)
        parts = (slice(start, stop), slice(length - stop, length - start))[: bilm.num_directions]
        vectors = torch.cat([token_vectors(part) for part in parts], dim=-1)
        layers, state = bilm(vectors, vectors.new_ones(vectors.shape[:2], dtype=torch.bool), state)
        piece = keep(layers)
        whole = piece.new_empty(*piece.shape[:2], length, piece.shape[-1]) if whole is None else whole
        halves = (tensor.chunk(len(parts), -1) for tensor in (whole, piece))
        for part, target, source in zip(parts, *halves, strict=True):
            target[:, :, part] = source
    return cast(Tensor, whole), cast(BiLMState, state)
