"""Weights in eight bits, as torchao stores them: y = s (q v), integers q from -128 to 127 and a scale s for each row.

With few columns, torch's kernel multiplies with q itself, which reads one byte a weight. With more, blocks of q that
fit the cache are converted to bfloat16, or to float32 if the processor does not multiply in bfloat16; both hold q
exactly. Sums are float32; v and q v are rounded to bfloat16 either way, so a text gets the same vectors in every batch,
up to float rounding.
"""

from typing import Any

import torch
from torch import Tensor

from .products import BlockProducts, put

KERNEL_NUMBERS = 32  # numbers of a row that the kernel reads at once
KERNEL_ALIGNMENT = 64  # bytes; reading from other addresses can crash the process
BLOCK_NUMBERS = 1 << 21  # weights converted to floats at once, about: 4 MiB of bfloat16


class EightBitProducts(BlockProducts):
    """The weight of one direction, in place of a tensor `(m, n)` and of its products."""

    def __init__(
        self,
        values: Tensor,
        scales: Tensor,
        float_dtype: torch.dtype,
        kernel_columns: int,
        block_numbers: int = BLOCK_NUMBERS,
    ) -> None:
        """Takes q `(m, n)` and s `(m, 1)`.

        Up to `kernel_columns` columns take the kernel; with more, blocks of q become `float_dtype`.
        """
        few_columns = 0 if values.shape[1] % KERNEL_NUMBERS else kernel_columns + 1
        super().__init__(values.unsqueeze(0), values.nbytes, few_columns)
        self.values, self.scales, self.float_dtype, self.block_numbers = values, scales, float_dtype, block_numbers
        self.requires_grad = False

    def to(self, dtype: torch.dtype) -> "EightBitProducts":
        """The same weight, which multiplies vectors of any dtype."""
        return self

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
        """Writes the product with `vectors` `(1, n, b)` to `out` `(1, m, b)`; with `adds`, adds it to `out`."""
        rows = vectors[0].t().bfloat16().contiguous()  # (b, n)
        if self.wants_rows(len(rows)):  # it would round our scales
            product = torch._weight_int8pack_mm(rows, self.values, rows.new_ones(len(self.values))).t()
        else:
            product = self._by_blocks(rows)
        put(product * self.scales, out[0], adds)

    def _by_blocks(self, rows: Tensor) -> Tensor:
        """Multiplies q by columns, given as rows `(b, n)`: `(m, b)`."""
        columns, blocks = rows.to(self.float_dtype).t(), self.values.split(1 + self.block_numbers // rows.shape[1])
        floats = torch.empty_like(blocks[0], dtype=self.float_dtype)  # memory for each block in turn
        return torch.cat([torch.mm(floats[: len(block)].copy_(block), columns).bfloat16() for block in blocks])


def aligned_values(weight: Any) -> Tensor:
    """Q `(m, n)` of torchao's tensor; copied once if it is mapped from a file to where the kernel cannot read it."""
    if weight.qdata.data_ptr() % KERNEL_ALIGNMENT:
        with torch.inference_mode(False):
            weight.qdata = weight.qdata.clone()
    return weight.qdata


def is_eight_bit(weight: Any) -> bool:
    """Whether a weight is torchao's tensor of eight-bit weights for unchanged inputs, on a CPU and not being traced."""
    is_torchao = type(weight).__name__ == "Int8Tensor" and weight.act_quant_kwargs is weight.act_pre_scale is None
    is_by_row = is_torchao and weight.block_size[-1] == weight.shape[-1] and weight.device.type == "cpu"
    return is_by_row and not torch.jit.is_tracing()
