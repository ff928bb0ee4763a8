"""Which words of a batch are equal, so that each is computed once.

A word's context-free vector depends only on its ids and the token encoder. Words are compared by a hash of their ids,

    h(w) = sum_c w_c m^c mod 2^64        m an odd constant

and the result is then checked id by id: a hash collision costs time, never exactness.

Glossary: N words, C ids per word, U distinct words.
"""

import torch
from torch import Tensor

# m of h(w): Knuth's multiplier of a linear congruential generator modulo 2^64.
MULTIPLIER = 6364136223846793005


def distinct_rows(ids: Tensor, multiplier: int = MULTIPLIER) -> tuple[Tensor, Tensor]:
    """Each word of `ids` `(N, C)` or `(N,)` once, `(U, C)` or `(U,)`; and `(N,)`, the index of each among them."""
    words = ids.unsqueeze(1) if ids.dim() == 1 else ids
    powers = torch.full((words.shape[1],), multiplier, device=ids.device).cumprod(dim=0)
    hashes, which = (words * powers).sum(dim=1).unique(return_inverse=True)
    indices = torch.arange(len(ids), device=ids.device)
    distinct = ids[torch.full_like(hashes, len(ids)).scatter_reduce_(0, which, indices, "amin")]
    if not torch.equal(distinct[which], ids):
        # Two words share a hash: compare the ids themselves, which takes longer.
        return torch.unique(ids, dim=0, return_inverse=True)
    return distinct, which
