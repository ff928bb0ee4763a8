"""Ragged texts without their padding: which words are read at each step, in both directions.

Texts are sorted by falling number of words. At step t the forward direction reads each text's word t, and the backward
one the word t from the end. Only the texts that have more than t words take part, and those come first. The N words of
a batch stand step by step, each step's in the order of the texts:

    step 0: words of all texts | step 1: of the texts with two words or more | ...      b_0 >= b_1 >= ... of them

Where the mask is False nothing is read, wherever that is: the state stands still there.

Glossary: B batch, T positions, N words, b_t texts that take part in step t.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class ReadingOrder(NamedTuple):
    """How the words of a batch are read.

    Attributes:
        texts: `(B,)`, row in the batch of each text, by falling number of words.
        places: `(2, N)`, of each word read, forward and backward: where it stands among all B T positions.
        columns: b_t for every step.
        lengths: `(B,)`, words of each row of the batch.
    """

    texts: Tensor
    places: Tensor
    columns: list[int]
    lengths: Tensor


def reading_order(mask: Tensor) -> ReadingOrder:
    """The order for a `mask` `(B, T)` that is True on words."""
    lengths = mask.sum(dim=1)
    texts = lengths.argsort(descending=True, stable=True)
    words = mask.flatten().nonzero().squeeze(1)
    rows = words.div(mask.shape[1], rounding_mode="floor")
    forward = _words_before(mask).flatten()[words]
    backward = lengths[rows] - 1 - forward
    place_of_row = texts.argsort()[rows]
    places = torch.stack([words[(step * len(texts) + place_of_row).argsort()] for step in (forward, backward)])
    return ReadingOrder(texts, places, torch.bincount(forward).tolist(), lengths)


def keeps_in_order(order: ReadingOrder, mask: Tensor, resets: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Where the state is kept, and not reset, in the order of reading.

    Args:
        order: of the mask.
        mask: `(B, T)`, True on words.
        resets: of each direction, `(B, T)`, True where its state is set to zero; between words it counts for the next.

    Returns:
        `(2, N)`, False before which words the state is reset; `(2, B)`, False where it is reset after a text's last
        word, in the order of `order.texts`.
    """
    before_words, after_last = [], []
    for reset, step, places in zip(resets, (_words_before(mask), _words_after(mask)), order.places, strict=True):
        is_reset = torch.zeros(mask.shape[0], mask.shape[1] + 1, dtype=torch.long, device=mask.device)
        is_reset.scatter_add_(1, step, reset.long())  # column n: before the word read after n others
        before_words.append(is_reset.gather(1, step).flatten()[places] == 0)
        after_last.append(is_reset.gather(1, order.lengths.unsqueeze(1)).squeeze(1)[order.texts] == 0)
    return torch.stack(before_words), torch.stack(after_last)


def _words_before(mask: Tensor) -> Tensor:
    """`(B, T)`, words of the text before each position."""
    return mask.cumsum(dim=1) - mask.long()


def _words_after(mask: Tensor) -> Tensor:
    """`(B, T)`, words of the text after each position."""
    return mask.sum(dim=1, keepdim=True) - mask.cumsum(dim=1)
