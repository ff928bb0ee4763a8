"""The fast scans of a biLM layer against `LSTMP.forward`, the reference: values, states, every gradient.

`test_triton_scan.py` runs this file again where Triton's interpreter takes the place of a GPU.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elmo_hf.kernels.path import scan_path
from elmo_hf.kernels.triton_kernels import IS_INTERPRETED
from elmo_hf.model.scan_elmo import BatchLayout, using
from tests.helpers.scan_layers import (
    DEVICE,
    FULL,
    IS_TRITON,
    PADDED,
    PATHS,
    SHAPES,
    B,
    P,
    Path,
    T,
    arguments_of,
    assert_scan,
    count_reference_steps,
    layer_of,
    mask_of,
    run,
    with_gradients,
)
from tests.helpers.tiny_inputs import assert_outputs_close

# NumPy's, in Triton's interpreter, of rows that hold no text.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
of_each_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
# Masks, and whether states are reset on the way. In the last one words stand anywhere, and none in a text.
TEXTS = [
    (FULL, False),
    (FULL, True),
    (PADDED, True),
    (mask_of(3, 0, 6, 1, side="left"), False),
    (mask_of(0, 0, 0, 0), False),
    (torch.tensor([[1, 0, 0, 1, 0, 0], [0] * 6, [0, 1, 1, 0, 1, 0], [0, 0, 1, 1, 1, 1]]).bool().to(DEVICE), True),
]
# Triton's interpreter is slow, so there each shape has one of the texts.
CASES = [
    pytest.param(SHAPES[name], *TEXTS[index], id=f"{name}, text {index}")
    for number, name in enumerate(SHAPES, 2)
    for index in ([number % len(TEXTS)] if IS_TRITON else range(len(TEXTS)))
]
CASES += [
    pytest.param({}, FULL[:, :1], True, id="one step"),
    pytest.param({"has_skip_connection": True}, PADDED, False, id="skip connection"),
    # These sizes are several tiles of Triton's kernels.
    pytest.param({"projection_size": 18, "cell_size": 21}, PADDED, False, id="large"),
]


@of_each_path
@pytest.mark.parametrize(("fields", "mask", "has_resets"), CASES)
def test_values_states_and_gradients_are_the_references(
    path: Path, fields: dict[str, Any], mask: Tensor, has_resets: bool
) -> None:
    assert_scan(path, fields, mask, has_resets)


def test_not_a_number_stays_one_and_stays_in_its_text() -> None:
    layer = layer_of()
    inputs, *state = arguments_of(layer)
    inputs.data[2, 1, 3] = torch.nan  # of the forward direction
    outputs, *_ = run(layer, (inputs, *state), FULL)
    assert outputs[2, 1:, :P].isnan().all()
    assert outputs.isnan().sum() == (T - 1) * P


def test_what_needs_no_gradient_gets_none_and_all_else_does() -> None:
    layer = layer_of()
    arguments = arguments_of(layer)
    outputs, *_ = run(layer, [tensor.detach() for tensor in arguments], PADDED)
    outputs.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())
    expected = torch.autograd.grad(run(layer, arguments, PADDED)[0].square().sum(), arguments)
    layer.requires_grad_(False)
    assert_outputs_close(torch.autograd.grad(run(layer, arguments, PADDED)[0].square().sum(), arguments), expected, 0)


@pytest.mark.parametrize("fields", [{}, {"cell_size": P}], ids=["projected", "not projected"])
def test_a_gradient_taken_twice_is_the_same_and_a_second_derivative_is_refused(fields: dict[str, Any]) -> None:
    layer = layer_of(**fields)
    arguments = arguments_of(layer, (B, 2))
    loss = run(layer, arguments, mask_of(2, 0, 2, 1, most=2))[0].square().sum()
    first, second = (torch.autograd.grad(loss, arguments, retain_graph=True) for _ in range(2))
    assert_outputs_close(second, first, 0)
    (gradient,) = torch.autograd.grad(loss, arguments[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("path", ["triton", "reference"])
@pytest.mark.parametrize("clip", ["cell_clip", "projection_clip", None])
@pytest.mark.parametrize("excess", [0, 1e-3])
def test_gradients_pass_a_clip_exactly_at_its_limit_and_not_beyond(path: str, clip: str | None, excess: float) -> None:
    """A cell that carries its state on: i = 0 and f = o = 1 to the last bit, so c_t = c_{t-1} and p_t = tanh(c_t)."""
    fields = {"projection_size": 1, "cell_size": 1, "cell_projection": True, "forget_bias": 0.0}
    layer = layer_of(**fields, cell_clip=None, projection_clip=None)
    _, hidden, _ = arguments = [tensor.detach().zero_() for tensor in arguments_of(layer, (1, 1))]
    cell = torch.full_like(hidden, 0.5).requires_grad_()
    for parameter, numbers in zip(layer.parameters(), 2 * [0, [-1000, 1000, 0, 1000], 0, 1], strict=True):
        parameter.data = torch.tensor(numbers).to(parameter).expand_as(parameter).clone()

    def clipped() -> Tensor:
        with scan_path(path):
            outputs, _, last = run(layer, (*arguments[:2], cell), mask_of(1, most=1))
        return last if clip == "cell_clip" else outputs

    limit = clipped().max().item() - excess  # without a clip: the largest number is its own limit
    for lstm in layer.lstms if clip else ():
        setattr(lstm, clip, limit)
    (gradient,) = torch.autograd.grad(clipped().sum(), cell)
    assert clip is None or (clipped() == torch.full_like(cell, limit)).all()
    assert ((gradient > 0) if clip is None or excess == 0 else (gradient == 0)).all()


@of_each_path
def test_autocast_is_near_the_reference_in_single_precision(path: Path) -> None:
    layer = layer_of(torch.float32)
    arguments, resets = arguments_of(layer), torch.rand(2, B, T, device=DEVICE) < 0.4
    leaves, steps = [*arguments, *layer.parameters()], count_reference_steps(layer)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16), using(path.kernels):
        found = with_gradients(run(layer, arguments, PADDED, *resets), leaves)
    assert not steps
    with scan_path("reference"):
        expected = with_gradients(run(layer, arguments, PADDED, *resets), leaves)
    for tensor, wanted in zip(found, expected, strict=True):
        assert tensor.dtype == torch.float32
        # Three significant digits go into each product; a clip may or may not stop a gradient.
        assert 2e-4 * wanted.norm() < (tensor - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("fields", [{}, {"cell_size": P}], ids=["projected", "not projected"])
# Triton's interpreter truncates to bfloat16, where a GPU rounds.
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16][: 2 - IS_INTERPRETED], ids=str)
def test_half_precision_is_nearer_to_single_precision_than_the_reference(
    dtype: torch.dtype, fields: dict[str, Any]
) -> None:
    squares = []  # of the errors of the fast scan and of the reference, and of the exact numbers, for each tensor
    for _ in range(2 if IS_INTERPRETED else 6):  # one layer may have small errors by chance
        layer = layer_of(dtype, cell_clip=None, projection_clip=None, **fields)  # a clip may stop one gradient only
        arguments = arguments_of(layer)
        found = with_gradients(run(layer, arguments, PADDED), [*arguments, *layer.parameters()])
        assert all(tensor.dtype == dtype for tensor in found)
        with scan_path("reference"):
            reference = with_gradients(run(layer, arguments, PADDED), [*arguments, *layer.parameters()])
            arguments = [each.detach().float().requires_grad_() for each in arguments]
            exact = with_gradients(run(layer.float(), arguments, PADDED), [*arguments, *layer.parameters()])
        each_squares = [
            torch.stack([(a - c).square().sum(), (b - c).square().sum(), c.square().sum()])
            for a, b, c in zip(found, reference, exact, strict=True)
        ]
        squares.append(torch.stack(each_squares))
    errors, of_reference, norms = torch.stack(squares).sum(dim=0).t()
    assert 0 < errors[:3].sum() < 0.6 * of_reference[:3].sum()
    assert (errors < 0.05**2 * norms).all()


def test_a_layout_on_another_device_is_the_same() -> None:
    copy = BatchLayout(PADDED, (FULL,), 1).on(torch.device("meta"))
    assert {tensor.device.type for tensor in (copy.mask, *copy.resets)} == {"meta"}
    assert (copy.mask.shape, len(copy.resets), copy.num_directions) == (PADDED.shape, 1, 1)


class OtherLinear(nn.Linear):
    """One that was put in the place of a layer's own."""


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("forward_lstm", lambda part: part.register_forward_hook(lambda *_: None)),
        ("backward_lstm.recurrent_linear", lambda part: part.register_forward_pre_hook(lambda *_: None)),
        ("forward_lstm.projection", lambda part: part.register_full_backward_hook(lambda *_: None)),
        ("forward_lstm", lambda part: part.register_full_backward_pre_hook(lambda *_: None)),
        ("forward_lstm.recurrent_linear", lambda part: setattr(part, "forward", partial(nn.Linear.forward, part))),
        ("forward_lstm.recurrent_linear", lambda part: setattr(part, "__class__", OtherLinear)),
    ],
)
def test_a_layer_of_which_a_part_was_replaced_takes_the_reference(name: str, change: Callable[[Any], object]) -> None:
    layer = layer_of()
    layer.forward_lstm.register_forward_hook(lambda module, args, output: None).remove()
    steps = count_reference_steps(layer)
    run(layer, arguments_of(layer), FULL)
    assert not steps
    with scan_path("reference"):
        assert not layer.can_scan_fast()
    assert layer.can_scan_fast()
    change(layer.get_submodule(name))
    run(layer, arguments_of(layer), FULL)
    assert len(steps) == 2 * T
