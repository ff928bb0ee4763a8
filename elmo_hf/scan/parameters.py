"""The parameters of an LSTM with projection, as the scans take them. Glossary: D directions, P projection, H cell."""

from typing import NamedTuple

import torch
from torch import Tensor


class Weights(NamedTuple):
    """The parameters of one direction, or of D directions with D as the first axis of each shape.

    Attributes:
        inputs: `(4H, P)`, W_x.
        bias: `(4H,)`, b, with the forget bias added.
        recurrent: `(4H, P)`, W_h.
        projection: `(P, H)`, W_p, or None if P = H and nothing is projected.
    """

    inputs: Tensor
    bias: Tensor
    recurrent: Tensor
    projection: Tensor | None


class Limits(NamedTuple):
    """Clipping limits; None means unlimited."""

    cell: float | None
    projection: float | None


def stack(weights: list[Weights]) -> Weights:
    """Joins the parameters of several directions; those of a single direction are not copied."""

    def join(parts: list[Tensor]) -> Tensor:
        return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)

    projections = [direction.projection for direction in weights if direction.projection is not None]
    return Weights(
        join([direction.inputs for direction in weights]),
        join([direction.bias for direction in weights]),
        join([direction.recurrent for direction in weights]),
        join(projections) if projections else None,
    )


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd is on and any of the tensors wants a gradient."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
