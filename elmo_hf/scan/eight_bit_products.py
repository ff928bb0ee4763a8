"""Weights in eight bits: y = s (q v), integers q from -128 to 127 and a scale s a row, as torchao has them.

With few columns torch's kernel reads q, a byte a weight. With more, blocks of q that fit the cache become bfloat16, or
float32 if the processor does not multiply in bfloat16; both hold q exactly. Sums are float32; v and q v are rounded to
bfloat16 either way, so a text has the same vectors in every batch, but for sums that another order rounds otherwise.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .column_products import IS_AMD, multiplies_bfloat16, put
from .path import is_hooked

KERNEL_NUMBERS = 32  # the kernel reads so many numbers of a row at once
KERNEL_ALIGNMENT = 64  # bytes; from other addresses its reads can end the process
# Up to so many columns the kernel is the fastest, as measured, if the processor multiplies in bfloat16, and if not.
KERNEL_COLUMNS = {True: 12 if IS_AMD else 4, False: 48 if IS_AMD else 16}
BLOCK_NUMBERS = 1 << 21  # about so many become floats at once: 4 MiB of bfloat16


class EightBitWeight:
    """The weight of one direction, in place of a tensor `(1, m, n)`."""

    def __init__(self, values: Tensor, scales: Tensor, dtype: torch.dtype) -> None:
        """Takes q `(m, n)` and s `(m, 1)`; `dtype` is that of v and y."""
        self.values, self.scales, self.dtype = values, scales, dtype
        self.shape, self.device, self.nbytes = (1, *values.shape), values.device, values.nbytes

    def to(self, dtype: torch.dtype) -> "EightBitWeight":
        """The same weight for vectors in another dtype."""
        return self if dtype == self.dtype else EightBitWeight(self.values, self.scales, dtype)

    def wants_rows(self, columns: int) -> bool:
        """Whether the kernel takes so many columns."""
        return columns <= KERNEL_COLUMNS[multiplies_bfloat16()] and self.shape[2] % KERNEL_NUMBERS == 0

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool) -> None:
        """Writes the product as `multiply` does."""
        rows = vectors[0].t().bfloat16().contiguous()  # (b, n)
        if self.wants_rows(len(rows)):  # it would round our scales
            product = torch._weight_int8pack_mm(rows, self.values, rows.new_ones(self.shape[1])).t()
        else:
            product = self._by_blocks(rows)
        put(product * self.scales, out[0], adds)

    def _by_blocks(self, rows: Tensor) -> Tensor:
        """Multiplies q by columns, given as rows `(b, n)`: `(m, b)`."""
        dtype = torch.bfloat16 if multiplies_bfloat16() else torch.float32
        columns, blocks = rows.to(dtype).t(), self.values.split(1 + BLOCK_NUMBERS // self.shape[2])
        floats = torch.empty_like(blocks[0], dtype=dtype)  # memory for each block in turn
        return torch.cat([torch.mm(floats[: len(block)].copy_(block), columns).bfloat16() for block in blocks])


def weight_of(linear: nn.Module) -> Any:
    """A linear's weight for a scan; eight bits have no gradient, so they become floats where one is kept."""
    weight: Any = linear.weight
    if not is_eight_bit(weight):
        return weight
    if weight.qdata.data_ptr() % KERNEL_ALIGNMENT:  # mapped from a file; the copy takes its place, once
        with torch.inference_mode(False):
            weight.qdata = weight.qdata.clone()
    scales = weight.scale.expand(len(weight), 1)
    return weight.qdata * scales if torch.is_grad_enabled() else EightBitWeight(weight.qdata, scales, scales.dtype)


def apply_linear(linear: nn.Linear, inputs: Tensor) -> Tensor:
    """`linear(inputs)` for inputs `(N, n)`, by these products where a scan would take them."""
    is_plain = type(linear) is nn.Linear and not is_hooked(linear)
    if not is_plain or torch.is_grad_enabled() or not is_eight_bit(linear.weight):
        return linear(inputs)
    outputs = linear.bias.repeat(len(inputs), 1)
    weight_of(linear).to(inputs.dtype).multiply(inputs.t()[None], outputs.t()[None], adds=True)
    return outputs


def is_eight_bit(weight: Any) -> bool:
    """Whether it is torchao's tensor for eight-bit weights and unchanged inputs, on a CPU and outside a graph."""
    is_torchao = type(weight).__name__ == "Int8Tensor" and weight.act_quant_kwargs is weight.act_pre_scale is None
    is_by_row = is_torchao and weight.block_size[-1] == weight.shape[-1] and weight.device.type == "cpu"
    return is_by_row and not torch.compiler.is_compiling() and not torch.jit.is_tracing()
