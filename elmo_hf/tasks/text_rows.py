"""The words of each text in a row of their own, first word first, and the way back to the positions of a batch.

A batch's row may begin with padding, has boundaries around its words, and may hold a pair of texts side by side. What
comes after the biLM works on words alone:

    row      <pad> <S> a_1 a_2 </S> <S> b_1 </S>
    texts    a_1 a_2
             b_1

Glossary: B batch, T positions of a row, N texts (all first texts, then all second texts), W words of the longest text.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class TextRows:
    """Where the words of each text stand in a batch.

    Attributes:
        mask: `(N, W)`, True on words, which stand first; W is at least 1 where T is.
    """

    def __init__(self, masks: Sequence[Tensor]) -> None:
        """`masks` `(B, T)` are True on the words of the first text of each row, of the second, and so on."""
        mask = torch.cat(list(masks))
        # Words go to the front and the rest behind them, both in order: a stable sort that every exporter knows.
        place = torch.where(mask, mask.cumsum(dim=1), mask.sum(dim=1, keepdim=True) + (~mask).cumsum(dim=1)) - 1
        positions = torch.arange(mask.shape[1], device=mask.device).expand_as(place)
        order = torch.zeros_like(place).scatter(1, place, positions)
        if not torch.compiler.is_compiling():
            # How long the longest text is depends on the data, and a compiled shape must not.
            order = order[:, : max(int(mask.sum(dim=1).max()), 1)]
        self.num_texts = len(masks)
        self.batch_size, self.num_positions = masks[0].shape
        self.mask = mask.gather(1, order)
        self._order = order
        self._rows = torch.arange(self.batch_size, device=mask.device).repeat(len(masks)).unsqueeze(1)

    def take(self, values: Tensor) -> Tensor:
        """Maps `(B, T, ...)` to `(N, W, ...)`; what stands where the mask is False has no meaning."""
        return values[self._rows, self._order]

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Splits `(N, ...)` into `(B, ...)` of the first texts, of the second, and so on."""
        return values.unflatten(0, (self.num_texts, self.batch_size)).unbind()

    def put_back(self, values: Tensor) -> Tensor:
        """Maps `(N, W, ...)` to `(B, T, ...)`, zero where no word stands."""
        trailing = [1] * (values.dim() - 2)
        index = self._order.view(*self._order.shape, *trailing).expand_as(values)
        words = values.masked_fill(~self.mask.view(*self.mask.shape, *trailing), 0)
        rows = words.new_zeros(words.shape[0], self.num_positions, *values.shape[2:]).scatter(1, index, words)
        # Each position belongs to one text at most.
        return torch.stack(self.split(rows)).sum(dim=0)


def reverse_words(values: Tensor, mask: Tensor) -> Tensor:
    """Turns the words of each text around; `values` is `(N, W, D)`, `mask` `(N, W)` is True on words, which are first.

    Applied twice it gives the words in their order again. What stands after the words has no meaning.
    """
    places = mask.sum(dim=1, keepdim=True) - 1 - torch.arange(mask.shape[1], device=mask.device)
    return values.gather(1, places.clamp(min=0).unsqueeze(-1).expand_as(values))
