"""Large weights packed in oneDNN's own layout, with which a step takes 0.4 to 0.8 of the time.

Packing takes as long as several steps save. So on AMD's processors a scan packs the weights that enough of its steps
use, forward and backward, and drops the copy at its end. On other processors the plain weight is nearly as fast. The
rule (`REPAYS`) depends only on the processor, the dtype and the numbers of columns, so a machine always adds in the
same order. In bfloat16 a scan of any length without gradient packs, and keeps the copy; in float32 only `pack` keeps a
copy, because it takes as much memory as W_h and W_p.

A kept copy is used only while its weight exists and seems unchanged: its address, its count of changes in place, and
the running sums of one number in each row are the same (torch does not count the changes that fused optimisers and
`weight.data` make). Copies are never saved.
"""

import torch
from torch import Tensor

from .products import BlockProducts, put, times

# For each range of columns, how many steps repay packing on AMD's processors (docs/speed.md).
REPAYS = {torch.float32: (range(8, 1 << 30), 16), torch.bfloat16: (range(1, 1 << 30), 8)}
ROWS = 8  # the layout is made for this count of rows, and serves any count


class PackedProducts(BlockProducts):
    """A weight W `(m, n)` in the layout."""

    def __init__(self, weight: Tensor) -> None:
        """Copies the weight into the layout."""
        super().__init__(weight.detach()[None], weight.nbytes, few_columns=1 << 30)  # every column as a row
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight[0], ROWS)

    def multiply(self, vectors: Tensor, out: Tensor, adds: bool = False) -> None:
        """Writes W times `vectors` `(1, n, b)` to `out` `(1, m, b)`; with `adds`, adds it to `out`."""
        put(self.times(vectors), out, adds)

    def times(self, vectors: Tensor) -> Tensor:
        """W times `vectors` `(1, n, b)` as a new tensor."""
        return times(vectors[0].t().contiguous(), self._packed).t().unsqueeze(0)


def state_of(weight: Tensor) -> tuple[int, int, float]:
    """A fingerprint of a weight `(m, n)`, computed from a part of its numbers."""
    one_in_each_row = weight.detach().flatten()[:: max(1, weight.shape[1] - 1)]  # from all columns in turn
    return weight.data_ptr(), weight._version, one_in_each_row.double().cumsum(0).sum().item()
