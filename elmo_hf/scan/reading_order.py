"""The order in which each direction reads the words of a batch, without the padding.

Texts are sorted by falling word count. At step t the forward direction reads word t of each text, the backward
direction word t from the end. Only texts with more than t words take part, and they come first. So the N words of a
batch are arranged step by step, each step in the order of the texts:

    step 0: words of all texts | step 1: words of texts with two words or more | ...      b_0 >= b_1 >= ... words

Positions where the mask is False are not read, wherever they are, and do not change the state.

Glossary: D directions, B batch, T positions, N words, b_t texts that take part in step t.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ReadingOrder(NamedTuple):
    """How the words of a batch are read."""

    texts: Tensor  # (B,), the batch row of each text, by falling word count
    ranks: Tensor  # (B,), the inverse: the index in `texts` of each batch row
    places: Tensor  # (D, N), for each word that a direction reads: its index among the B T positions
    columns: list[int]  # b_t of every step
    keeps: Tensor | None  # (D, N), False on words before which the state is reset; None means no resets
    keeps_at_end: Tensor | None  # (D, B), in the order of `texts`, False on those reset after the last word


def reading_order(mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> ReadingOrder:
    """Computes the reading order from `mask` and `resets` of a `BatchLayout`; waits for the GPU if they are on one.

    A reset at a position without a word applies to the next word read.
    """
    lengths = mask.sum(dim=1)
    texts = lengths.argsort(descending=True, stable=True)
    ranks = texts.argsort()
    words = mask.flatten().nonzero().squeeze(1)
    rows = words.div(mask.shape[1], rounding_mode="floor")
    before = mask.cumsum(dim=1) - mask.long()  # (B, T), words of the text before each position
    after = lengths.unsqueeze(1) - mask.cumsum(dim=1)
    counts = (before, after)[:num_directions]
    steps = [count.flatten()[words] for count in counts]
    places = torch.stack([words[(step * len(texts) + ranks[rows]).argsort()] for step in steps])
    keeps, keeps_at_end = [], []
    for reset, step, place in zip(resets or (), counts, places, strict=False):
        resets_before = mask.new_zeros(mask.shape[0], mask.shape[1] + 1, dtype=torch.long)
        resets_before.scatter_add_(1, step, reset.long())  # column n: before the word read after n others
        keeps.append(resets_before.gather(1, step).flatten()[place] == 0)
        keeps_at_end.append(resets_before.gather(1, lengths.unsqueeze(1)).squeeze(1)[texts] == 0)
    stacked = [torch.stack(flags) if flags else None for flags in (keeps, keeps_at_end)]
    return ReadingOrder(texts, ranks, places, torch.bincount(steps[0]).tolist(), *stacked)


class BatchLayout:
    """The positions of words and of resets of the state in a batch, for all layers."""

    def __init__(self, mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> None:
        """Keeps `mask` `(B, T)`, True on words, and `resets`; computes the reading order on first use.

        `resets` is `(B, T)` for each direction, True on words before which its state is set to zero; None means never.
        """
        self.mask, self.resets, self.num_directions = mask, resets, num_directions

    def on(self, device: torch.device) -> "BatchLayout":
        """The same layout on another device."""
        if device == self.mask.device:
            return self
        resets = None if self.resets is None else [reset.to(device) for reset in self.resets]
        return BatchLayout(self.mask.to(device), resets, self.num_directions)

    @functools.cached_property
    def order(self) -> ReadingOrder:
        """The reading order; waits for the GPU if the mask is on one."""
        return reading_order(self.mask, self.resets, self.num_directions)
