"""The parameters of an LSTM with projection, as the scans take them. Glossary: D directions, P projection, H cell."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

Scanned = tuple[Tensor, Tensor, Tensor]  # outputs, then hidden and cell after the last word


class Weights(NamedTuple):
    """The parameters of one direction, or of D directions with D as the first axis of each shape."""

    inputs: Tensor  # (4H, P), W_x
    bias: Tensor  # (4H,), b, with the forget bias added
    recurrent: Tensor  # (4H, P), W_h
    projection: Tensor | None  # (P, H), W_p, or None if P = H and nothing is projected

    def to(self, dtype: torch.dtype) -> "Weights":
        """The same in another dtype."""
        tensors: list[Any] = [None if tensor is None else tensor.to(dtype) for tensor in self]
        return Weights(*tensors)


class Limits(NamedTuple):
    """Clipping limits; None means unlimited."""

    cell: float | None
    projection: float | None  # None where nothing is projected


def stack(weights: list[Weights]) -> Weights:
    """Joins the parameters of several directions; does not copy the parameters of a single direction."""

    def join(parts: tuple[Any, ...]) -> Any:
        if not isinstance(parts[0], Tensor):
            return parts[0]  # None, or products of one direction
        return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)

    return Weights(*map(join, zip(*weights, strict=True)))


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd is on and any of the tensors requires a gradient."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
