"""The entry to the fast scans: one biLM layer, all its directions, by the fastest scan that can run.

`packed.py` skips the padding, and so must know on the CPU where it is; kernels for GPUs may compute it like words.

Glossary: D directions, forward before backward; B batch, T positions, P projection, H cell.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from .kernels import kernels
from .packed import scan_packed
from .parameters import Limits, Scanned, Weights
from .reading_order import ReadingOrder, reading_order


class BatchLayout:
    """Where a batch has words and where it resets the state: the same for all layers."""

    def __init__(self, mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> None:
        """Keeps `mask` `(B, T)`, True on words, and `resets`; computes the reading order on first use.

        `resets` is `(B, T)` for each direction, True on words before which its state is set to zero; None means never.
        """
        self.mask, self.resets, self.num_directions = mask, resets, num_directions
        self._copies: dict[torch.device, BatchLayout] = {}

    def on(self, device: torch.device) -> "BatchLayout":
        """The same layout on another device, copied once."""
        if device == self.mask.device:
            return self
        if device not in self._copies:
            resets = None if self.resets is None else [reset.to(device) for reset in self.resets]
            self._copies[device] = BatchLayout(self.mask.to(device), resets, self.num_directions)
        return self._copies[device]

    @functools.cached_property
    def order(self) -> ReadingOrder:
        """What `packed.py` needs."""
        return reading_order(self.mask, self.resets, self.num_directions)


def scan_layer(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer; `weights` has one item for each direction; the dtype of `hidden` is that of the products.

    Maps inputs `(B, T, DP)`, not empty, and the state before the first word, hidden `(B, DP)` and cell `(B, DH)`, to
    outputs in text order, zero where the mask is False, and the state after the last word, shaped the same.
    """
    layout, chosen = layout.on(inputs.device), kernels()
    with torch.autocast(inputs.device.type, enabled=False):
        scanned = chosen.scan_with_padding(inputs, layout.mask, layout.resets, hidden, cell, weights, limits)
        return scanned or scan_packed(inputs, layout.order, hidden, cell, weights, limits, chosen)
