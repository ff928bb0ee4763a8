"""Products of large weights with few columns, as fast as memory allows, of the weights as they lie in `nn.Linear`.

    y = W v       W (m, n), v (n, b): a step of an LSTM for b texts

With b in the tens, every weight is read from memory for a few multiplications. Such a product is as fast as reading
only if the rows of W come in blocks of the size of a core's cache, which also spreads them over the cores; so it is one
batched product of blocks, and nothing is copied or laid out anew. With very few columns it is faster if vectors lie as
rows, one after the other.

Large weights come one direction at a time, D = 1; small ones of D directions are one batched product.
"""

import torch
from torch import Tensor

# Bytes of weights in one block of a product. Half of the smallest second-level cache of today's servers.
BLOCK_BYTES = 1 << 19
# Below this many columns, vectors are rows.
FEW_COLUMNS = 8


def multiply(weight: Tensor, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
    """`out` `(D, m, b)` becomes `weight` `(D, m, n)` times `vectors` `(D, n, b)`, or with `adds` has it added."""
    directions, rows, columns = out.shape
    if directions == columns == 1:
        if adds:
            torch.addmm(out[0], weight[0], vectors[0], out=out[0])
        else:
            torch.mm(weight[0], vectors[0], out=out[0])
        return
    blocks = num_blocks(weight, columns)
    if blocks > 1 and lie_as_rows(directions, columns):
        in_blocks = weight.view(blocks, rows // blocks, -1)
        as_rows = vectors.transpose(1, 2).contiguous().expand(blocks, -1, -1)  # (blocks, b, n)
        product = torch.bmm(as_rows, in_blocks.transpose(1, 2)).transpose(0, 1)
        out_as_rows = out.transpose(1, 2).view(columns, blocks, -1)
        if adds:
            out_as_rows += product
        else:
            out_as_rows.copy_(product)
        return
    if blocks > 1:
        weight, out = weight.view(blocks, rows // blocks, -1), out.view(blocks, rows // blocks, columns)
        vectors = vectors.contiguous().expand(blocks, -1, -1)
    if adds:
        torch.baddbmm(out, weight, vectors, out=out)
    else:
        torch.bmm(weight, vectors, out=out)


def multiply_back(weight: Tensor, vectors: Tensor) -> Tensor:
    """The transpose of `weight` `(D, m, n)` times `vectors` `(D, m, b)`: `(D, n, b)`."""
    blocks = num_blocks(weight, vectors.shape[2])
    if blocks == 1:
        return torch.bmm(vectors.transpose(1, 2), weight).transpose(1, 2)
    of_blocks = torch.bmm(vectors[0].unflatten(0, (blocks, -1)).transpose(1, 2), weight[0].unflatten(0, (blocks, -1)))
    return of_blocks.sum(dim=0).t().unsqueeze(0)


def num_blocks(weight: Tensor, columns: int) -> int:
    """Into how many blocks the rows are cut: of no more bytes than a cache holds, of no fewer rows than columns.

    One column needs every weight once, and no cache.
    """
    blocks = 1
    if len(weight) == 1 and weight.device.type == "cpu" and columns > 1:
        rows, num_bytes = weight.shape[1], weight.nbytes
        while rows % (2 * blocks) == 0 and rows >= 2 * blocks * columns and num_bytes >= 2 * blocks * BLOCK_BYTES:
            blocks *= 2
    return blocks


def lie_as_rows(directions: int, columns: int) -> bool:
    """Whether columns are few enough for vectors to lie as rows."""
    return directions == 1 and columns < FEW_COLUMNS


def columns_in(memory: Tensor, directions: int, rows: int, columns: int) -> Tensor:
    """`(D, rows, columns)` in the beginning of a piece of memory."""
    of_columns = memory[: directions * rows * columns]
    if lie_as_rows(directions, columns):
        return of_columns.view(directions, columns, rows).transpose(1, 2)
    return of_columns.view(directions, rows, columns)
