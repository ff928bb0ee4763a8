"""One biLM layer for tests of the scans, with inputs, masks and states for it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmo_hf import ElmoConfig
from elmo_hf.model.bilm import BiLMLayer
from elmo_hf.scan.reading_order import BatchLayout

B, T, P, H = 4, 6, 10, 7
LENGTHS = {"full": [6, 6, 6, 6], "padded": [3, 0, 6, 1], "without words": [0, 0, 0, 0]}
# Lengths, side of the padding, and whether states are reset on the way.
TEXTS = [
    ("full", "right", False),
    ("full", "right", True),
    ("padded", "right", True),
    ("padded", "left", False),
    ("without words", "right", False),
]
SHAPES = {
    "as it is": {},
    "no cell clip": {"cell_clip": None},
    "no projection clip": {"projection_clip": None},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "no projection": {"cell_size": P},
    "square projection": {"cell_size": P, "cell_projection": True},
    "no forget bias": {"forget_bias": 0.0},
    "one direction": {"bidirectional": False},
}
Tensors = tuple[Tensor, ...]


def layer_of(dtype: torch.dtype = torch.float64, has_skip_connection: bool = False, **fields: Any) -> BiLMLayer:
    """A layer whose weights are large enough for both clips to act."""
    fields = {"projection_size": P, "cell_size": H, "cell_clip": 0.4, "projection_clip": 0.3} | fields
    layer = BiLMLayer(ElmoConfig(**fields), has_skip_connection).to(dtype)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.9, 0.9)
    return layer


def mask_of(lengths: list[int], side: str = "right") -> Tensor:
    places = torch.arange(T) if side == "right" else torch.arange(T).flip(0)
    return places < torch.tensor(lengths).unsqueeze(1)


def arguments_of(layer: BiLMLayer, length: int = T) -> Tensors:
    """Inputs and the state before them, all of which want a gradient."""
    weight = layer.forward_lstm.input_linear.weight
    cell_size = weight.shape[0] // 4
    count = len(layer.lstms)
    shapes = [(B, length, count * P), (B, count * P), (B, count * cell_size)]
    return tuple(torch.randn(shape, dtype=weight.dtype, requires_grad=True) for shape in shapes)


def run(layer: BiLMLayer, arguments: Tensors, mask: Tensor, *resets: Tensor) -> Tensors:
    """Outputs and last state; `resets` of directions that the layer lacks are left out."""
    (inputs, hidden, cell), count = arguments, len(layer.lstms)
    return layer(inputs, BatchLayout(mask, resets[:count] or None, count), hidden, cell)


def with_gradients(outputs: Tensors, leaves: Sequence[Tensor]) -> Tensors:
    """Outputs, and the gradients of a random projection of them."""
    generator = torch.Generator().manual_seed(3)
    loss = sum((output * torch.randn(output.shape, generator=generator).to(output)).sum() for output in outputs)
    return (*outputs, *torch.autograd.grad(loss, leaves))
