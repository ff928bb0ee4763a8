"""The package's kernels: each operation of a scan in the way measured as fastest on this processor (docs/speed.md).

    large weights                in oneDNN's layout, if packing saves time: `packed_weights.py`
    weights in eight bits        `eight_bit_products.py`
    a GPU with Triton            `triton_scan.py`

Glossary: D directions, b columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.utils import logging

from .eight_bit_products import EightBitProducts, is_eight_bit
from .kernels import Kernels, is_hooked
from .packed_weights import REPAYS, PackedProducts, state_of
from .parameters import Limits, Scanned, Weights
from .products import IS_AMD, BlockProducts, WeightProducts, can_take_onednn
from .reading_order import BatchLayout
from .triton_scan import is_available, scan_with_padding

logger = logging.get_logger(__name__)


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16, and oneDNN may use them."""
    has_instructions = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return has_instructions and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@dataclass(eq=False)
class ProcessorKernels(Kernels):
    """The fastest kernels for a processor, which the arguments describe."""

    is_amd: bool = IS_AMD
    multiplies_bfloat16: bool = field(default_factory=multiplies_bfloat16)
    # Only `pack` packs smaller weights.
    large_bytes: int = 1 << 21
    # The rule for scans that pack weights.
    repays: dict[torch.dtype, tuple[range, int]] = field(default_factory=lambda: REPAYS if IS_AMD else {})
    # Whether GPUs use Triton's kernels, and how many texts times words (4H numbers each) they take without gradient.
    takes_triton: bool = True
    block_rows: int = 1024
    # For each packed parameter, its products and its state when it was packed.
    kept: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary, init=False)

    def serves(self, weight: nn.Parameter) -> bool:
        """Whether the scans can use a module's weight; torchao keeps modules and replaces their tensors."""
        return super().serves(weight) or is_eight_bit(weight)

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan; weights in eight bits become floats where a gradient is kept."""
        weight = linear.weight
        if not is_eight_bit(weight):
            return weight
        if torch.is_grad_enabled():
            return weight.qdata * weight.scale
        return self._kept(weight.qdata, lambda values: EightBitProducts(values, weight.scale))

    def apply(self, linear: Any, inputs: Tensor) -> Tensor:
        """`linear(inputs)` for inputs `(N, n)`; weights in eight bits multiply as in a scan."""
        is_plain = type(linear) is nn.Linear and not is_hooked(linear)
        if not is_plain or torch.is_grad_enabled() or not is_eight_bit(linear.weight):
            return linear(inputs)
        outputs = linear.bias.repeat(len(inputs), 1)
        self.weight_of(linear).multiply(inputs.t()[None], outputs.t()[None], adds=True)
        return outputs

    def scan_with_padding(
        self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
    ) -> Scanned | None:
        """Scans one layer by Triton's kernels where they run."""
        if not (self.takes_triton and _are_floats(weights) and is_available(inputs.device, hidden.dtype)):
            return None
        return scan_with_padding(inputs, layout, hidden, cell, weights, limits, self.block_rows)

    def at_once(self, weights: list[Weights]) -> int:
        """How many directions take each step together; with weights in eight bits only one."""
        return super().at_once(weights) if _are_floats(weights) else 1

    def join(self, weights: list[Weights], columns: Sequence[int], keeps_trace: bool) -> WeightProducts:
        """Makes products from the weights of directions that step together; `columns` counts each step's columns."""
        joint = super().join(weights, columns, keeps_trace)
        if len(weights) > 1:
            return joint
        recurrent, projection = (self._packed(weight, columns, keeps_trace) for weight in weights[0][2:])
        return joint._replace(recurrent=recurrent or joint.recurrent, projection=projection or joint.projection)

    def products(self, weight: Any) -> BlockProducts:
        """Makes products from a weight `(D, m, n)` in its own layout."""
        if not isinstance(weight, Tensor):
            return weight
        if weight.dtype == torch.bfloat16 and weight.device.type == "cpu":
            if not self.multiplies_bfloat16:
                logger.warning_once(
                    "This processor does not multiply bfloat16, so bfloat16 is many times slower than float32: load "
                    "the model with dtype=torch.float32, and train without bf16."
                )
            elif len(weight) == 1:
                return BlockProducts(weight, weight.nbytes, few_columns=0)  # one product of columns, whatever the count
        return BlockProducts(weight, self.block_bytes, self.few_columns, self.is_amd)

    def times(self, weight: Tensor, columns: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """A function that multiplies a weight `(D, m, n)` by vectors `(D, n, b)`; `columns` is as in `join`."""
        packed = self._packed(weight[0], columns, keeps_trace=True) if len(weight) == 1 else None
        return packed.times if packed else super().times(weight, columns)

    def pack(self, weight: Tensor) -> None:
        """Packs a parameter and keeps the result."""
        if self._can_pack(weight):
            self._kept(weight, PackedProducts)

    def _can_pack(self, weight: Any) -> bool:
        return can_take_onednn(weight, (torch.float32, torch.bfloat16)[: 1 + self.multiplies_bfloat16])

    def _packed(self, weight: Any, columns: Sequence[int], keeps_trace: bool) -> PackedProducts | None:
        """Packed products of a direction's weight `(m, n)`: a kept copy, or a new one if it saves time, else None."""
        if not self._can_pack(weight):
            return None
        (within, steps), is_large = self.repays.get(weight.dtype, (range(0), 1)), weight.nbytes >= self.large_bytes
        # Autocast makes temporary tensors, which are not parameters.
        is_lasting = isinstance(weight, nn.Parameter) and weight.dtype == torch.bfloat16 and not keeps_trace
        kept = self._kept(weight, PackedProducts if is_large and is_lasting else None)
        if kept is None and is_large and sum(count in within for count in columns) >= steps:
            kept = PackedProducts(weight)
        return kept

    def _kept(self, weight: Tensor, make: Callable[[Tensor], Any] | None) -> Any:
        """The products kept for an unchanged weight; without them, those that `make` makes, which are kept then."""
        if weight.is_inference():  # changes of such tensors are not counted, so their products are not kept
            return make and make(weight)
        packed, state_before = self.kept.get(weight, (None, None))
        if packed is None and make is None:
            return None
        if (state := state_of(weight)) != state_before:
            packed = make and make(weight)
            self.kept[weight] = packed, state if make else None
        return packed


def _are_floats(weights: list[Weights]) -> bool:
    return all(part is None or isinstance(part, Tensor) for parts in weights for part in parts)
