"""Weights kept a second time, in the layout of oneDNN's own products (`column_products.py`).

A product with a few columns may then take half the time, or no less: it depends on the processor and the count of
columns. So `pack` measures both ways once for each shape (on AMD's processors, in float32, a rule says it), takes the
faster one for each count, and keeps no weight that is never faster. At most, it takes as much memory again as the
weights W_h and W_p of large layers.

A packed weight serves products without gradient while the weight it was made from lives and is unchanged: its address,
torch's count of changes in place, and one number of each row, since fused optimisers and changes of `weight.data` are
not counted. Nothing of it is saved or copied.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .column_products import IS_AMD, columns_in, multiplies_bfloat16, multiply, put, wants_rows
from .parameters import Weights, stack

# Counts of columns that are measured; each stands for those up to the next one.
COUNTS = (1, 2, 4, 8, 16, 32, 64)
AMD_COUNT = 4  # from which on float32 is faster on AMD's processors
ROUNDS = 4
ADVANTAGE = 0.9  # the packed product must take at most this part of the other's time
ROWS = 8  # the count of rows that the layout is made for; it serves any count
_faster_at: dict[tuple, tuple[bool, ...]] = {}  # of a shape, a dtype and a count of threads, for each of COUNTS


class PackedWeight:
    """A weight W `(m, n)` that multiplies columns by itself."""

    def __init__(self, weight: Tensor) -> None:
        """Copies `weight`, a float32 or bfloat16 matrix on a CPU, into the layout, and measures its products."""
        self._version, self._sample = _version(weight), _sample(weight).clone()
        self._weight = weight.detach().unsqueeze(0)
        self._blocks = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        kind = (weight.shape, weight.dtype, torch.get_num_threads())
        if kind not in _faster_at:
            has_rule = IS_AMD and weight.dtype == torch.float32
            _faster_at[kind] = tuple(count >= AMD_COUNT if has_rule else self._measure(count) for count in COUNTS)
        self._faster_at = _faster_at[kind]

    def is_of(self, weight: Tensor) -> bool:
        """Whether the weight that it was made from is unchanged."""
        return self._version == _version(weight) and torch.equal(self._sample, _sample(weight))

    def is_faster(self, columns: int | None = None) -> bool:
        """Whether the packed product is the faster one for so many columns, or for any count."""
        return any(self._faster_at) if columns is None else self._faster_at[bisect_right(COUNTS, columns) - 1]

    def wants_rows(self, columns: int) -> bool:
        """Whether it is fastest if each of so many columns is stored as a row."""
        return self.is_faster(columns) or wants_rows(self._weight, columns)

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool) -> None:
        """Writes W times `vectors` `(1, n, b)` to `out` `(1, m, b)`; with `adds`, adds it there."""
        if not self.is_faster(out.shape[2]):
            multiply(self._weight, vectors, out, adds)
            return
        put(self._times(vectors[0].t().contiguous()).t(), out[0], adds)

    def _times(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._blocks, None, "none", [], "")

    def _measure(self, count: int) -> bool:
        _, height, width = self._weight.shape
        vectors, out = (
            columns_in(self._weight.new_zeros(size * count), 1, size, count, wants_rows(self._weight, count))
            for size in (width, height)
        )
        rows = vectors[0].t().contiguous()
        rounds = [
            (_seconds(lambda: self._times(rows)), _seconds(lambda: multiply(self._weight, vectors, out)))
            for _ in range(ROUNDS)
        ]
        packed, other = map(min, zip(*rounds, strict=True))
        return packed < ADVANTAGE * other


_packed = WeakTensorKeyDictionary()  # from a weight to its `PackedWeight`


def pack(weights: Iterable[Tensor]) -> None:
    """Packs the weights on a CPU, in float32, or in bfloat16 where the processor knows it, if this torch has oneDNN."""
    dtypes = (torch.float32, torch.bfloat16) if multiplies_bfloat16() else (torch.float32,)
    for weight in weights:
        is_served = weight.dtype in dtypes and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
        # Changes of tensors made in inference mode are not counted.
        if is_served and type(weight.data) is Tensor and not weight.is_inference() and _find(weight) is None:
            packed = PackedWeight(weight)
            if packed.is_faster():
                _packed[weight] = packed


def stack_packed(weights: list[Weights]) -> Weights:
    """Joins the parameters of several directions as `stack` does; of a single one, takes those that are packed."""
    joint = stack(weights)
    if len(weights) > 1:
        return joint
    found: dict[str, Any] = {name: _find(getattr(weights[0], name)) for name in ("recurrent", "projection")}
    return joint._replace(**{name: packed for name, packed in found.items() if packed is not None})


def _find(weight: Tensor | None) -> PackedWeight | None:
    packed = _packed.get(weight) if isinstance(weight, Tensor) else None
    if weight is None or packed is None or packed.is_of(weight):
        return packed
    _packed.pop(weight, None)  # another thread may have been first
    return None


def _version(weight: Tensor) -> tuple[int, int]:
    return weight.data_ptr(), weight._version


def _sample(weight: Tensor) -> Tensor:
    """One number of each row, from all columns in turn."""
    return weight.detach().flatten()[:: weight.shape[1] + 1]


def _seconds(product: Callable[[], object]) -> float:
    start = time.perf_counter()
    product()
    return time.perf_counter() - start
