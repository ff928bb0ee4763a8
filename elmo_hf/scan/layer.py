"""The entry to the fast scans: one biLM layer, both directions, by the fastest kernel that can run.

`packed.py` skips the padding, and so must know on the CPU where it is. `triton_scan.py` computes the padding like words
and never waits for the GPU. `BatchLayout` holds what either derives from mask and resets: once per batch, on first use.

Glossary: B batch, T positions, P projection, H cell. The forward half of a last axis comes first.
"""

import functools

import torch
from torch import Tensor

from .packed import scan_packed
from .parameters import Limits, Weights
from .path import may_take
from .reading_order import ReadingOrder, reading_order
from .triton_scan import is_available, scan_triton


class BatchLayout:
    """Where a batch has words and where it resets the state: the same for all layers.

    Attributes:
        mask: `(B, T)`, True on words.
        resets: for each direction `(B, T)`, True on words before which its state is set to zero; None means never.
    """

    def __init__(self, mask: Tensor, resets: tuple[Tensor, Tensor] | None = None) -> None:
        """Keeps the arguments; everything else is computed on first use."""
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Scans one layer.

    Args:
        inputs: `(B, T, 2P)`, not empty.
        layout: of the batch.
        hidden: `(B, 2P)`, the state before the first word.
        cell: `(B, 2H)`, also before the first word.
        weights: of each direction, in the dtype of the matrix products.
        limits: of both directions.

    Returns:
        outputs `(B, T, 2P)` in text order, zero where the mask is False; then `hidden` and `cell` after the last word.
    """
    layout = layout.on(inputs.device)
    has_triton = may_take("triton") and is_available(inputs.device, weights[0].inputs.dtype)
    scan = _scan_with_padding if has_triton else _scan_words
    with torch.autocast(inputs.device.type, enabled=False):
        return scan(inputs, layout, hidden, cell, weights, limits)


def _scan_words(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> tuple[Tensor, Tensor, Tensor]:
    dtype, order = weights[0].inputs.dtype, layout.order
    halves = zip(inputs.flatten(0, 1).chunk(2, dim=-1), order.places, strict=True)
    outputs, *last = scan_packed(
        torch.stack([half.index_select(0, places) for half, places in halves]).to(dtype),
        order.columns,
        order.keeps,
        hidden[order.texts].t().unflatten(0, (2, -1)).to(dtype),
        cell[order.texts].t().unflatten(0, (2, -1)),
        weights,
        limits,
    )
    if order.keeps_at_end is not None:
        last = [state * order.keeps_at_end.unsqueeze(1) for state in last]
    padding = inputs.new_zeros(layout.mask.numel(), outputs.shape[-1])
    halves = zip(order.places, outputs.to(inputs.dtype), strict=True)
    in_text_order = torch.cat([padding.index_copy(0, places, half) for places, half in halves], dim=-1)
    hidden, cell = (state.flatten(0, 1).t()[order.ranks].to(inputs.dtype) for state in last)
    return in_text_order.view_as(inputs), hidden, cell


def _scan_with_padding(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = weights[0].inputs.dtype
    outputs, *last = scan_triton(
        _by_step(*inputs.to(dtype).chunk(2, dim=-1)),
        *layout.flags,
        torch.stack(hidden.to(dtype).chunk(2, dim=-1)),
        torch.stack(cell.float().chunk(2, dim=-1)),
        weights,
        limits,
    )
    in_text_order = torch.cat([outputs[0], outputs[1].flip(0)], dim=-1).transpose(0, 1)  # (B, T, 2P)
    hidden, cell = (torch.cat(state.unbind(), dim=-1).to(inputs.dtype) for state in last)
    return in_text_order.masked_fill(~layout.mask.unsqueeze(-1), 0).to(inputs.dtype), hidden, cell


def _by_step(forward: Tensor, backward: Tensor) -> Tensor:
    """Two tensors `(B, T, ...)` in text order to `(2, T, B, ...)`, each direction in its reading order."""
    return torch.stack([forward.transpose(0, 1), backward.transpose(0, 1).flip(0)])
