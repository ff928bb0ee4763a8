"""The operations of a scan that may be computed differently on each processor.

The class here needs only torch, and its code is saved with a model. The package `elmo_hf` uses a subclass by default,
with Triton's kernels, weights in eight bits and kept copies of weights (`processor_kernels.py`). Both classes compute
the same numbers up to the order of float sums, except that weights in eight bits are rounded.

Glossary: D directions, b vectors.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .parameters import Weights
from .private_names import autocast_dtype, is_hooked, multiplies_bfloat16
from .products import (
    IS_AMD,
    REPAYS,
    PackedProducts,
    PlainProducts,
    Products,
    WeightProducts,
    WideProducts,
    can_pack,
)


@dataclass(eq=False)
class Kernels:
    """The operations by torch alone. Other sizes than those below change the speed, and the rounding of results."""

    default: ClassVar["Kernels"]

    # If W_h has at most this many bytes, both directions take each step together, which saves calls. Larger weights run
    # one direction after the other, so that its weights stay in the cache from step to step.
    joint_bytes: int = 1 << 22
    # Bytes of weights in one block of a product: half of the smallest second-level cache of today's servers.
    block_bytes: int = 1 << 19
    # Words whose W_x x_t is computed in one product: enough to be fast; 8 MiB for each direction at H = 4096.
    block_words: int = 128
    # Smaller weights stay in the cache in any layout.
    large_bytes: int = 1 << 21
    # By dtype, the fewest steps for which a scan packs its weights.
    repays: dict[torch.dtype, int] = field(default_factory=lambda: REPAYS)
    is_amd: bool = IS_AMD
    multiplies_bfloat16: bool = field(default_factory=multiplies_bfloat16)

    def serves(self, weight: Tensor) -> bool:
        """Whether the scans can use a module's weight, which quantisation may have replaced."""
        return type(weight.data) is Tensor

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan."""
        return linear.weight

    def apply(self, module: Any, inputs: Tensor) -> Tensor:
        """`module(inputs)`: on a CPU a large linear without gradient as in a scan; a convolution as a product."""
        device, dtype = inputs.device.type, inputs.dtype
        is_plain, cast_dtype = not is_hooked(module), autocast_dtype(device)
        if is_plain and type(module) is nn.Linear and not torch.is_grad_enabled() and self.serves(module.weight):
            weight = self.weight_of(module)
            is_large = isinstance(weight, Tensor) and weight.is_cpu and weight.nbytes >= self.large_bytes
            if not isinstance(weight, Tensor) or (is_large and cast_dtype is None):
                return self.products([weight]).times(inputs[None], module.bias[None, None])[0]
        if self.must_widen(cast_dtype or dtype, device):
            with torch.autocast(device, enabled=False):
                parameters = {name: parameter.float() for name, parameter in module.named_parameters()}
                return torch.func.functional_call(module, parameters, inputs.float()).to(dtype)
        if is_plain and type(module) is nn.Conv1d:  # oneDNN takes twice the time, cuDNN 1 ms for each new shape
            windows = inputs.unfold(2, module.weight.shape[2], 1).transpose(1, 2).flatten(2)  # (N, positions, E width)
            return nn.functional.linear(windows, module.weight.flatten(1), module.bias).transpose(1, 2)
        return module(inputs)

    def run_steps(self, *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """Runs all steps of a scan at once, as `run_packed` does; None if these kernels cannot."""
        return None

    def run_steps_back(self, *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """Runs all steps backward at once, as `run_packed_back` does; None if these kernels cannot."""
        return None

    def at_once(self, weights: list[Weights]) -> int:
        """How many directions take each step together."""
        return 1 if weights[0].recurrent.nbytes > self.joint_bytes else len(weights)

    def join(self, weights: list[Weights], steps: int) -> WeightProducts:
        """Makes products from the weights of directions that step together."""
        inputs, biases, recurrents, projections = zip(*weights, strict=True)
        recurrent = self.products(recurrents, steps)
        projection = None if projections[0] is None else self.products(projections, steps)
        return WeightProducts(self.products(inputs), torch.stack(biases).unsqueeze(1), recurrent, projection)

    def products(self, parts: Sequence[Tensor], steps: int = 0) -> Products:
        """Makes products from a weight `(m, n)` for each direction, for a number of steps."""
        weight = parts[0]
        if self.must_widen(weight.dtype, weight.device.type):
            return WideProducts(self.products([part.float() for part in parts]))
        if len(parts) > 1:
            return PlainProducts(torch.stack(list(parts)), self.block_bytes, self.is_amd)
        is_repaid = weight.nbytes >= self.large_bytes and steps >= self.repays.get(weight.dtype, math.inf)
        if is_repaid and can_pack(weight, self.multiplies_bfloat16):
            return PackedProducts(weight)
        return PlainProducts(weight[None], self.block_bytes, self.is_amd)

    def multiply(self, first: Tensor, second: Tensor) -> Tensor:
        """`first` `(D, k, m)` times `second` `(D, m, n)`; in bfloat16 only where the processor multiplies it."""
        if self.must_widen(first.dtype, first.device.type):
            return self.multiply(first.float(), second.float()).to(first.dtype)
        return torch.bmm(first, second) if len(first) > 1 else torch.mm(first[0], second[0])[None]

    def must_widen(self, dtype: torch.dtype, device: str) -> bool:
        """Whether products in a dtype are computed in float32: in bfloat16 where the processor does not multiply it."""
        return dtype == torch.bfloat16 and device == "cpu" and not self.multiplies_bfloat16


Kernels.default = Kernels()
_requested_kernels: ContextVar[Kernels | None] = ContextVar("kernels", default=None)


def kernels() -> Kernels:
    """The kernels that layers use now."""
    return _requested_kernels.get() or Kernels.default


@contextmanager
def using(requested: Kernels) -> Iterator[None]:
    """Requests kernels for the `with` block, in this thread."""
    token = _requested_kernels.set(requested)
    try:
        yield
    finally:
        _requested_kernels.reset(token)


def apply(module: nn.Module, inputs: Tensor) -> Tensor:
    """`module(inputs)`, a linear or a convolution, by these kernels unless a graph is being built."""
    return module(inputs) if torch.compiler.is_compiling() else kernels().apply(module, inputs)
