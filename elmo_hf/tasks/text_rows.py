"""Takes the words of each text from a batch, and puts vectors back in their positions.

A batch row may hold padding, boundaries and a pair of texts; the layers after the biLM see words only:

    row      <pad> <S> a_1 a_2 </S> <S> b_1 </S>
    texts    a_1 a_2
             b_1

Glossary: B batch, T positions of a row, N texts (all first texts, then all second texts), W words of the longest text.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class TextRows:
    """Moves values between batch rows and texts; `mask` `(N, W)` is True on words, which come first; W > 0 if T > 0."""

    def __init__(self, masks: Sequence[Tensor]) -> None:
        """Takes a mask `(B, T)` of the words of each row's first text, and one of its second text."""
        mask = torch.cat(list(masks))
        # A stable sort that moves words to the front, from operations that every exporter supports.
        place = torch.where(mask, mask.cumsum(dim=1), mask.sum(dim=1, keepdim=True) + (~mask).cumsum(dim=1)) - 1
        positions = torch.arange(mask.shape[1], device=mask.device).expand_as(place)
        order = torch.zeros_like(place).scatter(1, place, positions)
        if not torch.compiler.is_compiling():
            # Cuts to the longest text; a compiled shape cannot depend on the data.
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
