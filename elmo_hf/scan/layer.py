"""The entry to the fast scans: one biLM layer, both directions, by the fastest kernel that can run.

`packed.py` skips the padding, and so must know on the CPU where it is. `triton_scan.py` computes the padding like words
and never waits for the GPU. `BatchLayout` holds what each derives from mask and resets.

Glossary: B batch, T positions, P projection, H cell. The forward half of a last axis comes first.
"""

import functools

import torch
from torch import Tensor

from .packed import scan_packed
from .parameters import Limits, Scanned, Weights
from .path import may_take
from .reading_order import ReadingOrder, reading_order
from .triton_scan import is_available, scan_triton


class BatchLayout:
    """Where a batch has words and where it resets the state: the same for all layers."""

    def __init__(self, mask: Tensor, resets: tuple[Tensor, Tensor] | None = None) -> None:
        """Keeps `mask` `(B, T)`, True on words, and `resets`; computes everything else on first use.

        `resets` is `(B, T)` for each direction, True on words before which its state is set to zero; None means never.
        """
        self.mask, self.resets = mask, resets
        self._copies: dict[torch.device, BatchLayout] = {}

    def on(self, device: torch.device) -> "BatchLayout":
        """The same layout on another device, copied once."""
        if device == self.mask.device:
            return self
        if device not in self._copies:
            resets = None if self.resets is None else (self.resets[0].to(device), self.resets[1].to(device))
            self._copies[device] = BatchLayout(self.mask.to(device), resets)
        return self._copies[device]

    @functools.cached_property
    def order(self) -> ReadingOrder:
        """What `packed.py` needs."""
        return reading_order(self.mask, self.resets)

    @functools.cached_property
    def flags(self) -> tuple[Tensor, Tensor]:
        """What `triton_scan.py` needs: `is_word` and `keeps`, bytes `(2, T, B)`."""
        is_word = _by_step(self.mask, self.mask)
        keeps = torch.ones_like(is_word) if self.resets is None else ~_by_step(*self.resets)
        return is_word.to(torch.uint8), keeps.to(torch.uint8)


def scan_layer(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer; `weights` has one item for each direction, in the dtype of the matrix products.

    Maps inputs `(B, T, 2P)`, not empty, and the state before the first word, hidden `(B, 2P)` and cell `(B, 2H)`, to
    outputs in text order, zero where the mask is False, and the state after the last word, shaped the same.
    """
    layout = layout.on(inputs.device)
    with torch.autocast(inputs.device.type, enabled=False):
        if may_take("triton") and is_available(inputs.device, weights[0].inputs.dtype):
            return _scan_with_padding(inputs, layout, hidden, cell, weights, limits)
        return scan_packed(inputs, layout.order, hidden, cell, weights, limits)


def _scan_with_padding(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    dtype = weights[0].inputs.dtype
    words = _by_step(*inputs.to(dtype).chunk(2, dim=-1))
    hidden, cell = (torch.stack(state.chunk(2, dim=-1)) for state in (hidden.to(dtype), cell.float()))
    outputs, *last = scan_triton(words, *layout.flags, hidden, cell, weights, limits)
    in_text_order = torch.cat([outputs[0], outputs[1].flip(0)], dim=-1).transpose(0, 1)  # (B, T, 2P)
    hidden, cell = (torch.cat(state.unbind(), dim=-1).to(inputs.dtype) for state in last)
    return in_text_order.masked_fill(~layout.mask.unsqueeze(-1), 0).to(inputs.dtype), hidden, cell


def _by_step(forward: Tensor, backward: Tensor) -> Tensor:
    """Two tensors `(B, T, ...)` in text order to `(2, T, B, ...)`, each direction in its reading order."""
    return torch.stack([forward.transpose(0, 1), backward.transpose(0, 1).flip(0)])
