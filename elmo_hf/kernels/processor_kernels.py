"""The package's kernels: Triton on GPUs, weights in eight bits, and copies of weights that are kept (docs/speed.md).

Copies of large weights in oneDNN's layout stay: in bfloat16 from the first scan on; in float32 only after `pack`,
because a copy takes as much memory as the weight. So do the float32 copies of weights in bfloat16 on a processor that
does not multiply them. A kept copy is used only while its weight exists and seems unchanged: its address, its count of
changes in place, and the running sums of one number in each row are the same (torch does not count the changes that
fused optimisers and `weight.data` make). Copies are never saved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.utils import logging

from ..model.scan_elmo import Kernels, PackedProducts, Products, Scan, Weights, can_pack
from .eight_bit_products import EightBitProducts, EightBitWeight, is_eight_bit
from .triton_scan import TritonScan

logger = logging.get_logger(__name__)


@dataclass(eq=False)
class ProcessorKernels(Kernels):
    """The fastest kernels for a processor, which the arguments describe."""

    faster_scans: tuple[Scan, ...] = (TritonScan(),)
    # For each weight with a kept copy, its products and its state when they were made.
    kept: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary, init=False)

    def supports(self, weight: Tensor) -> bool:
        """Whether the scans can use a module's weight; torchao keeps modules and replaces their tensors."""
        return super().supports(weight) or is_eight_bit(weight)

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan; weights in eight bits become floats where a gradient is kept."""
        weight = linear.weight
        if not is_eight_bit(weight):
            return weight
        if torch.is_grad_enabled():
            return weight.qdata * weight.scale
        return self._kept(weight.qdata, partial(EightBitWeight, weight.qdata, weight.scale))

    def directions_per_step(self, weights: list[Weights]) -> int:
        """How many directions take each step together: only one if not all have the same kinds of weights."""
        kinds = {tuple(type(tensor) for tensor in direction) for direction in weights}
        if len(kinds) > 1:
            return 1
        return super().directions_per_step(weights)

    def products(self, parts: Sequence[Any], steps: int = 0) -> Products:
        """Makes products, or takes those that are kept."""
        weight = parts[0]
        if isinstance(weight, EightBitWeight):
            return EightBitProducts(parts)
        must_widen = self.must_widen(weight.dtype, weight.device.type)
        if must_widen:
            logger.warning_once(
                "This processor does not multiply bfloat16, so bfloat16 is slower than float32: load the model with "
                "dtype=torch.float32, and train without bf16."
            )
        if len(parts) == 1 and (must_widen or can_pack(weight, self.multiplies_bfloat16)):
            products = self._kept_products(weight, steps, must_widen)
            if products is not None:
                return products
        return super().products(parts, steps)

    def _kept_products(self, weight: Tensor, steps: int, must_widen: bool) -> Products | None:
        """The products kept for a weight; those of a large bfloat16 parameter are made and kept at its first scan."""
        # Autocast makes temporary tensors, which are not parameters.
        is_worth_keeping = weight.dtype == torch.bfloat16 and isinstance(weight, nn.Parameter)
        if not is_worth_keeping or weight.nbytes < self.large_bytes:
            return self._kept(weight, None)
        if must_widen:
            return self._kept(weight, partial(super().products, [weight]))
        if steps > 0:
            return self._kept(weight, partial(PackedProducts, weight))
        return self._kept(weight, None)

    def pack(self, weight: Tensor) -> None:
        """Packs a parameter and keeps the result."""
        if can_pack(weight, self.multiplies_bfloat16):
            self._kept(weight, partial(PackedProducts, weight))

    def _kept(self, weight: Tensor, make: Callable[[], Any] | None) -> Any:
        """The products kept for an unchanged weight; without them, those that `make` makes, which are kept then."""
        if weight.is_inference():  # changes of such tensors are not counted, so their products are not kept
            return None if make is None else make()
        products, state_before = self.kept.get(weight, (None, None))
        if products is None and make is None:
            return None
        state = _state_of(weight)
        if state == state_before:
            return products
        if make is None:
            self.kept[weight] = (None, None)
            return None
        products = make()
        self.kept[weight] = (products, state)
        return products


def _state_of(weight: Tensor) -> tuple[int, int, float]:
    """A fingerprint of a weight `(m, n)`, computed from a part of its numbers; integers do not learn."""
    if not weight.is_floating_point():
        return weight.data_ptr(), weight._version, 0.0
    one_in_each_row = weight.detach().flatten()[:: max(1, weight.shape[1] - 1)]  # from all columns in turn
    return weight.data_ptr(), weight._version, one_in_each_row.double().cumsum(0).sum().item()
