"""One layer's scan on a GPU, in the original's sizes: its errors, and the time of a step.

    python benchmarks/gpu_scan.py

Errors: outputs, last states and every gradient of Triton's scan, relative to their norms, against the packed scan in
float64; next to them the errors of the packed scan in the same format. Nothing is timed if Triton's error in float32 is
more than 1e-5.

Time: microseconds of a step (both directions) with and without gradient. "Python" is the time until Python has
launched everything.

`--device cpu --small` checks that everything runs, with the packed scan.

Glossary: B batch, T words.
"""

import itertools
import statistics
import time
from copy import deepcopy
from typing import Annotated

import torch
import typer
from gpu import FORMATS, products_of
from timing import machine, print_table
from torch import Tensor
from workload import random_model

from elmo_hf.kernels.path import scan_path
from elmo_hf.model.layers_elmo import BiLMLayer
from elmo_hf.model.scan_elmo import BatchLayout

SHAPES = [(1, 1), (1, 2000), (3, 7), (8, 300), (64, 40), (256, 25)]  # (B, T)
NAMES = ["outputs", "last state", "gradients"]
BATCHES, LENGTH = (1, 8, 32, 64, 256), 64


def arguments(layer: BiLMLayer, batch: int, length: int, kind: str) -> tuple[Tensor, BatchLayout, Tensor, Tensor]:
    """Random inputs and states, and a layout of `kind`: "full", "right", "left" (padding), or "resets"."""
    weight = layer.forward_lstm.input_linear.weight
    draw = torch.Generator(weight.device).manual_seed(batch * length)
    gates, size = weight.shape

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, device=weight.device).mul(0.5)

    lengths = torch.randint(length + 1, (batch, 1), generator=draw, device=weight.device)
    lengths[0] = length
    places = torch.arange(length, device=weight.device)
    mask = (places.flip(0) if kind == "left" else places) < (length if kind == "full" else lengths)
    mask = mask.expand(batch, length)
    resets = [torch.rand(mask.shape, generator=draw, device=weight.device) < 0.1 for _ in range(2)]
    layout = BatchLayout(mask, resets if kind == "resets" else None)
    return normal(batch, length, 2 * size), layout, normal(batch, 2 * size), normal(batch, gates // 2)


def results(layer: BiLMLayer, path: str, inputs: Tensor, layout: BatchLayout, *states: Tensor) -> list[list[Tensor]]:
    """Outputs, last states, and gradients of a random projection of both."""
    dtype = layer.forward_lstm.input_linear.weight.dtype
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (inputs, *states)]
    leaves += layer.parameters()
    with scan_path(path):
        found = layer(leaves[0], layout, *leaves[1:3])
    draw = torch.Generator(inputs.device).manual_seed(1)
    weights = [torch.randn(tensor.shape, generator=draw, device=inputs.device) for tensor in found]
    loss = sum((tensor.to(weight.dtype) * weight).sum() for tensor, weight in zip(found, weights, strict=True))
    return [[found[0]], [*found[1:]], list(torch.autograd.grad(loss, leaves))]


def error(found: list[Tensor], exact: list[Tensor]) -> float:
    """The largest relative error of a tensor, in norm; a tensor of zeros must be zero."""
    return max(
        float((a.detach().double() - b).norm() / b.norm().clamp(min=1e-30)) for a, b in zip(found, exact, strict=True)
    )


def errors(layer: BiLMLayer, shapes: list[tuple[int, int]]) -> None:
    """Compares all formats, shapes and layouts; stops where Triton's scan is wrong in float32."""
    worst: dict[tuple[str, str], tuple[float, float]] = {}
    exact_layer = deepcopy(layer).double()
    for (batch, length), kind in itertools.product(shapes, ("right", "left", "resets")):
        inputs = arguments(layer, batch, length, kind)
        exact = results(exact_layer, "packed", *inputs)
        for name in FORMATS:
            with products_of(name) as dtype:
                rounded = deepcopy(layer).to(dtype)
                triton = list(map(error, results(rounded, "triton", *inputs), exact))
                packed = list(map(error, results(rounded, "packed", *inputs), exact))
            for what, one, other in zip(NAMES, triton, packed, strict=True):
                if name == "float32" and not one <= 1e-5:
                    raise SystemExit(f"{batch} texts of {length} words, {kind}: {what} differ by {one:.1e}.")
                before = worst.get((name, what), (0.0, 0.0))
                worst[name, what] = max(before[0], one), max(before[1], other)
    header = ["largest errors"]
    for what in NAMES:
        header += [f"{what}, Triton", f"{what}, packed"]
    rows = []
    for name in FORMATS:
        values = itertools.chain.from_iterable(worst[name, what] for what in NAMES)
        rows.append([name, *(f"{value:.1e}" for value in values)])
    print_table(header, rows)


def seconds(layer: BiLMLayer, inputs: Tensor, layout: BatchLayout, *states: Tensor, train: bool) -> tuple[float, float]:
    """Median seconds of a call, forward or forward and backward: until everything is launched, and in all."""
    device, launched, ended = inputs.device, [], []
    for _ in range(7):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        with torch.set_grad_enabled(train):
            outputs = layer(inputs, layout, *states)[0]
            if train:
                outputs.backward(torch.ones_like(outputs))
        launched.append(time.perf_counter() - start)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        ended.append(time.perf_counter() - start)
    return statistics.median(launched), statistics.median(ended)


def times(layer: BiLMLayer, batches: tuple[int, ...], length: int) -> None:
    """Microseconds of a step, by format and batch."""
    rows = []
    for name, batch in itertools.product(FORMATS, batches):
        with products_of(name) as dtype:
            rounded = deepcopy(layer).to(dtype)
            inputs, layout, *states = arguments(layer, batch, length, "full")
            row = []
            for train in (False, True):
                tensors = [tensor.detach().to(dtype) for tensor in (inputs, *states)]
                row += [
                    f"{1e6 * each / length:.1f}"
                    for each in seconds(rounded, tensors[0], layout, *tensors[1:], train=train)
                ]
        rows.append([f"{name}, {batch} texts", *row])
    print_table(["microseconds of a step", "Python", "forward", "Python", "forward and backward"], rows)


def main(
    device: Annotated[str, typer.Option(help="Where to run.")] = "cuda",
    small: Annotated[bool, typer.Option(help="Use a tiny layer, to check that everything runs.")] = False,
) -> None:
    """Compare, then measure and print tables."""
    layer = random_model(small).train().bilm.layers[0].to(device)
    print(machine(), torch.cuda.get_device_name() if device == "cuda" else "")
    errors(layer, [(1, 1), (3, 7)] if small else SHAPES)
    times(layer, (1, 2) if small else BATCHES, 3 if small else LENGTH)


if __name__ == "__main__":
    typer.run(main)
