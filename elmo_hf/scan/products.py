"""Products of a large weight with few columns, at the speed of memory.

    y = W v       W (m, n), v (n, b): a step of an LSTM for b texts

With b in the tens, each weight that is read from memory is used for only a few multiplications. So W is multiplied in
blocks of rows that fit a core's cache, as one batched product, which also spreads them over the cores; no weight is
copied. With very few columns it is faster to store each column as a row: v^T W^T.

On AMD's processors torch's default library (Intel's MKL) takes twice the time of oneDNN for 8 columns or more, so
oneDNN multiplies there. For fewer columns, MKL is fastest with W v where W has more rows than columns, and blocks also
spread a single column over the cores.

Large weights are multiplied one direction at a time, D = 1; small weights of D directions are one batched product.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

IS_AMD = str(dict(getattr(torch.cpu, "get_capabilities", dict)()).get("cpu_name")).startswith("AMD")
FEW_COLUMNS = 1 << 30 if IS_AMD else 8  # with fewer columns, each is stored as a row
ONEDNN_COLUMNS = 8  # from this number on, oneDNN is faster on AMD's processors


class BlockProducts:
    """A weight `(D, m, n)` that multiplies columns."""

    def __init__(self, weight: Tensor, block_bytes: int, few_columns: int, is_amd: bool = IS_AMD) -> None:
        """Takes the bytes of a block; with fewer columns than `few_columns`, each column is stored as a row."""
        self.weight, self.block_bytes, self.few_columns, self.is_amd = weight, block_bytes, few_columns, is_amd

    def num_blocks(self, columns: int) -> int:
        """The count of blocks; each block has at least as many rows as there are columns."""
        blocks, (directions, height, _), num_bytes = 1, self.weight.shape, self.weight.nbytes
        if directions == 1 and self.weight.device.type == "cpu" and (columns > 1 or self.is_amd):
            while (
                height % (2 * blocks) == 0
                and height >= 2 * blocks * columns
                and num_bytes >= 2 * blocks * self.block_bytes
            ):
                blocks *= 2
        return blocks

    def wants_rows(self, columns: int) -> bool:
        """Whether a product with `columns` columns is faster if each is stored as a row."""
        return columns < self.few_columns

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
        """Writes W times `vectors` `(D, n, b)` to `out` `(D, m, b)`; with `adds`, adds it to `out`."""
        weight, (directions, height, columns) = self.weight, out.shape
        blocks, as_rows = self.num_blocks(columns), self.wants_rows(columns)
        if directions == columns == blocks == 1:
            if adds:
                torch.addmm(out[0], weight[0], vectors[0], out=out[0])
            else:
                torch.mm(weight[0], vectors[0], out=out[0])
            return
        if self.is_amd and columns >= ONEDNN_COLUMNS and directions == 1 and can_take_onednn(weight):
            put(times(vectors[0].t().contiguous(), weight[0]).t(), out[0], adds)
            return
        if blocks > 1 and as_rows:
            in_blocks = weight.view(blocks, height // blocks, -1)
            rows = vectors.transpose(1, 2).contiguous().expand(blocks, -1, -1)  # (blocks, b, n)
            if self.is_amd and height > weight.shape[2]:
                put(torch.bmm(in_blocks, rows.transpose(1, 2)).view_as(out), out, adds)
            else:
                product = torch.bmm(rows, in_blocks.transpose(1, 2)).transpose(0, 1)
                put(product, out.transpose(1, 2).view(columns, blocks, -1), adds)
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


class WeightProducts(NamedTuple):
    """`Weights` of D directions whose matrices multiply columns."""

    inputs: BlockProducts
    bias: Tensor
    recurrent: BlockProducts
    projection: BlockProducts | None


def columns_in(memory: Tensor, directions: int, height: int, columns: int, as_rows: bool) -> Tensor:
    """A view `(D, height, columns)` of the beginning of `memory`."""
    of_columns = memory[: directions * height * columns]
    if as_rows:
        return of_columns.view(directions, columns, height).transpose(1, 2)
    return of_columns.view(directions, height, columns)


def can_take_onednn(weight: Any, dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> bool:
    """Whether oneDNN multiplies a weight: it must be a plain tensor of one of `dtypes`, on a CPU."""
    if type(getattr(weight, "data", None)) is not Tensor or torch.jit.is_tracing():  # no tracing through oneDNN
        return False
    return weight.dtype in dtypes and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()


def times(rows: Tensor, weight: Tensor) -> Tensor:
    """`rows` `(b, n)` times the transpose of a weight `(m, n)`, plain or in oneDNN's layout, by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")


def put(product: Tensor, out: Tensor, adds: bool) -> None:
    """Writes a product to `out`; with `adds`, adds it to `out`."""
    if adds:
        out += product
    else:
        out.copy_(product)
