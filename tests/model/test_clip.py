"""The clip of cells and outputs: the numbers of `torch.clamp`, with a gradient that no version of torch changes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from elmo_hf.model.layers_elmo import clip

LIMIT = 0.3
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def numbers(dtype: torch.dtype = torch.float64) -> Tensor:
    """Outside, at and inside the limits, the two zeros, infinities and NaN."""
    limit = torch.tensor(LIMIT, dtype=dtype)
    beside = torch.stack([limit.nextafter(torch.zeros_like(limit)), limit, limit.nextafter(torch.ones_like(limit))])
    special = torch.tensor([0.0, -0.0, 0.1, 7.0, math.inf, -math.inf, math.nan], dtype=dtype)
    return torch.cat([beside, -beside, special])


# 1 inside the limits and at them, else 0.
GRADIENT = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def clipped(tensor: Tensor) -> Tensor:
    return clip(tensor, LIMIT)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_clip_gives_the_bits_of_clamp_and_nothing_without_a_limit(dtype: torch.dtype) -> None:
    tensor = numbers(dtype)
    bits = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16}[dtype]
    assert torch.equal(clipped(tensor).view(bits), tensor.clamp(-LIMIT, LIMIT).view(bits))
    assert clip(tensor, None) is tensor


def strict_clamp(tensor: Tensor, least: float, most: float) -> Tensor:
    """`clamp` with the gradient of torch 2.14: 0 at the limits too."""
    return torch.where((tensor > least) & (tensor < most), tensor, tensor.detach().clip(least, most))


def by_backward(tensor: Tensor) -> Tensor:
    leaf = tensor.detach().requires_grad_()
    clipped(leaf).backward(torch.ones_like(leaf))
    assert leaf.grad is not None
    return leaf.grad


def by_compilation(tensor: Tensor) -> Tensor:
    leaf = tensor.detach().requires_grad_()
    torch.compile(clipped, backend="aot_eager", fullgraph=True)(leaf).backward(torch.ones_like(leaf))
    assert leaf.grad is not None
    return leaf.grad


def by_transforms(tensor: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(clipped))(tensor)


def by_jvp(tensor: Tensor) -> Tensor:
    return torch.func.jvp(clipped, (tensor,), (torch.ones_like(tensor),))[1]


@pytest.mark.parametrize("clamp", [Tensor.clamp, strict_clamp], ids=["this torch", "2.14"])
@pytest.mark.parametrize(
    "differentiate", [by_backward, by_transforms, by_jvp, pytest.param(by_compilation, marks=pytest.mark.slow)]
)
def test_a_clip_passes_gradients_at_its_limits_whatever_the_gradient_of_clamp(
    differentiate: Callable[[Tensor], Tensor], clamp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "clamp", clamp)
    torch.compiler.reset()
    for dtype in DTYPES:
        assert differentiate(numbers(dtype)).tolist() == GRADIENT, dtype


def test_a_clip_can_be_differentiated_twice() -> None:
    tensor = torch.tensor([0.1, -0.2, 0.5, -4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(clipped, tensor)
    assert torch.autograd.gradgradcheck(lambda leaf: clipped(leaf) ** 3, tensor)


def test_an_exported_clip_gives_the_same_bits() -> None:
    class Clip(torch.nn.Module):
        def forward(self, tensor: Tensor) -> Tensor:
            return clipped(tensor)

    tensor = numbers(torch.float32)
    program = torch.export.export(Clip(), (tensor,)).module()
    assert torch.equal(program(tensor).view(torch.int32), clipped(tensor).view(torch.int32))
