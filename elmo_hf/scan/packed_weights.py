"""Weights in the layout of oneDNN's own products, in which a few columns may take half the time.

Whether that is so depends on the processor and the count of columns. On AMD's processors a rule decides, which comes
from measurements; on others both products are measured once for each shape, and the faster one is taken for each count.

    bfloat16    The first scan without gradient makes the layout; it is kept if it is faster for some count.
    float32     On AMD's processors a scan of enough steps makes the layout, forward and backward, and drops it at its
                end; bfloat16 with gradient does the same. On others only `pack` makes it and keeps it: an order of
                summation that depends on a measurement is left to the caller's choice.

What is kept takes at most as much memory again as W_h and W_p of large layers. It is used only while the weight that it
was made from exists and seems unchanged: the same address, the same count of changes in place, and the same number in
each row, because torch does not count what fused optimisers and `weight.data` change. None of it is saved or copied.
"""

from collections.abc import Callable, Sequence
from functools import partial
from timeit import repeat
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .products import BlockProducts, columns_in, put, times

# Steps of at least so many columns are faster packed; so many such steps repay making the layout.
RULE = {torch.float32: (8, 16), torch.bfloat16: (1, 8)}
# Counts of columns that stand for themselves and those up to the next one.
COUNTS = (1, 4, 8, 16, 64)
ROUNDS = 3
ADVANTAGE = 0.9  # the packed product must take at most this part of the other's time
ROWS = 8  # the count of rows that the layout is made for; it serves any count


class PackedProducts(BlockProducts):
    """A weight W `(1, m, n)` that multiplies some counts of columns in oneDNN's layout, the others as `other` does."""

    def __init__(self, other: BlockProducts, is_faster: Callable[[int], bool]) -> None:
        """Copies the weight of `other` into the layout; `is_faster` answers for a count of columns."""
        super().__init__(other.weight.detach(), other.block_bytes, other.few_columns)
        self.other, self.is_faster, self._packed = other, is_faster, reordered(self.weight[0])

    def num_blocks(self, columns: int) -> int:
        """The count of blocks of the other products."""
        return self.other.num_blocks(columns)

    def wants_rows(self, columns: int) -> bool:
        """Whether products are fastest if each of so many columns is stored as a row."""
        return self.is_faster(columns) or self.other.wants_rows(columns)

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
        """Writes W times `vectors` `(1, n, b)` to `out` `(1, m, b)`; with `adds`, adds it there."""
        if self.is_faster(out.shape[2]):
            put(times(vectors[0].t().contiguous(), self._packed).t(), out[0], adds)
        else:
            self.other.multiply(vectors, out, adds)

    def times(self, vectors: Tensor) -> Tensor:
        """W times `vectors` `(1, n, b)` as a new tensor."""
        out = vectors.new_empty(1, vectors.shape[2], self.weight.shape[1]).transpose(1, 2)
        self.multiply(vectors, out)
        return out


def reordered(weight: Tensor) -> Tensor:
    """A weight `(m, n)` in oneDNN's layout."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)


def measured(
    other: BlockProducts, counts: Sequence[int], seconds: Callable[..., list[float]] = repeat
) -> tuple[bool, ...]:
    """For each of `counts` of columns, whether the packed product is faster; `seconds` repeats and times a call."""
    weight, faster = other.weight[0].detach(), []
    packed = reordered(weight)
    for count in counts:
        vectors, out = (
            columns_in(weight.new_zeros(size * count), 1, size, count, other.wants_rows(count))
            for size in reversed(weight.shape)
        )
        rows = vectors[0].t().contiguous()
        calls = (partial(times, rows, packed), partial(other.multiply, vectors, out))
        packed_time, other_time = (min(seconds(call, number=1, repeat=ROUNDS)) for call in calls)
        faster.append(packed_time < ADVANTAGE * other_time)
    return tuple(faster)


def can_pack(weight: Any, multiplies_bfloat16: bool) -> bool:
    """Whether torch has the layout for `weight`: on a CPU, float32, or bfloat16 if the processor multiplies it."""
    is_plain = isinstance(weight, Tensor) and type(weight.data) is Tensor and weight.device.type == "cpu"
    if not is_plain or torch.jit.is_tracing():  # torch's tracer does not know the layout
        return False
    is_served = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and multiplies_bfloat16)
    return is_served and torch.backends.mkldnn.is_available()


class KeptWeights:
    """Packed products by the parameter that they were made from."""

    def __init__(self) -> None:
        """Keeps nothing yet."""
        self._kept = WeakTensorKeyDictionary()  # also what tells of changes

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, weight: Tensor) -> PackedProducts | None:
        """What is kept of a weight that has not changed."""
        kept = self._kept.get(weight)
        if kept is None:
            return None
        packed, address, version, sample = kept
        if (address, version) == (weight.data_ptr(), weight._version) and torch.equal(sample, _sample(weight)):
            return packed
        self._kept.pop(weight, None)  # another thread may have been first
        return None

    def keep(self, weight: Tensor, make: Callable[[], PackedProducts]) -> PackedProducts:
        """Keeps what `make` returns for a weight; a change while it runs is seen later."""
        seen = weight.data_ptr(), weight._version, _sample(weight)
        packed = make()
        self._kept[weight] = packed, *seen
        return packed


def _sample(weight: Tensor) -> Tensor:
    """One number of each row, from all columns in turn."""
    rows = torch.arange(len(weight), device=weight.device)
    return weight.detach()[rows, rows % weight.shape[1]]
