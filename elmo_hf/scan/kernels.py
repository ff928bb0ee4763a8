"""The operations of a scan that may be computed differently on each processor.

The class here needs only torch, and its code is saved with a model. The package `elmo_hf` uses a subclass by default,
with Triton's kernels, weights in eight bits and other layouts of weights (`processor_kernels.py`). Both classes compute
the same numbers up to the order of float sums, except that weights in eight bits are rounded.

Glossary: D directions, b columns.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .parameters import Scanned, Weights, stack
from .products import FEW_COLUMNS, BlockProducts, WeightProducts


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
    # With fewer columns, each column is stored as a row.
    few_columns: int = FEW_COLUMNS

    def serves(self, weight: nn.Parameter) -> bool:
        """Whether the scans can use a module's weight, which quantisation may have replaced."""
        return type(weight.data) is Tensor

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan."""
        return linear.weight

    def apply(self, linear: Any, inputs: Tensor) -> Tensor:
        """`linear(inputs)` for inputs `(N, n)`."""
        return linear(inputs)

    def scan_with_padding(self, *arguments: Any) -> Scanned | None:
        """Scans words and padding, with the arguments of `scan_layer`; None if these kernels cannot."""
        return None

    def at_once(self, weights: list[Weights]) -> int:
        """How many directions take each step together."""
        return 1 if weights[0].recurrent.nbytes > self.joint_bytes else len(weights)

    def join(self, weights: list[Weights], columns: Sequence[int], keeps_trace: bool) -> WeightProducts:
        """Makes products from the weights of directions that step together; `columns` counts each step's columns."""
        inputs, bias, recurrent, projection = stack(weights)
        of_projection = None if projection is None else self.products(projection)
        return WeightProducts(self.products(inputs), bias, self.products(recurrent), of_projection)

    def products(self, weight: Tensor) -> BlockProducts:
        """Makes products from a weight `(D, m, n)`."""
        return BlockProducts(weight, self.block_bytes, self.few_columns)

    def times(self, weight: Tensor, columns: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """A function that multiplies a weight `(D, m, n)` by vectors `(D, n, b)`; `columns` is as in `join`."""
        return functools.partial(torch.bmm, weight)


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


def is_hooked(module: nn.Module) -> bool:
    """Whether more than the module's own `forward` runs when it is called."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)  # accelerate sets `forward` on the instance


def apply_linear(linear: nn.Module, inputs: Tensor) -> Tensor:
    """`linear(inputs)` for inputs `(N, n)`, by these kernels where no graph is being built."""
    return linear(inputs) if torch.compiler.is_compiling() else kernels().apply(linear, inputs)
