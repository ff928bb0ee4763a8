"""Products of large weights with few columns, at the speed of memory.

    y = W v       W (m, n), v (n, b): a step of an LSTM for b texts

With b in the tens, every weight is read from memory for a few multiplications. The fastest way differs:

    blocks    W in blocks of rows that fit a core's cache, which also spreads them over the cores, as one batched
              product; no weight is copied. With very few columns, storing each vector as a row is faster: v^T W^T.
    amd       the same, but W v if W has more rows than columns: what Intel's library does best on AMD's processors
    plain     one product, a single column as two
    packed    in another layout of W: `packed_weights.py`; small weights, and W_x, take the default way

`default_way` is the rule, so that one machine always adds in one order; `way_of_products` overrides it. A weight that
is no tensor multiplies by itself: `packed_weights.py`, `eight_bit_products.py`.

Large weights come one direction at a time, D = 1; small ones of D directions are one batched product.
"""

import functools
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from .path import requesting

WAYS = ("blocks", "amd", "plain", "packed")
IS_AMD = str(dict(getattr(torch.cpu, "get_capabilities", dict)()).get("cpu_name")).startswith("AMD")
# Bytes of weights in one block of a product: half of the smallest second-level cache of today's servers.
BLOCK_BYTES = 1 << 19
FEW_COLUMNS = 16 if IS_AMD else 8  # with fewer, vectors are stored as rows
requested_way: ContextVar[str | None] = ContextVar("way_of_products", default=None)


class OtherWeight(Protocol):
    """A weight of one direction that multiplies by itself."""

    shape: tuple[int, int, int]  # (1, m, n)

    def wants_rows(self, columns: int) -> bool:
        """Whether it is fastest if each of so many columns is stored as a row."""

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool) -> None:
        """Writes the product as `multiply` does."""


def way_of_products(way: str) -> AbstractContextManager[None]:
    """Requests a way for the `with` block, in this thread; raises ValueError if it is not one of `WAYS`."""
    return requesting(requested_way, "way", way, WAYS)


def default_way(dtype: torch.dtype) -> str:
    """The fastest way for weights of `dtype` on this processor, as measured: docs/speed.md."""
    if dtype == torch.bfloat16 and multiplies_bfloat16():
        return "plain"
    return "amd" if IS_AMD else "blocks"


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    # A torch without the question counts as a processor without the instructions.
    return any(getattr(torch.cpu, name, bool)() for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))


def multiply(weight: Tensor | OtherWeight, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
    """Writes `weight` `(D, m, n)` times `vectors` `(D, n, b)` to `out` `(D, m, b)`; with `adds`, adds it there."""
    if not isinstance(weight, Tensor):
        weight.multiply(vectors, out, adds)
        return
    (directions, height, columns), way, blocks = out.shape, _way(weight), num_blocks(weight, out.shape[2])
    if way == "plain" and directions == 1 and stored_as_rows(columns):
        # Tiles take as long for two columns as for one, and longer for rows.
        product = torch.mm(weight[0], vectors[0].repeat(1, 2) if columns == 1 else vectors[0])
        put(product[:, :columns], out[0], adds)
        return
    if directions == 1 and (way == "plain" or columns == blocks == 1):
        if adds:
            torch.addmm(out[0], weight[0], vectors[0], out=out[0])
        else:
            torch.mm(weight[0], vectors[0], out=out[0])
        return
    as_rows = stored_as_rows(columns)
    if blocks > 1 and as_rows:
        in_blocks = weight.view(blocks, height // blocks, -1)
        rows = vectors.transpose(1, 2).contiguous().expand(blocks, -1, -1)  # (blocks, b, n)
        if way == "amd" and height > weight.shape[2]:
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


def num_blocks(weight: Tensor, columns: int) -> int:
    """The count of blocks: a block has at most the bytes of a cache and at least as many rows as there are columns.

    One column reads every weight once and needs no cache, but on AMD's processors blocks spread it over the cores.
    """
    blocks, (directions, height, _), way = 1, weight.shape, _way(weight)
    is_served = weight.device.type == "cpu" and way != "plain" and (columns > 1 or way == "amd")
    if directions == 1 and is_served:
        num_bytes = weight.nbytes
        while height % (2 * blocks) == 0 and height >= 2 * blocks * columns and num_bytes >= 2 * blocks * BLOCK_BYTES:
            blocks *= 2
    return blocks


def stored_as_rows(columns: int) -> bool:
    """Whether columns are so few that each is stored as a row."""
    return columns < FEW_COLUMNS


def wants_rows(weight: Tensor | OtherWeight, columns: int) -> bool:
    """Whether, for products with `weight`, each column is stored as a row."""
    return stored_as_rows(columns) if isinstance(weight, Tensor) else weight.wants_rows(columns)


def columns_in(memory: Tensor, directions: int, height: int, columns: int, as_rows: bool) -> Tensor:
    """A view `(D, height, columns)` of the beginning of `memory`."""
    of_columns = memory[: directions * height * columns]
    if as_rows:
        return of_columns.view(directions, columns, height).transpose(1, 2)
    return of_columns.view(directions, height, columns)


def _way(weight: Tensor) -> str:
    way = requested_way.get()
    return default_way(weight.dtype) if way in (None, "packed") else way


def put(product: Tensor, out: Tensor, adds: bool) -> None:
    """Writes a product to `out`; with `adds`, adds it there."""
    if adds:
        out += product
    else:
        out.copy_(product)
