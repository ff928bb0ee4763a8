"""The scan of GPUs against `LSTMP.forward` and `plain_scan`: values, states, every gradient.

`test_triton_scan.py` runs this file in a process whose kernels Triton interprets, on the CPU; where there is a GPU also
in one whose kernels are compiled.
"""

import os
from functools import partial
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from scan_layers import LENGTHS, SHAPES, TEXTS, Tensors, layer_of, mask_of, run, with_gradients
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from elmo_hf.model.lstmp import clip
from elmo_hf.scan import triton_kernels, triton_scan
from elmo_hf.scan.parameters import Limits, Weights
from elmo_hf.scan.path import scan_path


def _call(function: InterpretedFunction, *args: Any, **options: Any) -> Any:
    """Calls a device function; the interpreter would first patch Triton again, in half of the time of a case."""
    return function.rewrite()(*args, **options)


InterpretedFunction.__call__ = _call
DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")
T, B, P, H = 3, 3, 5, 7
LAYER_P, LAYER_H = 10, 7
CLIPS = Limits(cell=0.3, projection=0.15)
# Sums of up to H or P products of numbers below 1, in another order than the reference's.
TOLERANCE = 5e-6
# What 8 and 11 bits of a number leave of values below 1 and of gradients of size 1, after some steps.
LOW_PRECISION = [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)]

# NumPy's, in the interpreter, of rows that hold no text.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")


class Problem:
    """Arguments of a scan, all of which require a gradient."""

    def __init__(
        self, length: int = T, batch: int = B, size: int = P, width: int = H, is_projected: bool = True, seed: int = 0
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def tensor(*shape: int) -> Tensor:
            numbers = torch.rand(2, *shape, generator=generator) * 2 - 1
            return (0.9 * numbers).to(DEVICE).requires_grad_()

        size = size if is_projected else width
        self.inputs, self.hidden, self.cell = tensor(length, batch, size), tensor(batch, size), tensor(batch, width)
        weights = tensor(4 * width, size), tensor(4 * width), tensor(4 * width, size)
        self.weights = Weights(*weights, tensor(size, width) if is_projected else None)
        flags = torch.rand(2, 2, length, batch, generator=generator).to(DEVICE) < 0.7
        self.flags = tuple(flags)

    def leaves(self) -> Tensors:
        """Arguments that are differentiated."""
        tensors = (self.inputs, self.hidden, self.cell, *self.weights)
        return tuple(tensor for tensor in tensors if tensor is not None)

    def run(self, scan: Any, flags: Tensors | None = None, limits: Limits = CLIPS) -> Tensors:
        is_word, keeps = (flag.to(torch.uint8) for flag in (self.flags if flags is None else flags))
        weights = [Weights(*parts) for parts in zip(*map(_directions, self.weights), strict=True)]
        return scan(self.inputs, is_word, keeps, self.hidden, self.cell, weights, limits)

    def to(self, dtype: torch.dtype) -> "Problem":
        other = Problem.__new__(Problem)
        other.flags = self.flags
        other.inputs, other.hidden, other.cell, *weights = (
            None if tensor is None else tensor.detach().to(dtype).requires_grad_()
            for tensor in (self.inputs, self.hidden, self.cell, *self.weights)
        )
        other.weights = Weights(*weights)
        return other


def _directions(weight: Tensor | None) -> Any:
    return (None, None) if weight is None else weight.unbind()


def plain_scan(
    inputs: Tensor,
    is_word: Tensor,
    keeps: Tensor,
    hidden: Tensor,
    cell: Tensor,
    weights: list[Weights],
    limits: Limits,
) -> Tensors:
    """The equations, as plainly as they can be written, under autograd."""
    cell = cell.to(inputs.dtype)
    all_outputs = []
    for direction, (w_x, b, w_h, w_p) in enumerate(weights):
        h, c, outputs = hidden[direction], cell[direction], []
        for x, word, keep in zip(inputs[direction], is_word[direction], keeps[direction], strict=True):
            h, c = h * keep.unsqueeze(-1), c * keep.unsqueeze(-1)
            i, f, g, o = (x @ w_x.T + b + h @ w_h.T).chunk(4, dim=-1)
            next_c = clip(f.sigmoid() * c + i.sigmoid() * g.tanh(), limits.cell)
            next_h = o.sigmoid() * next_c.tanh()
            if w_p is not None:
                next_h = clip(next_h @ w_p.T, limits.projection)
            h, c = (torch.where(word.bool().unsqueeze(-1), new, old) for new, old in ((next_h, h), (next_c, c)))
            outputs.append(h)
        all_outputs.append((torch.stack(outputs), h, c))
    return tuple(torch.stack(tensors) for tensors in zip(*all_outputs, strict=True))


def assert_close(actual: Tensors, expected: Tensors, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0, check_dtype=False)


def assert_scans_agree(problem: Problem, **options: Any) -> None:
    results = [
        with_gradients(problem.run(scan, **options), problem.leaves()) for scan in (triton_scan.scan_triton, plain_scan)
    ]
    assert_close(*results)


@pytest.mark.parametrize(
    ("fields", "text"),
    [(fields, TEXTS[number % len(TEXTS)]) for number, fields in enumerate(SHAPES.values(), 2)],
    ids=SHAPES.keys(),
)
def test_a_layer_is_the_reference(fields: dict[str, Any], text: tuple[str, str, bool]) -> None:
    lengths, side, has_resets = text
    layer = layer_of(torch.float32, **fields).to(DEVICE)
    mask = mask_of(LENGTHS[lengths], side).to(DEVICE)
    resets = tuple(torch.rand(2, *mask.shape, device=DEVICE) < 0.4) if has_resets else ()
    width, size = layer.forward_lstm.input_linear.out_features // 4, LAYER_P
    count = len(layer.lstms)
    shapes = (*mask.shape, count * size), (len(mask), count * size), (len(mask), count * width)
    arguments = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    results = []
    for path in ("reference", "triton", "packed"):
        with scan_path(path):
            outputs = run(layer, arguments, mask, *resets)
        results.append(with_gradients(outputs, (*arguments, *layer.parameters())))
    for result in results[1:]:
        assert_close(result, results[0], 2e-5)


def test_a_layer_asks_a_gpu_for_nothing_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(tensor: Tensor, *args: Any) -> None:
        raise AssertionError("a step of Python waited for the GPU")

    layer = layer_of(torch.float32).to(DEVICE)
    mask = mask_of(LENGTHS["padded"]).to(DEVICE)
    sizes = (2 * LAYER_P, 2 * LAYER_H)
    inputs = torch.randn(*mask.shape, 2 * LAYER_P, device=DEVICE)
    state = (torch.zeros(len(mask), size, device=DEVICE) for size in sizes)
    assert triton_scan.is_available(DEVICE, torch.float32)
    for name in ("item", "__bool__", "tolist", "all", "any"):
        monkeypatch.setattr(Tensor, name, wait)
    run(layer, (inputs, *state), mask)


@pytest.mark.parametrize(
    "sizes",
    [
        {"batch": 11, "size": 29, "width": 37, "length": 2},
        {"batch": 17, "size": 64, "width": 16, "length": 1},
        {"batch": 1, "size": 1, "width": 1},
        {"batch": 13, "width": 41, "length": 2, "is_projected": False},
    ],
    ids=["several programs", "one step, hidden wider than cell", "all of size one", "not projected"],
)
def test_sizes_of_every_kind_give_the_portable_scans_numbers(sizes: dict[str, Any]) -> None:
    problem = Problem(**sizes)
    assert_scans_agree(problem)
    with torch.no_grad():
        assert_close(problem.run(triton_scan.scan_triton), problem.run(plain_scan))


@pytest.mark.parametrize("number", [0, 1], ids=["words only", "no resets"])
def test_each_flag_acts_by_itself(number: int) -> None:
    problem = Problem()
    assert not problem.flags[number].all()
    flags = list(problem.flags)
    flags[number] = torch.ones_like(flags[number])
    assert_scans_agree(problem, flags=tuple(flags))


def test_both_clips_act_here() -> None:
    outputs, _, cell = Problem(length=5).run(triton_scan.scan_triton)
    for state, limit in ((outputs, CLIPS.projection), (cell, CLIPS.cell)):
        assert 0.1 < (state.abs() == limit).float().mean() < 0.9


@pytest.mark.parametrize(("dtype", "tolerance"), LOW_PRECISION, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("is_projected", [True, False])
def test_low_precision_is_near_the_same_numbers_in_full(
    dtype: torch.dtype, tolerance: float, is_projected: bool
) -> None:
    problem = Problem(width=19, is_projected=is_projected).to(dtype)
    full = problem.to(torch.float64)
    limits = Limits(cell=None, projection=None)  # where a clip begins is another place for other roundings
    actual = with_gradients(problem.run(triton_scan.scan_triton, limits=limits), problem.leaves())
    expected = with_gradients(full.run(plain_scan, limits=limits), full.leaves())
    dtypes = [dtype, dtype, torch.float32, *(leaf.dtype for leaf in problem.leaves())]  # the cell is float32
    assert [tensor.dtype for tensor in actual] == dtypes
    for one, other in zip(actual, expected, strict=True):
        assert_close((one,), (other,), tolerance * max(1.0, other.abs().max().item()))
    with torch.no_grad():
        assert_close(problem.run(triton_scan.scan_triton, limits=limits), expected[:3], tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_clips_act_in_low_precision(dtype: torch.dtype) -> None:
    problem = Problem(length=4).to(dtype)
    full = problem.to(torch.float64)
    assert_close(problem.run(triton_scan.scan_triton), full.run(plain_scan), 2e-2)


def test_under_autocast_a_layer_has_products_of_low_precision_and_results_of_full() -> None:
    layer = layer_of(torch.float32).to(DEVICE)
    mask = mask_of(LENGTHS["padded"]).to(DEVICE)
    shapes = (*mask.shape, 2 * LAYER_P), (len(mask), 2 * LAYER_P), (len(mask), 2 * LAYER_H)
    arguments = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    full = run(layer, arguments, mask)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        outputs = run(layer, arguments, mask)
    actual, expected = (with_gradients(found, (*arguments, *layer.parameters())) for found in (outputs, full))
    assert {tensor.dtype for tensor in actual} == {torch.float32}
    for one, other in zip(actual[:3], expected[:3], strict=True):
        assert_close((one,), (other,), 2e-2)
        assert not torch.equal(one, other)
    for one, other in zip(actual[3:], expected[3:], strict=True):
        assert (one - other).norm() < 0.1 * other.norm()


@pytest.mark.parametrize("rows", [1, 2 * B, 1024])
def test_blocks_without_gradients_are_the_whole(rows: int) -> None:
    problem = Problem(length=5)
    expected = problem.run(triton_scan.scan_triton)
    with torch.no_grad():
        actual = problem.run(partial(triton_scan.scan_triton, block_rows=rows))
    assert not any(tensor.requires_grad for tensor in actual)
    assert_close(actual, expected, 1e-6)


def test_a_state_goes_on_where_it_stopped() -> None:
    problem = Problem(length=3)
    whole = problem.run(triton_scan.scan_triton)
    inputs, flags, outputs = problem.inputs, problem.flags, []
    for part in (slice(0, 1), slice(1, 3)):
        problem.inputs = inputs[:, part]
        output, problem.hidden, problem.cell = problem.run(
            triton_scan.scan_triton, tuple(flag[:, part] for flag in flags)
        )
        outputs.append(output)
    assert_close((torch.cat(outputs, dim=1), problem.hidden, problem.cell), whole, 1e-6)


def test_not_a_number_stays_one_and_stays_in_its_text() -> None:
    problem = Problem()
    problem.inputs.data[0, 1, 2, 3] = torch.nan
    flags = (torch.ones(2, T, B, device=DEVICE),) * 2
    results = [problem.run(scan, flags)[0] for scan in (triton_scan.scan_triton, plain_scan)]
    torch.testing.assert_close(*results, atol=TOLERANCE, rtol=0, equal_nan=True)
    assert results[0][0, 1:, 2].isnan().all()
    assert results[0].isnan().sum() == (T - 1) * P


@pytest.mark.parametrize("excess", [0, 1e-3])
@pytest.mark.parametrize("clip", ["cell", "projection"])
def test_gradients_pass_a_clip_exactly_at_its_limit_and_not_beyond(clip: str, excess: float) -> None:
    """A cell that carries its state on: to the last bit i = 0 and f = o = 1, c_t = c_{t-1} and p_t = W_p tanh(c_t)."""
    problem = Problem(length=1, batch=1, size=1, width=1)
    bias = torch.tensor([-1000.0, 1000, 0, 1000], device=DEVICE).expand(2, 4)
    nothing, flags = torch.zeros(2, 4, 1, device=DEVICE), (torch.ones(2, 1, 1, device=DEVICE),) * 2
    problem.weights = Weights(nothing, bias, nothing, torch.ones(2, 1, 1, device=DEVICE))
    limit = 0.5
    problem.cell = torch.full((2, 1, 1), limit + excess, device=DEVICE, requires_grad=True)
    if clip == "projection":
        memory, _, _ = problem.run(triton_scan.scan_triton, flags, Limits(None, None))
        # The largest number is its own limit.
        limit = memory.max().item() - excess
    limits = Limits(**({"cell": None, "projection": None} | {clip: limit}))
    outputs, _, cell = problem.run(triton_scan.scan_triton, flags, limits)
    found = outputs if clip == "projection" else cell
    (gradient,) = torch.autograd.grad(found.sum(), problem.cell)
    assert (found == torch.tensor(limit, device=DEVICE)).all()
    assert ((gradient > 0) if excess == 0 else (gradient == 0)).all()


def test_tensors_in_any_order_of_memory_are_read_right() -> None:
    problem = Problem()
    expected = with_gradients(problem.run(triton_scan.scan_triton), problem.leaves())
    for name in ("inputs", "hidden", "cell"):
        scattered = getattr(problem, name).detach().transpose(0, -1).contiguous().transpose(0, -1)
        setattr(problem, name, scattered.requires_grad_())
    outputs = problem.run(triton_scan.scan_triton)
    assert_close(with_gradients(outputs, problem.leaves()), expected, 1e-6)
    broadcast = torch.autograd.grad(problem.run(triton_scan.scan_triton)[0].sum(), problem.leaves())
    assert_close(broadcast, torch.autograd.grad(problem.run(plain_scan)[0].sum(), problem.leaves()))


def test_a_frozen_layer_passes_gradients_on_to_its_inputs() -> None:
    problem = Problem()
    expected = torch.autograd.grad(problem.run(triton_scan.scan_triton)[0].square().sum(), problem.leaves()[:3])
    problem.weights = Weights(*(weight.detach() for weight in problem.weights))
    actual = torch.autograd.grad(problem.run(triton_scan.scan_triton)[0].square().sum(), problem.leaves()[:3])
    assert_close(actual, expected, 0)


def test_weights_learn_where_nothing_else_does() -> None:
    problem = Problem()
    expected = torch.autograd.grad(problem.run(triton_scan.scan_triton)[0].square().sum(), problem.weights)
    problem.inputs, problem.hidden, problem.cell = (leaf.detach() for leaf in problem.leaves()[:3])
    assert_close(
        torch.autograd.grad(problem.run(triton_scan.scan_triton)[0].square().sum(), problem.weights), expected, 0
    )


def test_a_gradient_taken_twice_is_the_same_and_a_second_derivative_is_refused() -> None:
    problem = Problem(length=2)
    loss = problem.run(triton_scan.scan_triton)[0].square().sum()
    first, second = (torch.autograd.grad(loss, problem.leaves(), retain_graph=True) for _ in range(2))
    assert_close(second, first, 0)
    (gradient,) = torch.autograd.grad(loss, problem.inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
        gradient.sum().backward()


def test_tanh_is_right_to_a_few_units_of_its_last_place() -> None:
    @triton.jit
    def tanh(inputs: tl.tensor, outputs: tl.tensor, BLOCK: tl.constexpr) -> None:
        place = tl.arange(0, BLOCK)
        tl.store(outputs + place, triton_kernels._tanh(tl.load(inputs + place)))

    sizes = torch.logspace(-30, 2, 4094, dtype=torch.float64).float()
    inputs = torch.cat([sizes, -sizes, torch.tensor([0.0, torch.inf, -torch.inf, 0.25])]).to(DEVICE)
    outputs = torch.empty_like(inputs)
    tanh[(1,)](inputs, outputs, BLOCK=8192)
    torch.testing.assert_close(outputs.double(), inputs.double().tanh(), atol=0, rtol=1e-6)


def test_layers_of_other_dtypes_take_the_portable_scan() -> None:
    layer = layer_of(torch.float64).to(DEVICE)
    assert not triton_scan.is_available(DEVICE, torch.float64)
    shapes = (2, 3, 2 * LAYER_P), (2, 2 * LAYER_P), (2, 2 * LAYER_H)
    arguments = tuple(torch.zeros(shape, dtype=torch.float64, device=DEVICE) for shape in shapes)
    outputs, _, _ = run(layer, arguments, torch.ones(2, 3, dtype=torch.bool, device=DEVICE))
    assert outputs.dtype == torch.float64
