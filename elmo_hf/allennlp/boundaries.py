"""`<S>` and `</S>` around the words of each row, and away again."""

from typing import Any

import torch
from torch import Tensor, nn


def add_sentence_boundaries(values: Tensor, mask: Tensor, boundaries: Any) -> tuple[Tensor, Tensor]:
    """Puts `boundaries` `(2, N)` around the words of each row: `(B, T, N)` to `(B, T+2, N)`, and the mask."""
    places = torch.arange(mask.shape[1] + 1, device=mask.device)
    behind = (nn.functional.pad(mask, (1, 0)) * places).amax(dim=1) + 1
    rows = torch.arange(len(mask), device=mask.device)
    values = nn.functional.pad(values, (0, 0, 1, 1))
    values[:, 0], values[rows, behind] = boundaries[0], boundaries[1]
    mask = nn.functional.pad(mask, (1, 1))
    mask[:, 0], mask[rows, behind] = True, True
    return values, mask


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Removes the boundaries: `(B, T+2, N)` to `(B, T, N)`, zero on padding, and the mask of the words `(B, T)`."""
    mask = mask.bool()
    places = torch.arange(mask.shape[1], device=mask.device)
    is_last = places == (mask * places).amax(dim=1, keepdim=True)
    is_word = (mask & ~is_last)[:, 1:-1]
    return tensor[:, 1:-1].masked_fill(~is_word.unsqueeze(-1), 0), is_word
