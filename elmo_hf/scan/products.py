"""Products of a large weight with few vectors, at the speed of memory.

    y = W v + c      W (m, n); b vectors v, the rows of (b, n), give the rows of (b, m): a step of an LSTM for b texts

With b in the tens, each weight that is read from memory is used for only a few multiplications. So the order in which W
lies in memory decides the speed (docs/speed.md):

    8 vectors or more    oneDNN; up to 64 vectors are its second factor, which it copies before it multiplies
    else                 a batched product of blocks of W's rows; each block fits a core's cache
    always               oneDNN, with a copy of W in its own layout, if such a copy is kept

In bfloat16, oneDNN multiplies any number of vectors, and 8 steps repay the copy. On a processor without instructions
for bfloat16, W is a float32 copy, and products are rounded to bfloat16. On AMD's processors MKL, torch's library,
multiplies blocks fastest as W v^T where W has more rows than columns, and blocks spread a single vector over the cores.

Large weights are multiplied one direction at a time, D = 1; small weights of D directions are one batched product.
"""

import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .private_names import by_onednn, has_onednn, has_onednn_layout, in_onednn_layout, is_tracing, processor

IS_AMD = str(processor().get("cpu_name")).startswith("AMD")
# The numbers of vectors from which on oneDNN is faster, and the weight its second factor; the layout serves any number.
ONEDNN_ROWS, MANY_ROWS = 8, 64
# By dtype, how many steps repay the copy.
REPAYS = {torch.bfloat16: 8}


class Products(Protocol):
    """A weight that multiplies vectors."""

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """W times each of the rows `(D, b, n)`, as `(D, b, m)`, plus a tensor of that shape or `(D, 1, m)`."""


class PlainProducts:
    """A weight `(D, m, n)` as it is."""

    def __init__(self, weight: Tensor, block_bytes: int, is_amd: bool = IS_AMD) -> None:
        """Takes the bytes of a block."""
        self.weight, self.columns, self.block_bytes, self.is_amd = weight, weight.mT, block_bytes, is_amd

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        weight, (directions, count, _) = self.weight, rows.shape
        of_onednn = directions == 1 and (count >= ONEDNN_ROWS or weight.dtype == torch.bfloat16)
        if of_onednn and can_take_onednn(weight[0]):
            if count >= MANY_ROWS or weight.dtype == torch.bfloat16:
                return by_onednn(rows[0], weight[0], None if plus is None else plus[0])[None]
            product, sums = by_onednn(weight[0], rows[0], None).t(), rows.new_empty(1, count, weight.shape[1])
            return sums.copy_(product) if plus is None else torch.add(plus, product, out=sums)
        blocks = self.num_blocks(count)
        if blocks == 1:
            return torch.bmm(rows, self.columns) if plus is None else torch.baddbmm(plus, rows, self.columns)
        in_blocks = weight.view(blocks, -1, weight.shape[2])
        if self.is_amd and weight.shape[1] > weight.shape[2]:
            products = torch.bmm(in_blocks, rows.mT.expand(blocks, -1, -1)).permute(2, 0, 1)
        else:
            products = torch.bmm(rows.expand(blocks, -1, -1), in_blocks.mT).transpose(0, 1)
        products = products[None]  # (1, b, blocks, m / blocks)
        return (products if plus is None else plus.unflatten(2, (blocks, -1)) + products).flatten(2).contiguous()

    def num_blocks(self, count: int) -> int:
        """The number of blocks for `count` vectors: a power of two, so that a block has at least as many rows."""
        directions, height, _ = self.weight.shape
        if directions > 1 or self.weight.device.type != "cpu" or (count == 1 and not self.is_amd):
            return 1
        most = min(height // count, self.weight.nbytes // self.block_bytes)
        return math.gcd(height, 1 << max(most.bit_length() - 1, 0))


class PackedProducts:
    """A weight `(m, n)` in oneDNN's layout."""

    def __init__(self, weight: Tensor) -> None:
        """Copies the weight into the layout."""
        self.packed = in_onednn_layout(weight.detach(), ONEDNN_ROWS)

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        return by_onednn(rows[0], self.packed, None if plus is None else plus[0])[None]


class WideProducts(NamedTuple):
    """A weight in bfloat16 that multiplies as a copy in float32 does."""

    products: Products  # of the copy

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        return self.products.times(rows.float(), None if plus is None else plus.float()).to(rows.dtype)


class WeightProducts(NamedTuple):
    """`Weights` of D directions whose matrices multiply vectors; the bias is `(D, 1, 4H)`."""

    inputs: Products
    bias: Tensor
    recurrent: Products
    projection: Products | None


def can_take_onednn(weight: Any, multiplies_bfloat16: bool = True) -> bool:
    """Whether oneDNN multiplies a weight: it must be a plain tensor on a CPU, in float32, or in bfloat16 if told so."""
    if type(getattr(weight, "data", None)) is not Tensor or is_tracing():  # no tracing through oneDNN
        return False
    dtypes = (torch.float32, torch.bfloat16)[: 1 + multiplies_bfloat16]
    is_possible = weight.dtype in dtypes and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    return is_possible and has_onednn()


def can_pack(weight: Any, multiplies_bfloat16: bool = True) -> bool:
    """Whether oneDNN multiplies a weight, and a copy of it in its own layout."""
    return can_take_onednn(weight, multiplies_bfloat16) and has_onednn_layout()
