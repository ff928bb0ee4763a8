"""Weights in eight bits, as torchao stores them: y = s (q v), integers q from -128 to 127 and a scale s for each row.

torch multiplies integers by integers. Inputs are in seven bits, from -L to L with L = 63, so that sums of two products
fit in the 16 bits of AVX2's instruction. Seven bits alone would double the error of q. So each vector v, divided by its
largest magnitude c, becomes two rows: the rounded vector, and 2L times its rounding error:

    v / c = v_1 + v_2 / 2L + e,  |e| < 1e-4,  L v_1 and L v_2 are integers
    y = s c (q v_1 + q v_2 / 2L)

Sums of integers are exact, so a vector has the same product in every batch, bit for bit.

Glossary: D directions, b vectors.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..model.scan_elmo import is_tracing

LARGEST, ZERO = 63, 64  # L, and the unsigned integer that stands for 0
_SMALLEST = torch.tensor([1e-30], dtype=torch.float32, device="cpu")  # is added to c / L, which may be 0


class EightBitWeight:
    """The weight of one direction in the layout of torch's integer products; replaces a tensor `(m, n)`."""

    requires_grad, nbytes = False, 0  # a fourth of the bytes of floats: directions always take each step together

    def __init__(self, values: Tensor, scales: Tensor) -> None:
        """Takes q `(m, n)` and s, `(m, 1)` or `(1, 1)`."""
        of_rows = scales.double().flatten().expand(len(values)), torch.zeros(len(values), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor")  # a later torch may lack this function
            quantised = torch._make_per_channel_quantized_tensor(values, *of_rows, axis=0)
        self.height, self.packed = len(values), torch.ops.quantized.linear_prepack(quantised, None)

    def to(self, dtype: torch.dtype) -> "EightBitWeight":
        """The same weight, which multiplies vectors of any dtype."""
        return self


class EightBitProducts(NamedTuple):
    """The weights of D directions, which multiply vectors as `Products` describes."""

    weights: Sequence[EightBitWeight]

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        unit = torch.add(_SMALLEST, rows.abs().amax(dim=2, keepdim=True), alpha=1 / LARGEST)  # (D, b, 1), c / L
        scaled = rows / unit
        rounded = scaled.round()
        halves = torch.cat([rounded, (scaled - rounded).mul_(2 * LARGEST)], dim=1)  # (D, 2b, n)
        products = unit.new_empty(*rows.shape[:2], self.weights[0].height)
        for weight, both, product in zip(self.weights, halves, products, strict=True):
            sums = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(both, 1.0, ZERO, weight.packed)
            torch.add(*sums.chunk(2), alpha=0.5 / LARGEST, out=product)
        products.mul_(unit)
        return (products if plus is None else products.add_(plus)).to(rows.dtype)


def is_eight_bit(weight: Any) -> bool:
    """Whether a weight is torchao's tensor of eight-bit weights for unchanged inputs, on a CPU and not being traced."""
    if type(weight).__name__ != "Int8Tensor" or weight.device.type != "cpu":
        return False
    takes_unchanged_inputs = weight.act_quant_kwargs is None and weight.act_pre_scale is None
    is_by_row = weight.block_size[-1] == weight.shape[-1]
    has_engine = torch.backends.quantized.engine in ("x86", "fbgemm")
    return takes_unchanged_inputs and is_by_row and has_engine and not is_tracing()
