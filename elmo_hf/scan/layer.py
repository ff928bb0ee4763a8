"""The entry to the fast scans: one biLM layer, all its directions, by the fastest kernel that can run.

`packed.py` skips the padding, and so must know on the CPU where it is. `triton_scan.py` computes the padding like words
and never waits for the GPU. `BatchLayout` holds what each derives from mask and resets.

Glossary: D directions, forward before backward; B batch, T positions, P projection, H cell.
"""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from .packed import scan_packed
from .parameters import Limits, Scanned, Weights
from .path import may_take
from .reading_order import ReadingOrder, reading_order
from .triton_scan import is_available, scan_triton


class BatchLayout:
    """Where a batch has words and where it resets the state: the same for all layers."""

    def __init__(self, mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> None:
        """Keeps `mask` `(B, T)`, True on words, and `resets`; computes everything else on first use.

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

    @functools.cached_property
    def flags(self) -> tuple[Tensor, Tensor]:
        """What `triton_scan.py` needs: `is_word` and `keeps`, bytes `(D, T, B)`."""
        is_word = _by_step([self.mask] * self.num_directions)
        keeps = torch.ones_like(is_word) if self.resets is None else ~_by_step(self.resets)
        return is_word.to(torch.uint8), keeps.to(torch.uint8)


def scan_layer(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer; `weights` has one item for each direction; the dtype of `hidden` is that of the products.

    Maps inputs `(B, T, DP)`, not empty, and the state before the first word, hidden `(B, DP)` and cell `(B, DH)`, to
    outputs in text order, zero where the mask is False, and the state after the last word, shaped the same.
    """
    layout = layout.on(inputs.device)
    with torch.autocast(inputs.device.type, enabled=False):
        is_float = isinstance(weights[0].inputs, Tensor)
        if is_float and may_take("triton") and is_available(inputs.device, hidden.dtype):
            return _scan_with_padding(inputs, layout, hidden, cell, weights, limits)
        return scan_packed(inputs, layout.order, hidden, cell, weights, limits)


def _scan_with_padding(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    dtype, count = hidden.dtype, len(weights)
    words = _by_step(inputs.to(dtype).chunk(count, dim=-1))
    hidden, cell = (torch.stack(state.chunk(count, dim=-1)) for state in (hidden, cell.float()))
    outputs, *last = scan_triton(words, *layout.flags, hidden, cell, [parts.to(dtype) for parts in weights], limits)
    in_text_order = torch.cat(_turned(outputs), dim=-1).transpose(0, 1)  # (B, T, DP)
    hidden, cell = (torch.cat(state.unbind(), dim=-1).to(inputs.dtype) for state in last)
    return in_text_order.masked_fill(~layout.mask.unsqueeze(-1), 0).to(inputs.dtype), hidden, cell


def _by_step(directions: Sequence[Tensor]) -> Tensor:
    """D tensors `(B, T, ...)` in text order to `(D, T, B, ...)`, each direction in its reading order."""
    return torch.stack(_turned([direction.transpose(0, 1) for direction in directions]))


def _turned(directions: Sequence[Tensor] | Tensor) -> list[Tensor]:
    """D tensors `(T, ...)` from text order to reading order, or back: only the backward direction changes."""
    return [direction.flip(0) if index == 1 else direction for index, direction in enumerate(directions)]
