"""Weights in the layout of oneDNN's own products (`column_products.py`), in which a few columns may take half the time.

Whether that is so depends on the processor and the count of columns. On AMD's processors a rule decides, which comes
from measurements; on others both ways are measured once for each shape, and the faster one is taken for each count.

    bfloat16    The first scan without gradient makes the layout; it is kept if it is faster for some count.
    float32     On AMD's processors a scan of enough steps makes the layout, forward and backward, and drops it at its
                end; bfloat16 with gradient does the same. On others only `pack` makes it and keeps it: an order of
                summation that depends on a measurement is left to the caller's choice.

What is kept takes at most as much memory again as W_h and W_p of large layers. It serves while the weight it was made
from lives and seems unchanged: the same address, the same count of changes in place, and the same number in each row,
because torch does not count what fused optimisers and `weight.data` change. None of it is saved or copied.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from timeit import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from .column_products import IS_AMD, columns_in, multiplies_bfloat16, multiply, put, requested_way, wants_rows
from .parameters import Weights, stack

# The rule: steps of at least so many columns are faster packed; so many such steps repay making the layout.
RULE = {torch.float32: (8, 16), torch.bfloat16: (1, 8)}
LARGE_BYTES = 1 << 21  # the rule is for weights of at least this size
# Counts of columns that stand for themselves and those up to the next one.
COUNTS = (1, 4, 8, 16, 64)
ROUNDS = 3
ADVANTAGE = 0.9  # the packed product must take at most this part of the other's time
ROWS = 8  # the count of rows that the layout is made for; it serves any count
_faster_at: dict[tuple, tuple[bool, ...]] = {}  # of each kind of weight, for each of COUNTS


class PackedWeight:
    """A weight W `(m, n)` that multiplies columns by itself."""

    def __init__(self, weight: Tensor) -> None:
        """Copies `weight`, for which `can_pack`, into the layout."""
        self._weight, self.shape = weight.detach().unsqueeze(0), (1, *weight.shape)
        self._blocks, self._faster_at = _reordered(weight), faster_at(weight)

    def is_faster(self, columns: int) -> bool:
        """Whether the packed product is the faster one for so many columns."""
        return self._faster_at[bisect_right(COUNTS, columns) - 1]

    def wants_rows(self, columns: int) -> bool:
        """Whether it is fastest if each of so many columns is stored as a row."""
        return self.is_faster(columns) or wants_rows(self._weight, columns)

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool) -> None:
        """Writes W times `vectors` `(1, n, b)` to `out` `(1, m, b)`; with `adds`, adds it there."""
        if self.is_faster(out.shape[2]):
            put(_times(vectors[0].t().contiguous(), self._blocks).t(), out[0], adds)
        else:
            multiply(self._weight, vectors, out, adds)


def faster_at(weight: Tensor) -> tuple[bool, ...]:
    """For each of `COUNTS`, whether the packed product of weights `(m, n)` of this kind is the faster one."""
    way = requested_way.get()
    kind = (weight.shape, weight.dtype, torch.get_num_threads(), way)
    if kind not in _faster_at:
        least = 1 if way == "packed" else RULE[weight.dtype][0] if IS_AMD else None
        _faster_at[kind] = tuple(count >= least for count in COUNTS) if least else _measured(weight.detach())
    return _faster_at[kind]


def _measured(weight: Tensor) -> tuple[bool, ...]:
    blocks, faster = _reordered(weight), []
    for count in COUNTS:
        vectors, out = (
            columns_in(weight.new_zeros(size * count), 1, size, count, wants_rows(weight, count))
            for size in reversed(weight.shape)
        )
        rows = vectors[0].t().contiguous()
        products = (partial(_times, rows, blocks), partial(multiply, weight.unsqueeze(0), vectors, out))
        packed, other = (min(repeat(product, number=1, repeat=ROUNDS)) for product in products)
        faster.append(packed < ADVANTAGE * other)
    return tuple(faster)


def _reordered(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)


def _times(rows: Tensor, blocks: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, blocks, None, "none", [], "")


_kept = WeakTensorKeyDictionary()  # from a weight to its `PackedWeight`, and what tells of changes


def can_pack(weight: Any) -> bool:
    """Whether torch has the layout for `weight`: on a CPU, float32, or bfloat16 where the processor knows it."""
    is_plain = isinstance(weight, Tensor) and type(weight.data) is Tensor and weight.device.type == "cpu"
    if not is_plain or torch.jit.is_tracing():  # torch's tracer does not know the layout
        return False
    is_served = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and multiplies_bfloat16())
    return is_served and torch.backends.mkldnn.is_available()


def pack(weight: Tensor) -> PackedWeight | None:
    """Packs a weight and keeps the result, if it is faster for some count; returns what is kept."""
    kept = _find(weight)
    # Changes of tensors made in inference mode are not counted.
    if kept is None and can_pack(weight) and not weight.is_inference() and any(faster_at(weight)):
        before = weight.data_ptr(), weight._version, _sample(weight)
        kept = PackedWeight(weight)
        _kept[weight] = kept, *before
    return kept


def stack_packed(weights: list[Weights], columns: Sequence[int], has_gradient: bool) -> Weights:
    """Joins the parameters of several directions as `stack` does; packs those of one, for steps of so many columns."""
    joint = stack(weights)
    if len(weights) > 1:
        return joint
    packed: dict[str, Any] = {}
    for name in ("recurrent", "projection"):
        weight, kept = getattr(weights[0], name), None
        # Autocast makes tensors of its own, which are no parameters and do not outlive the scan.
        is_lasting = isinstance(weight, nn.Parameter) and not has_gradient
        if requested_way.get() is None and can_pack(weight):
            keeps = is_lasting and weight.dtype == torch.bfloat16 and weight.nbytes >= LARGE_BYTES
            kept = pack(weight) if keeps else _find(weight)
        packed[name] = kept or packed_for(getattr(joint, name), columns)
    return joint._replace(**packed)


def packed_for(weight: Any, columns: Sequence[int]) -> Any:
    """`weight` `(D, m, n)`, packed if that pays in a scan whose steps have so many columns."""
    if not can_pack(weight) or len(weight) > 1:
        return weight
    least, steps = RULE[weight.dtype]
    has_rule = IS_AMD and requested_way.get() is None and weight.nbytes >= LARGE_BYTES
    pays = has_rule and sum(count >= least for count in columns) >= steps
    return PackedWeight(weight[0]) if pays or requested_way.get() == "packed" else weight


def _find(weight: Tensor) -> PackedWeight | None:
    kept = _kept.get(weight)
    if kept is None:
        return None
    packed, address, version, sample = kept
    if (address, version) == (weight.data_ptr(), weight._version) and torch.equal(sample, _sample(weight)):
        return packed
    _kept.pop(weight, None)  # another thread may have been first
    return None


def _sample(weight: Tensor) -> Tensor:
    """One number of each row, from all columns in turn."""
    rows = torch.arange(len(weight), device=weight.device)
    return weight.detach()[rows, rows % weight.shape[1]]
