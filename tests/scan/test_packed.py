"""The fast scans of a biLM layer against `LSTMP.forward`, the reference: values, states, every gradient.

`test_triton_scan.py` runs this file again where Triton's interpreter takes the place of a GPU.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scan_layers import (
    DEVICE,
    DTYPE,
    IS_TRITON,
    LENGTHS,
    PATHS,
    SHAPES,
    TEXTS,
    B,
    H,
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
from tiny_inputs import assert_outputs_close
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf.model.bilm import BiLMLayer
from elmo_hf.scan.kernels import using
from elmo_hf.scan.path import scan_path

# NumPy's, in Triton's interpreter, of rows that hold no text.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
of_each_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
DEFAULT = Path(PATHS["triton" if IS_TRITON else "small"].kernels, DTYPE, 2e-5 if IS_TRITON else 1e-12)
# Triton's interpreter is slow, so there each shape has one of the texts.
CASES = [
    pytest.param(SHAPES[name], text, id=f"{name}-{'-'.join(map(str, text))}")
    for number, name in enumerate(SHAPES, 2)
    for text in (TEXTS[number % len(TEXTS) :][:1] if IS_TRITON else TEXTS)
]


@of_each_path
@pytest.mark.parametrize(("fields", "text"), CASES)
def test_values_states_and_gradients_are_the_references(
    path: Path, fields: dict[str, Any], text: tuple[str, str, bool]
) -> None:
    assert_scan(path, fields, text)


@pytest.mark.parametrize(
    "options",
    [{"length": 1}, {"has_skip_connection": True}, {"fields": {"projection_size": 29, "cell_size": 71}}],
    ids=["one step", "skip connection", "several programs of a kernel"],
)
def test_other_layers_and_texts_are_the_references(options: dict[str, Any]) -> None:
    assert_scan(DEFAULT, **{"fields": {}, "text": TEXTS[2]} | options)


def test_clips_act_in_these_tests() -> None:
    outputs, _, cell = run(layer := layer_of(), arguments_of(layer), mask_of([T] * B))
    for tensor, limit in ((outputs, 0.3), (cell, 0.4)):
        is_clipped = tensor.abs() == torch.tensor(limit, dtype=DTYPE, device=DEVICE)
        assert 0.1 < is_clipped.double().mean() < 0.9


def test_a_skip_connection_adds_the_input() -> None:
    layer = layer_of(has_skip_connection=True)
    arguments = arguments_of(layer)
    skipping = run(layer, arguments, mask_of([T] * B))
    layer.has_skip_connection = False
    plain = run(layer, arguments, mask_of([T] * B))
    assert_outputs_close(skipping, (plain[0] + arguments[0], *plain[1:]), DEFAULT.tolerance)


def test_a_state_goes_on_where_it_stopped() -> None:
    layer = layer_of(bidirectional=False)
    inputs, *state = arguments_of(layer)
    whole, outputs = run(layer, (inputs, *state), mask_of([T] * B)), []
    for part in inputs.split([1, T - 1], dim=1):
        output, *state = run(layer, (part, *state), mask_of([T] * B)[:, : part.shape[1]])
        outputs.append(output)
    assert_outputs_close((torch.cat(outputs, dim=1), *state), whole, DEFAULT.tolerance)


def test_not_a_number_stays_one_and_stays_in_its_text() -> None:
    layer = layer_of()
    inputs, *state = arguments_of(layer)
    inputs.data[2, 1, 3] = torch.nan  # of the forward direction
    outputs, *_ = run(layer, (inputs, *state), mask_of([T] * B))
    assert outputs[2, 1:, :P].isnan().all()
    assert outputs.isnan().sum() == (T - 1) * P


def test_tensors_in_any_order_of_memory_are_read_right() -> None:
    layer, mask = layer_of(), mask_of(LENGTHS["padded"])
    arguments = arguments_of(layer)
    scattered = [each.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_() for each in arguments]
    expected, found = (with_gradients(run(layer, each, mask), each) for each in (arguments, scattered))
    assert_outputs_close(found, expected, DEFAULT.tolerance)


def test_what_needs_no_gradient_gets_none_and_weights_learn_alone() -> None:
    layer = layer_of()
    inputs, hidden, cell = (tensor.detach() for tensor in arguments_of(layer))
    outputs, _, _ = run(layer, (inputs, hidden, cell), mask_of(LENGTHS["padded"]))
    outputs.sum().backward()
    assert inputs.grad is hidden.grad is cell.grad is None
    assert all(parameter.grad.abs().sum() > 0 for parameter in layer.parameters())


def test_a_frozen_layer_passes_gradients_on_to_its_inputs() -> None:
    layer = layer_of()
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    expected = torch.autograd.grad(run(layer, arguments, mask)[0].square().sum(), arguments)
    layer.requires_grad_(False)
    assert_outputs_close(torch.autograd.grad(run(layer, arguments, mask)[0].square().sum(), arguments), expected, 0)


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_a_gradient_taken_twice_is_the_same_and_a_second_derivative_is_refused(fields: dict[str, Any]) -> None:
    layer = layer_of(**fields)
    arguments = arguments_of(layer, length=2)
    loss = run(layer, arguments, mask_of([2, 0, 2, 1], length=2))[0].square().sum()
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
    _, hidden, _ = arguments = [tensor.detach().zero_() for tensor in arguments_of(layer, length=1, batch=1)]
    cell = torch.full_like(hidden, 0.5).requires_grad_()
    for parameter, numbers in zip(layer.parameters(), 2 * [0, [-1000, 1000, 0, 1000], 0, 1], strict=True):
        parameter.data = torch.tensor(numbers).to(parameter).expand_as(parameter).clone()

    def outputs_and_cell() -> tuple[Tensor, Tensor]:
        with scan_path(path):
            outputs, _, last = run(layer, (*arguments[:2], cell), mask_of([1], length=1))
        return outputs, last

    is_cell = clip == "cell_clip"
    limit = outputs_and_cell()[is_cell].max().item() - excess  # without a clip: the largest number is its own limit
    for lstm in layer.lstms if clip else ():
        setattr(lstm, clip, limit)
    found = outputs_and_cell()[is_cell]
    (gradient,) = torch.autograd.grad(found.sum(), cell)
    passes = clip is None or excess == 0
    assert clip is None or (found == torch.full_like(found, limit)).all()
    assert ((gradient > 0) if passes else (gradient == 0)).all()


@of_each_path
def test_autocast_is_near_the_reference_in_single_precision(path: Path) -> None:
    layer = layer_of(torch.float32)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    resets, leaves = torch.rand(2, B, T, device=DEVICE) < 0.4, [*arguments, *layer.parameters()]
    with scan_path("reference"):
        expected = with_gradients(run(layer, arguments, mask, *resets), leaves)
    steps = count_reference_steps(layer)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16), using(path.kernels):
        actual = with_gradients(run(layer, arguments, mask, *resets), leaves)
    assert not steps
    for tensor, wanted in zip(actual, expected, strict=True):
        assert tensor.dtype == torch.float32
        # Three significant digits go into each product; a clip may or may not stop a gradient.
        assert 0 < (tensor - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("fields", [{}, {"cell_size": P}], ids=["projected", "not projected"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_nearer_to_single_precision_than_the_reference(
    dtype: torch.dtype, fields: dict[str, Any]
) -> None:
    layer = layer_of(dtype, **fields)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    found = with_gradients(run(layer, arguments, mask), [*arguments, *layer.parameters()])
    with scan_path("reference"):
        reference, arguments = (
            run(layer, arguments, mask),
            [each.detach().float().requires_grad_() for each in arguments],
        )
        exact = with_gradients(run(layer.float(), arguments, mask), [*arguments, *layer.parameters()])
    assert all(tensor.dtype == dtype for tensor in found)
    error = [sum((a - b).square().sum() for a, b in zip(each[:3], exact, strict=False)) for each in (found, reference)]
    assert 0 < error[0] < 0.9 * error[1]
    assert all((gradient - wanted).norm() < 0.05 * wanted.norm() for gradient, wanted in zip(found, exact, strict=True))


def reference_steps_of(layer: BiLMLayer) -> int:
    """How many steps of a run over full rows the reference computes: all of them or none."""
    steps = count_reference_steps(layer)
    sum(tensor.sum() for tensor in run(layer, arguments_of(layer), mask_of([T] * B))).backward()
    return len(steps)


def hook(name: str, register: str) -> Callable[[BiLMLayer, list[Any]], None]:
    return lambda layer, calls: getattr(layer.get_submodule(name), register)(lambda *_: calls.append(name)) and None


def forward_of_an_instance(layer: BiLMLayer, calls: list[Any]) -> None:
    linear = layer.forward_lstm.recurrent_linear
    original = linear.forward
    linear.forward = lambda inputs: calls.append(1) or original(inputs)


def weight_norm(layer: BiLMLayer, calls: list[Any]) -> None:
    parametrised = nn.utils.parametrizations.weight_norm(layer.backward_lstm.input_linear)
    parametrised.register_forward_hook(lambda *_: calls.append(1))


class Doubled(nn.Linear):
    """A linear of another class."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


@pytest.mark.parametrize(
    "change",
    [
        hook("forward_lstm", "register_forward_hook"),
        hook("backward_lstm.recurrent_linear", "register_forward_pre_hook"),
        hook("forward_lstm.projection", "register_full_backward_hook"),
        hook("forward_lstm", "register_full_backward_pre_hook"),
        forward_of_an_instance,
        weight_norm,
    ],
)
def test_a_layer_that_something_replaced_takes_the_reference_and_calls_it(
    change: Callable[[BiLMLayer, list[Any]], None],
) -> None:
    layer, calls = layer_of(), []
    assert reference_steps_of(layer) == 0
    change(layer, calls)
    assert reference_steps_of(layer) == 2 * T
    assert calls


def test_a_hook_that_is_taken_away_gives_the_fast_scan_back() -> None:
    layer = layer_of()
    layer.forward_lstm.register_forward_hook(lambda module, args, output: None).remove()
    assert layer.can_scan_fast()


def test_a_linear_of_another_class_is_called() -> None:
    layer, doubled = layer_of(), Doubled(P, 4 * H, bias=False).to(DEVICE, DTYPE)
    arguments, mask = arguments_of(layer), mask_of([T] * B)
    plain = layer.forward_lstm.recurrent_linear
    layer.forward_lstm.recurrent_linear, doubled.weight = doubled, plain.weight
    actual = run(layer, arguments, mask)
    layer.forward_lstm.recurrent_linear, plain.weight = plain, nn.Parameter(2 * plain.weight)
    assert_outputs_close(actual, run(layer, arguments, mask), DEFAULT.tolerance)


def test_a_path_is_taken_only_if_no_other_is_requested() -> None:
    layer = layer_of()
    with scan_path("packed"):
        assert layer.can_scan_fast()
        with scan_path("reference"):
            assert not layer.can_scan_fast()
        assert layer.can_scan_fast()
    with pytest.raises(ValueError, match="reference, packed, triton"), scan_path("fast"):
        pass


def test_lora_adapters_take_the_reference_in_the_layers_that_have_them(tiny_model: ElmoModel) -> None:
    peft = pytest.importorskip("peft")
    first, second = tiny_model.bilm.layers
    targets = r".*layers\.1\..*recurrent_linear"
    peft.get_peft_model(tiny_model, peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False))
    assert first.can_scan_fast()
    assert not second.can_scan_fast()
