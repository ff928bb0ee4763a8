"""One vector for a text, from the vectors of its words.

    mean    sum_t e_t / W
    max     max_t e_t, for each feature

over the W words of a text, without boundaries and padding; zero for a text without words.

Glossary: B texts, T positions, D width of a word's vector.
"""

import torch
from torch import Tensor, nn


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """Mean of `vectors` `(B, T, D)` where `mask` `(B, T)` is True: `(B, D)`, zero if `mask` is all False."""
    # In half precision a sum over a long text would overflow.
    wide = torch.promote_types(vectors.dtype, torch.float32)
    total = vectors.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1, dtype=wide)
    return (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).to(vectors.dtype)


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum of each feature; arguments and result are as in `masked_mean`."""
    mask = mask.unsqueeze(-1)
    lowest = torch.finfo(vectors.dtype).min
    # One more position, because the maximum over no positions is an error.
    filled = nn.functional.pad(vectors.masked_fill(~mask, lowest), (0, 0, 0, 1), value=lowest)
    return filled.amax(dim=1).masked_fill(~mask.any(dim=1), 0)
