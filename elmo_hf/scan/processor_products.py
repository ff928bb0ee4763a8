"""Products of large weights with few columns as single processors do them best; `products.py` has the idea.

blocks    `BlockProducts`
amd       blocks too, but W v if W has more rows than columns: what Intel's library does best on AMD's processors
plain     one product, a single column as two: for bfloat16, if the processor multiplies it
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from transformers.utils import logging

from .products import BlockProducts, put

logger = logging.get_logger(__name__)


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16, and oneDNN may use them."""
    has_instructions = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return has_instructions and onednn_has_bfloat16()


def onednn_has_bfloat16() -> bool:
    """Whether oneDNN has products of bfloat16: with AVX512, also without instructions for bfloat16."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def warn_of_bfloat16(multiplies: bool) -> None:
    """Warns, once a process, that products of bfloat16 are slow, if the processor does not multiply it."""
    if not multiplies:
        logger.warning_once(
            "This processor does not multiply bfloat16, so bfloat16 is many times slower than float32: load the model "
            "with dtype=torch.float32, and train without bf16."
        )


class PlainProducts(BlockProducts):
    """One product for each direction."""

    def num_blocks(self, columns: int) -> int:
        """One."""
        return 1

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
        """Multiplies as `BlockProducts` does."""
        columns, weight = out.shape[2], self.weight[0]
        if len(self.weight) > 1:
            super().multiply(vectors, out, adds)
        elif self.wants_rows(columns):
            # Tiles take as long for two columns as for one, and longer for rows.
            product = torch.mm(weight, vectors[0].repeat(1, 2) if columns == 1 else vectors[0])
            put(product[:, :columns], out[0], adds)
        elif adds:
            torch.addmm(out[0], weight, vectors[0], out=out[0])
        else:
            torch.mm(weight, vectors[0], out=out[0])


WAYS: dict[str, Callable[..., BlockProducts]] = {
    "blocks": functools.partial(BlockProducts, is_amd=False),
    "amd": functools.partial(BlockProducts, is_amd=True),
    "plain": PlainProducts,
}
