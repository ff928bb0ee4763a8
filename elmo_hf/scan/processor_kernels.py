"""What scans compute with in the package: the fastest that this processor has, as measured (docs/speed.md).

    large weights, few columns   in blocks, one product, or another layout: `processor_products.py`, `packed_weights.py`
    weights in eight bits        `eight_bit_products.py`
    a GPU with Triton            `triton_scan.py`

A rule decides wherever it can, so that one machine always adds in one order; a caller may decide otherwise.

Glossary: D directions, b columns.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from .eight_bit_products import EightBitProducts, aligned_values, is_eight_bit
from .kernels import Kernels, is_hooked, using
from .packed_weights import COUNTS, RULE, KeptWeights, PackedProducts, can_pack, measured
from .parameters import Limits, Scanned, Weights
from .processor_products import WAYS, multiplies_bfloat16, warn_of_bfloat16
from .products import IS_AMD, BlockProducts, WeightProducts
from .reading_order import BatchLayout
from .triton_scan import is_available, scan_with_padding

KNOWN_WAYS = (*WAYS, "packed")
# Up to so many columns torch's kernel for eight bits is the fastest, if the processor multiplies in bfloat16, and if
# not, as measured on AMD's processors and on others.
KERNEL_COLUMNS = {True: {True: 12, False: 48}, False: {True: 4, False: 16}}


class ProcessorKernels(Kernels):
    """The fastest kernels of a processor; what it is comes in as arguments."""

    def __init__(
        self,
        way: str | None = None,
        is_amd: bool = IS_AMD,
        multiplies: bool | None = None,
        large_bytes: int = 1 << 21,
        rule: dict[torch.dtype, tuple[int, int]] = RULE,
        counts: Sequence[int] = COUNTS,
        measure: Callable[[BlockProducts, Sequence[int]], Sequence[bool]] = measured,
        takes_triton: bool = True,
        **sizes: int,
    ) -> None:
        """Takes the processor.

        Args:
            way: one of `KNOWN_WAYS` for all large weights; None chooses.
            is_amd: whether AMD made the processor.
            multiplies: whether it has instructions for bfloat16; None asks torch when that matters.
            large_bytes: weights below are not packed unless the way or the caller requests it.
            rule: of `packed_weights.RULE`, for AMD's processors.
            counts: of columns, which stand for themselves and those up to the next one.
            measure: for each of `counts`, whether packed products are faster; on other processors.
            takes_triton: whether GPUs take Triton's kernels.
            **sizes: of `Kernels`.
        """
        if way not in (None, *KNOWN_WAYS):
            raise ValueError(f"`way` must be one of {', '.join(KNOWN_WAYS)}, found {way!r}.")
        super().__init__(**sizes)
        self.way, self.is_amd, self._multiplies = way, is_amd, multiplies
        self.large_bytes, self.rule = large_bytes, rule
        self.counts, self.measure, self.takes_triton = counts, measure, takes_triton
        self.kept = KeptWeights()
        self._faster_at: dict[tuple, Sequence[bool]] = {}  # of each kind of weight, for each of `counts`

    @cached_property
    def multiplies_bfloat16(self) -> bool:
        """Whether the processor has instructions for products of bfloat16."""
        return multiplies_bfloat16() if self._multiplies is None else self._multiplies

    def serves(self, weight: nn.Parameter) -> bool:
        """Whether the scans can take a module's weight; torchao keeps modules and replaces their tensors."""
        return super().serves(weight) or is_eight_bit(weight)

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan; eight bits have no gradient, so they become floats where one is kept."""
        weight = linear.weight
        if not is_eight_bit(weight):
            return weight
        values, scales = aligned_values(weight), weight.scale.expand(len(weight), 1)
        if torch.is_grad_enabled():
            return values * scales
        dtype = torch.bfloat16 if self.multiplies_bfloat16 else torch.float32
        columns = KERNEL_COLUMNS[self.is_amd][self.multiplies_bfloat16]
        return EightBitProducts(values, scales, scales.dtype, dtype, columns)

    def apply(self, linear: Any, inputs: Tensor) -> Tensor:
        """`linear(inputs)` for inputs `(N, n)`; weights in eight bits multiply as in a scan."""
        is_plain = type(linear) is nn.Linear and not is_hooked(linear)
        if not is_plain or torch.is_grad_enabled() or not is_eight_bit(linear.weight):
            return linear(inputs)
        outputs = linear.bias.repeat(len(inputs), 1)
        self.weight_of(linear).to(inputs.dtype).multiply(inputs.t()[None], outputs.t()[None], adds=True)
        return outputs

    def scan_with_padding(
        self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
    ) -> Scanned | None:
        """Scans one layer by Triton's kernels where they run."""
        if not (self.takes_triton and _are_floats(weights) and is_available(inputs.device, hidden.dtype)):
            return None
        return scan_with_padding(inputs, layout, hidden, cell, weights, limits)

    def at_once(self, weights: list[Weights]) -> int:
        """How many directions take each step together; weights in eight bits do not."""
        return super().at_once(weights) if _are_floats(weights) else 1

    def join(self, weights: list[Weights], columns: Sequence[int], keeps_trace: bool) -> WeightProducts:
        """The weights of directions that step together as products, for steps of so many columns."""
        joint = super().join(weights, columns, keeps_trace)
        if len(weights) > 1:
            return joint
        (_, _, recurrent, projection), other = weights[0], joint.projection
        if other is not None:
            other = self._packed(projection, other, columns, keeps_trace)
        return joint._replace(
            recurrent=self._packed(recurrent, joint.recurrent, columns, keeps_trace), projection=other
        )

    def products(self, weight: Any) -> BlockProducts:
        """A weight `(D, m, n)` as products in the way of this processor, without another layout."""
        if not isinstance(weight, Tensor):
            return weight
        if weight.dtype == torch.bfloat16 and weight.device.type == "cpu":
            warn_of_bfloat16(self.multiplies_bfloat16)
        return WAYS[self.way_of(weight.dtype)](weight, self.block_bytes, self.few_columns)

    def way_of(self, dtype: torch.dtype) -> str:
        """The way of weights of `dtype`, without another layout."""
        if self.way not in (None, "packed"):
            return str(self.way)
        if dtype == torch.bfloat16 and self.multiplies_bfloat16:
            return "plain"
        return "amd" if self.is_amd else "blocks"

    def times(self, weight: Tensor, columns: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """The product of a weight `(D, m, n)` with vectors `(D, n, b)`, in a scan of so many columns a step."""
        if len(weight) == 1 and self._pays(weight[0], columns):
            return PackedProducts(self.products(weight), self._is_faster(weight[0])).times
        return super().times(weight, columns)

    def pack(self, weight: Tensor) -> None:
        """Packs a parameter and keeps the result, if it is faster for some count of columns."""
        if self.can_pack(weight):
            self._keep(weight)

    def can_pack(self, weight: Any) -> bool:
        """Whether torch has the layout for a weight `(m, n)` here."""
        return can_pack(weight, self.multiplies_bfloat16)

    def faster_at(self, weight: Tensor) -> Sequence[bool]:
        """For each of `counts`, whether the packed product of weights `(m, n)` of this kind is the faster one."""
        kind = (weight.shape, weight.dtype, torch.get_num_threads())
        if kind not in self._faster_at:
            least = 1 if self.way == "packed" else self.rule[weight.dtype][0] if self.is_amd else None
            by_rule = None if least is None else [count >= least for count in self.counts]
            self._faster_at[kind] = by_rule or self.measure(self.products(weight.unsqueeze(0)), self.counts)
        return self._faster_at[kind]

    def _is_faster(self, weight: Tensor) -> Callable[[int], bool]:
        """The answer for any count of columns."""
        faster = self.faster_at(weight)
        return lambda columns: faster[bisect_right(self.counts, columns) - 1]

    def _packed(self, weight: Any, other: BlockProducts, columns: Sequence[int], keeps_trace: bool) -> BlockProducts:
        """Products of a direction's weight `(m, n)`: packed before, packed now if that pays, or `other`."""
        kept = None
        if self.way is None and self.can_pack(weight):
            # Autocast makes tensors of its own, which are no parameters and do not outlive the scan.
            is_lasting = isinstance(weight, nn.Parameter) and not keeps_trace
            keeps = is_lasting and weight.dtype == torch.bfloat16 and weight.nbytes >= self.large_bytes
            kept = self._keep(weight) if keeps else self.kept.find(weight)
        if kept is None and self._pays(weight, columns):
            kept = PackedProducts(other, self._is_faster(weight))
        return kept or other

    def _pays(self, weight: Tensor, columns: Sequence[int]) -> bool:
        """Whether packing a weight `(m, n)` pays in a scan whose steps have so many columns."""
        if not self.can_pack(weight) or self.way is not None:
            return self.can_pack(weight) and self.way == "packed"
        least, steps = self.rule[weight.dtype]
        has_rule = self.is_amd and weight.nbytes >= self.large_bytes
        return has_rule and sum(count >= least for count in columns) >= steps

    def _keep(self, weight: Tensor) -> PackedProducts | None:
        kept = self.kept.find(weight)
        # Changes of tensors made in inference mode are not counted.
        if kept is None and not weight.is_inference() and any(self.faster_at(weight)):
            other = self.products(weight.detach().unsqueeze(0))
            kept = self.kept.keep(weight, lambda: PackedProducts(other, self._is_faster(weight)))
        return kept


def _are_floats(weights: list[Weights]) -> bool:
    return all(part is None or isinstance(part, Tensor) for parts in weights for part in parts)


def way_of_products(way: str) -> AbstractContextManager[None]:
    """Requests a way for the `with` block, in this thread; raises ValueError if it is not one of `KNOWN_WAYS`."""
    return using(ProcessorKernels(way))
