"""Products of few vectors with the transpose of W_h, for the backward steps of a scan on AMD's processors.

    y = W^T v      W (m, n); b vectors v, the rows of (b, m), give the rows of (b, n): dh of dz for b texts

If b is small, MKL, torch's library, is slow at this on AMD's processors. oneDNN is fast if the transpose of W lies in
memory row by row (docs/speed.md), so a scan makes one copy for all its steps. W_p has no copy: it is smaller, and there
MKL is faster for one or two vectors.

Glossary: b vectors; a weight is `(m, n)`, its transpose `(n, m)`.
"""

from torch import Tensor

from ..model.scan_elmo import MANY_ROWS, ONEDNN_ROWS, by_onednn


class TransposedProducts:
    """A weight in float32 whose transpose, a copy, multiplies vectors."""

    def __init__(self, weight: Tensor) -> None:
        """Copies the weight `(m, n)`."""
        self.transposed = weight.t().contiguous()

    def times(self, rows: Tensor) -> Tensor:
        """The transpose times each of the rows `(1, b, m)`, as `(1, b, n)`."""
        if ONEDNN_ROWS <= rows.shape[1] < MANY_ROWS:  # oneDNN copies its second factor, so that is the smaller one
            return by_onednn(self.transposed, rows[0], None).t().contiguous()[None]
        return by_onednn(rows[0], self.transposed, None)[None]
