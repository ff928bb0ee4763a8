"""Weights in eight bits, as torchao stores them: y = s (q v), integers q from -128 to 127 and a scale s for each row.

torch multiplies integers by integers, with inputs in seven bits, -63 to 63, so that sums of two products fit in the 16
bits of AVX2's instruction. Seven bits alone would double the error of q. So each vector v, divided by its largest
magnitude c, becomes two rows: the rounded vector, and 126 times its rounding error:

    v / c = v_1 + v_2 / 126 + e,  |e| < 1e-4,  63 v_1 and 63 v_2 are integers
    y = s c (q v_1 + q v_2 / 126)

Sums of integers are exact, so a vector has the same product in every batch, bit for bit.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

LARGEST = 63  # the largest integer of an input
SMALLEST = 1e-30  # a smaller magnitude counts as this one


class EightBitProducts:
    """The weight of one direction; replaces a tensor `(m, n)`, and multiplies as `products.py` describes."""

    requires_grad = False

    def __init__(self, values: Tensor, scales: Tensor) -> None:
        """Takes q `(m, n)` and s, `(m, 1)` or `(1, 1)`; copies them into the layout of torch's integer products."""
        of_rows = scales.double().flatten().expand(len(values)), torch.zeros(len(values), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor")  # a later torch may lack this function
            quantised = torch._make_per_channel_quantized_tensor(values, *of_rows, axis=0)
        self.packed = torch.ops.quantized.linear_prepack(quantised, None)

    def to(self, dtype: torch.dtype) -> "EightBitProducts":
        """The same weight, which multiplies vectors of any dtype."""
        return self

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """The products with `rows` `(1, b, n)`, as `(1, b, m)`, plus a tensor of that shape or `(1, 1, m)`."""
        vectors = rows[0].float()
        unit = vectors.abs().amax(dim=1, keepdim=True).clamp_(min=SMALLEST) / LARGEST
        scaled = vectors / unit
        rounded = scaled.round()
        halves = torch.cat([rounded, (scaled - rounded).mul_(2 * LARGEST)])  # (2b, n)
        first, second = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            halves, 1.0, LARGEST + 1, self.packed
        ).chunk(2)
        product = first.add_(second, alpha=0.5 / LARGEST).mul_(unit)
        return (product if plus is None else product.add_(plus[0])).to(rows.dtype)[None]


def is_eight_bit(weight: Any) -> bool:
    """Whether a weight is torchao's tensor of eight-bit weights for unchanged inputs, on a CPU and not being traced."""
    is_torchao = type(weight).__name__ == "Int8Tensor" and weight.act_quant_kwargs is weight.act_pre_scale is None
    is_by_row = is_torchao and weight.block_size[-1] == weight.shape[-1] and weight.device.type == "cpu"
    return is_by_row and torch.backends.quantized.engine in ("x86", "fbgemm") and not torch.jit.is_tracing()
