"""Products of large weights with few columns, at the speed of memory, with the weights in the layout of `nn.Linear`.

    y = W v       W (m, n), v (n, b): a step of an LSTM for b texts

With b in the tens, every weight is read from memory for a few multiplications. Such a product is only as fast as
reading if W is read in blocks of rows that fit a core's cache, which also spreads them over the cores. So it is one
batched product of blocks, and no weight is copied. With very few columns, storing each vector as a row is faster.

Large weights come one direction at a time, D = 1; small ones of D directions are one batched product.
"""

import torch
from torch import Tensor

from .eight_bit_products import EightBitWeight, multiply_eight_bit

# Bytes of weights in one block of a product: half of the smallest second-level cache of today's servers.
BLOCK_BYTES = 1 << 19
FEW_COLUMNS = 8  # with fewer, vectors are stored as rows


def multiply(weight: Tensor, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
    """Writes `weight` `(D, m, n)` times `vectors` `(D, n, b)` to `out` `(D, m, b)`; with `adds`, adds it there."""
    if isinstance(weight, EightBitWeight):
        return multiply_eight_bit(weight, vectors, out, adds)
    directions, height, columns = out.shape
    if directions == columns == 1:
        if adds:
            torch.addmm(out[0], weight[0], vectors[0], out=out[0])
        else:
            torch.mm(weight[0], vectors[0], out=out[0])
        return
    blocks, as_rows = num_blocks(weight, columns), stored_as_rows(columns)
    if blocks > 1 and as_rows:
        in_blocks = weight.view(blocks, height // blocks, -1)
        rows = vectors.transpose(1, 2).contiguous().expand(blocks, -1, -1)  # (blocks, b, n)
        product = torch.bmm(rows, in_blocks.transpose(1, 2)).transpose(0, 1)
        out_as_rows = out.transpose(1, 2).view(columns, blocks, -1)
        if adds:
            out_as_rows += product
        else:
            out_as_rows.copy_(product)
        return
    if blocks > 1:
        weight, out = weight.view(blocks, height // blocks, -1), out.view(blocks, height // blocks, columns)
        vectors = vectors.contiguous().expand(blocks, -1, -1)
    first, second = weight, vectors
    if as_rows:
        first, second, out = vectors.transpose(1, 2), weight.transpose(1, 2), out.transpose(1, 2)
    if adds:
        torch.baddbmm(out, first, second, out=out)
    else:
        torch.bmm(first, second, out=out)


def multiply_back(weight: Tensor, vectors: Tensor) -> Tensor:
    """The transpose of `weight` `(D, m, n)` times `vectors` `(D, m, b)`: `(D, n, b)`."""
    blocks = num_blocks(weight, vectors.shape[2])
    if blocks == 1:
        return torch.bmm(vectors.transpose(1, 2), weight).transpose(1, 2)
    of_blocks = torch.bmm(vectors[0].unflatten(0, (blocks, -1)).transpose(1, 2), weight[0].unflatten(0, (blocks, -1)))
    return of_blocks.sum(dim=0).t().unsqueeze(0)


def num_blocks(weight: Tensor, columns: int) -> int:
    """The count of blocks: a block has at most the bytes of a cache and at least as many rows as there are columns.

    One column reads every weight once and needs no cache.
    """
    blocks, (directions, height, _) = 1, weight.shape
    if directions == 1 and columns > 1 and weight.device.type == "cpu":
        num_bytes = weight.nbytes
        while height % (2 * blocks) == 0 and height >= 2 * blocks * columns and num_bytes >= 2 * blocks * BLOCK_BYTES:
            blocks *= 2
    return blocks


def stored_as_rows(columns: int) -> bool:
    """Whether columns are few, so that each is stored as a row."""
    return columns < FEW_COLUMNS


def columns_in(memory: Tensor, directions: int, height: int, columns: int) -> Tensor:
    """A view `(D, height, columns)` of the beginning of `memory`."""
    of_columns = memory[: directions * height * columns]
    if stored_as_rows(columns):
        return of_columns.view(directions, columns, height).transpose(1, 2)
    return of_columns.view(directions, height, columns)
