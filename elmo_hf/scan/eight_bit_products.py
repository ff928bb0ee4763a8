"""Products with weights in eight bits: integers q from -128 to 127 and one scale s a row, as torchao keeps them.

    y = W v = s (q v)      q (m, n), s (m, 1) in float32, v (n, b)

With few columns torch's kernel reads q, a byte a weight. With more, q becomes bfloat16 once for all steps of a scan, or
float32 if the processor does not multiply in bfloat16; both hold q exactly. Sums are float32; v and q v are rounded to
bfloat16 either way, so that a text has the same vectors in every batch but where sums in another order round otherwise.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .path import is_hooked

KERNEL_NUMBERS = 32  # the kernel reads so many numbers of a row at once, past the end of others


class EightBitWeight:
    """The weights of D directions, in place of a tensor `(D, m, n)`."""

    def __init__(self, values: Tensor, scales: Tensor, dtype: torch.dtype) -> None:
        """Takes q `(D, m, n)` and s `(D, m, 1)`; `dtype` is that of v and y."""
        self.values, self.scales, self.dtype = values, scales, dtype
        self.shape, self.device, self.nbytes = values.shape, values.device, values.nbytes
        self.ones = values.new_ones(values.shape[1], dtype=torch.bfloat16)  # the kernel would round our scales

    @functools.cached_property
    def wide(self) -> Tensor:
        """The integers as floats, kept as long as this object: for one scan."""
        return self.values.to(_wide_dtype())


def join_directions(weights: Sequence[EightBitWeight]) -> EightBitWeight:
    """The weights of several directions as one; those of a single direction are not copied."""
    if len(weights) == 1:
        return EightBitWeight(weights[0].values, weights[0].scales, weights[0].dtype)
    values, scales = (torch.cat(parts) for parts in zip(*((each.values, each.scales) for each in weights), strict=True))
    return EightBitWeight(values, scales, weights[0].dtype)


def multiply_eight_bit(weight: EightBitWeight, vectors: Tensor, out: Tensor, adds: bool) -> None:
    """What `multiply` of `column_products.py` does, for such weights."""
    size, columns = vectors.shape[1:]
    most_columns = 4 if _wide_dtype() is torch.bfloat16 else 16
    for index, (of_direction, scales) in enumerate(zip(out, weight.scales, strict=True)):
        rows = vectors[index].t().bfloat16().contiguous()
        if columns > most_columns or size % KERNEL_NUMBERS > 0:
            wide = weight.wide[index]
            product = torch.mm(wide, rows.to(wide.dtype).t()).bfloat16()
        else:
            product = torch._weight_int8pack_mm(rows, weight.values[index], weight.ones).t()
        if adds:
            of_direction += product * scales
        else:
            torch.mul(product, scales, out=of_direction)


def weight_of(linear: nn.Module, dtype: torch.dtype) -> Any:
    """A linear's weight for a scan in `dtype`; eight bits have no gradient, so they become floats where one is kept."""
    weight: Any = linear.weight
    if not is_eight_bit(weight):
        return weight.to(dtype)
    scales = weight.scale.expand(len(weight), 1)
    if torch.is_grad_enabled():
        return (weight.qdata * scales).to(dtype)
    return EightBitWeight(weight.qdata.unsqueeze(0), scales.unsqueeze(0), dtype)


def apply_linear(linear: nn.Module, inputs: Tensor) -> Tensor:
    """`linear(inputs)` for inputs `(N, n)`; by these products where a scan would take them."""
    is_plain = type(linear) is nn.Linear and not is_hooked(linear)
    if not is_plain or torch.is_grad_enabled() or not is_eight_bit(linear.weight):
        return linear(inputs)
    weight = weight_of(linear, inputs.dtype)
    outputs = inputs.new_empty(len(inputs), linear.out_features)
    multiply_eight_bit(weight, inputs.t().unsqueeze(0), outputs.t().unsqueeze(0), adds=False)
    return outputs if linear.bias is None else outputs.add_(linear.bias)


def is_eight_bit(weight: Any) -> bool:
    """Whether it is torchao's tensor for eight-bit weights and unchanged inputs, on a CPU and outside a graph."""
    return (
        type(weight).__name__ == "Int8Tensor"
        and weight.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and weight.block_size[-1] == weight.shape[-1]
        and weight.act_quant_kwargs is None
        and weight.act_pre_scale is None
    )


@functools.cache
def _wide_dtype() -> torch.dtype:
    """bfloat16 if the processor multiplies in it, else float32."""
    has = [getattr(torch.cpu, f"_is_{name}_supported", bool)() for name in ("amx_tile", "avx512_bf16")]
    uses_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return torch.bfloat16 if uses_avx512 and any(has) else torch.float32
