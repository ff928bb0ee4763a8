"""The package's kernels: Triton on GPUs, weights in eight bits, and copies of weights (docs/speed.md).

Copies of large weights in oneDNN's layout stay: in bfloat16 from the first scan on; in float32 only after `pack`,
because a copy takes as much memory as the weight. So do the float32 copies of weights in bfloat16 on a processor that
does not multiply them. A kept copy is used only while its weight exists and is unchanged (`WeightState`); in float32
only for `PACKED_ROWS` vectors or more (`FewOrMany`), and `pack` puts the weight itself, which multiplies fewer of them,
into huge pages. Copies are never saved. The transposed copy of W_h for backward steps is dropped with the scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.utils import logging

from ..model.scan_elmo import Kernels, PackedProducts, Products, Scan, Weights, can_pack, can_take_onednn
from .eight_bit_products import EightBitProducts, EightBitWeight, is_eight_bit
from .huge_pages import in_huge_pages
from .transposed_products import TransposedProducts
from .triton_scan import TritonScan

logger = logging.get_logger(__name__)

# How many groups of eight bytes are one sum of `WeightState`. A prime that divides no usual length of a row: so sums
# begin at other columns in each row, and differ too when columns or rows change places.
GROUPS_IN_SUM = 61
# In float32, the number of vectors from which on a kept copy multiplies faster than the weight itself.
PACKED_ROWS = 3


class WeightState(NamedTuple):
    """What a weight was when a copy of it was made.

    Every call reads the whole weight once for it, which takes about a fifth of a step, because torch does not count the
    changes that fused optimisers, `weight.data` and NumPy make. Sums of integers are exact, so a single changed number
    is always seen.
    """

    address: int
    changes: int  # in place, as torch counts them
    sums: Tensor  # of its bytes, in groups that are read as integers

    @classmethod
    def of(cls, weight: Tensor) -> "WeightState":
        """The present state of a weight on a CPU."""
        content = weight.detach().flatten().view(torch.uint8)
        if content.storage_offset() % 8 != 0:  # a part of a larger buffer, which torch does not read as int64
            content = content.clone()
        num_bytes = len(content) // 8 * 8
        groups = content[:num_bytes].view(torch.int64)
        num_summed = len(groups) // GROUPS_IN_SUM * GROUPS_IN_SUM
        sums = groups[:num_summed].view(-1, GROUPS_IN_SUM).sum(dim=1)
        rest = [groups[num_summed:], content[num_bytes:].long()]
        return cls(weight.data_ptr(), weight._version, torch.cat([sums, *rest]))

    def equals(self, other: "WeightState") -> bool:
        """Whether a weight is the same in both states."""
        is_same_memory = self.address == other.address and self.changes == other.changes
        return is_same_memory and torch.equal(self.sums, other.sums)


def are_equal(states: list[WeightState], others: list[WeightState]) -> bool:
    """Whether as many tensors are the same in both lists of states."""
    if len(states) != len(others):
        return False
    return all(state.equals(other) for state, other in zip(states, others, strict=True))


class FewOrMany:
    """A weight that multiplies few vectors by itself, and more of them by a copy in oneDNN's layout."""

    def __init__(self, plain: Products, find_packed: Callable[[], Products | None]) -> None:
        """Takes the products of the weight, and a function that finds the copy; None if the weight has changed."""
        self.plain = plain
        self.find_packed = find_packed

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        if rows.shape[1] < PACKED_ROWS:
            return self.plain.times(rows, plus)
        return self.for_many.times(rows, plus)

    @cached_property
    def for_many(self) -> Products:
        """The products of the copy, if there is one.

        It is looked for when it is needed, because that reads the whole weight: a scan of one text does without.
        """
        packed = self.find_packed()
        return self.plain if packed is None else packed


@dataclass(eq=False)
class ProcessorKernels(Kernels):
    """The fastest kernels for a processor, which the arguments describe."""

    faster_scans: tuple[Scan, ...] = (TritonScan(),)
    # The fewest backward steps for which a scan makes a transposed copy of W_h.
    transposing_steps: int = 20
    # For each weight with a kept copy, its products and the states of the tensors of which they were made.
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
        return self._kept(weight.qdata, partial(EightBitWeight, weight.qdata, weight.scale), weight.scale)

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
        if weight.dtype == torch.float32:
            if weight not in self.kept:
                return None
            return FewOrMany(super().products([weight], steps), partial(self._kept, weight, None))
        # Autocast makes temporary tensors, which are not parameters.
        if not isinstance(weight, nn.Parameter) or weight.nbytes < self.large_bytes:
            return self._kept(weight, None)
        if must_widen:
            return self._kept(weight, partial(super().products, [weight]))
        if steps > 0:
            return self._kept(weight, partial(PackedProducts, weight))
        return self._kept(weight, None)

    def recurrent_multiplier(self, weight: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
        """As in `Kernels`; on AMD's processors enough steps repay a transposed copy of a large weight in float32."""
        if len(weight) == 1 and self._repays_transposing(weight[0], steps):
            return TransposedProducts(weight[0]).times
        return super().recurrent_multiplier(weight, steps)

    def _repays_transposing(self, weight: Tensor, steps: int) -> bool:
        """Whether the transposed copy of a weight `(4H, P)` saves more time in backward steps than making it takes."""
        is_measured = self.is_amd and weight.dtype == torch.float32
        is_repaid = weight.nbytes >= self.large_bytes and steps >= self.transposing_steps
        return is_measured and is_repaid and can_take_onednn(weight)

    def pack(self, weight: Tensor) -> None:
        """Packs a parameter and keeps the result; puts a large one in float32 into huge pages, where it stays.

        Of an unchanged parameter that was packed before, nothing is done.
        """
        if not can_pack(weight, self.multiplies_bfloat16):
            return
        if self._kept(weight, None) is not None:
            return
        if _may_be_moved(weight):
            weight.data = in_huge_pages(weight.data)
        self._kept(weight, partial(PackedProducts, weight))

    def _kept(self, weight: Tensor, make: Callable[[], Any] | None, *others: Tensor) -> Any:
        """The products kept for an unchanged weight; without them, those that `make` makes, which are kept then.

        They are made again too if one of the other tensors of which they are made has changed.
        """
        if weight.is_inference():  # changes of such tensors are not counted, so their products are not kept
            return None if make is None else make()
        products, states_before = self.kept.get(weight, (None, []))
        if products is None and make is None:
            return None
        states = [WeightState.of(tensor) for tensor in (weight, *others)]
        if are_equal(states, states_before):
            return products
        if make is None:
            self.kept[weight] = (None, [])
            return None
        products = make()
        self.kept[weight] = (products, states)
        return products


def _may_be_moved(weight: Tensor) -> bool:
    """Whether a packed weight may lie elsewhere, and is still read after it was packed (`FewOrMany`).

    One in memory that processes share must stay there, and torch does not let one made in inference mode move.
    """
    if weight.is_inference() or weight.is_shared():
        return False
    return weight.dtype == torch.float32
