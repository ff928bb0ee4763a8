"""Word vectors kept from call to call, and which words of a batch are equal.

A word's vector depends only on its ids and the token encoder, so it can be computed once for many batches. The caller
chooses the kept words (`ElmoModel.cache_words`); no other call adds or drops any, so equal words get equal vectors
whatever was computed in between. Words are found by a hash of their ids,

    h(w) = sum_c w_c m^c mod 2^64        m an odd constant

by sorting or binary search, and then compared id by id: a hash collision costs time, never exactness.

The kept vectors are used only while all they were computed from is unchanged: the weights (address, and torch's count
of changes in place), their type and device, and autocast. They are not used in compiled graphs, nor if the weights need
a gradient, come from inference mode, or carry hooks, adapters or quantisation. Copies and saved folders hold no words.

A kept vector equals one computed in a batch up to the order of float sums (a matrix product of more rows may round
differently): about 1e-6 in float32. Torch does not count changes through `parameter.data`, so they go unnoticed.

Glossary: N words, C ids per word, U distinct words, K kept words, P projection.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..scan.parameters import needs_gradient
from ..scan.path import is_hooked
from .token_encoder import CharacterCNN, Highway, WordEmbedding

# m of h(w): Knuth's multiplier of a linear congruential generator modulo 2^64.
MULTIPLIER = 6364136223846793005
PLAIN_MODULES = (CharacterCNN, Highway, WordEmbedding, nn.ModuleList, nn.Embedding, nn.Conv1d, nn.Linear)


class Table(NamedTuple):
    """The kept words, and what their vectors were computed from."""

    hashes: Tensor  # (K,) int64, h of each word, ascending
    ids: Tensor  # (K, C), or (K,) for word ids
    vectors: Tensor  # (K, P)
    conditions: tuple[Any, ...]
    weights: list[Tensor]  # held, so that their memory cannot be reused for others


class WordCache:
    """The vectors of some words, used while the token encoder would compute the same."""

    _table: Table | None = None

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table.hashes)

    def __reduce__(self) -> tuple[type["WordCache"], tuple[()]]:
        """Gives copies and pickles an empty cache."""
        return WordCache, ()

    def clear(self) -> None:
        """Forgets all words."""
        self._table = None

    def fill(self, ids: Tensor, encoder: nn.Module) -> None:
        """Computes and keeps the words `ids` `(N, C)` or `(N,)`, unless changes of the encoder would go unnoticed."""
        self.clear()
        conditions = _conditions(encoder)
        if conditions is None or len(ids) == 0:
            return
        # Tensors made in inference mode could not serve in training a model on top.
        with torch.inference_mode(False), torch.no_grad():
            distinct, _ = distinct_rows(ids.clone())
            hashes, order = _hash_rows(distinct).sort()
            distinct = distinct[order]
            weights = [weight.detach() for weight in encoder.parameters()]
            self._table = Table(hashes, distinct, encoder(distinct), conditions, weights)

    def embed(self, ids: Tensor, encoder: nn.Module) -> Tensor:
        """Vectors `(N, P)` of the words `ids` `(N, C)` or `(N,)`; computes those not kept."""
        table = self._table
        if table is None or needs_gradient(*encoder.parameters()) or table.conditions != _conditions(encoder):
            return encoder(ids)
        places = torch.searchsorted(table.hashes, _hash_rows(ids)).clamp(max=len(table.hashes) - 1)
        is_kept = table.ids[places] == ids
        if ids.dim() == 2:
            is_kept = is_kept.all(dim=1)
        vectors = table.vectors[places]
        if not is_kept.all():
            vectors[~is_kept] = encoder(ids[~is_kept])
        return vectors


def distinct_rows(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Each word of `ids` `(N, C)` or `(N,)` once, `(U, C)` or `(U,)`; and `(N,)`, the index of each among them."""
    hashes, which = _hash_rows(ids).unique(return_inverse=True)
    indices = torch.arange(len(ids), device=ids.device)
    distinct = ids[torch.full_like(hashes, len(ids)).scatter_reduce_(0, which, indices, "amin")]
    if not torch.equal(distinct[which], ids):
        # Two words share a hash: compare the ids themselves, which takes longer.
        return torch.unique(ids, dim=0, return_inverse=True)
    return distinct, which


def _hash_rows(ids: Tensor) -> Tensor:
    """`(N,)`, the hash h of each word."""
    words = ids.unsqueeze(1) if ids.dim() == 1 else ids
    powers = torch.full((words.shape[1],), MULTIPLIER, device=ids.device).cumprod(dim=0)
    return (words * powers).sum(dim=1)


def _conditions(encoder: nn.Module) -> tuple[Any, ...] | None:
    """All that a word's vector depends on besides its ids, or None if changes of it would go unnoticed."""
    weights = list(encoder.parameters())
    is_plain = all(type(each) in PLAIN_MODULES and not is_hooked(each) for each in encoder.modules())
    # A replica of `nn.DataParallel` has no parameters of its own.
    if not is_plain or not weights or any(type(each) is not nn.Parameter or each.is_inference() for each in weights):
        return None
    kind = weights[0].device.type
    autocast = (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
    return (*autocast, *((weight.data_ptr(), weight._version, weight.dtype, weight.device) for weight in weights))
