"""The packed scan of a biLM layer against `LSTMP.forward`, the reference: values, states, every gradient."""

from typing import Any

import pytest
import torch
from scan_layers import (
    LENGTHS,
    SHAPES,
    TEXTS,
    B,
    H,
    P,
    T,
    Tensors,
    arguments_of,
    layer_of,
    mask_of,
    run,
    with_gradients,
)
from tiny_inputs import assert_outputs_close
from torch import Tensor, nn

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.model.bilm import BiLMLayer
from elmo_hf.model.lstmp import LSTMP
from elmo_hf.scan.kernels import Kernels, using
from elmo_hf.scan.path import scan_path
from elmo_hf.scan.processor_kernels import ProcessorKernels

# Large weights are multiplied in blocks, few columns as rows, and large directions one after the other.
ALONE: dict[str, Any] = {"joint_bytes": 0}
WAYS = {
    "without the package": Kernels(),
    "small": ProcessorKernels(),
    "one direction at a time": ProcessorKernels(**ALONE, block_words=5),
    "blocks of columns": Kernels(**ALONE, block_bytes=16, few_columns=2),
    "blocks of rows": Kernels(**ALONE, block_bytes=16, few_columns=B + 1),
    "blocks of both": Kernels(**ALONE, block_bytes=16, few_columns=3, block_words=5),
    "weight first": ProcessorKernels("amd", **ALONE, block_bytes=16, few_columns=B + 1),
    "plain products": ProcessorKernels("plain", **ALONE),
    "plain products of rows": ProcessorKernels("plain", **ALONE, few_columns=B + 1),
}


def run_with_gradients(layer: BiLMLayer, arguments: Tensors, mask: Tensor, *resets: Tensor) -> Tensors:
    """Outputs, last state, and the gradients of a projection of them."""
    return with_gradients(run(layer, arguments, mask, *resets), [*arguments, *layer.parameters()])


def assert_fast_is_reference(
    layer: BiLMLayer, mask: Tensor, *resets: Tensor, tolerance: float = 1e-12, length: int = T
) -> None:
    arguments = arguments_of(layer, length)
    assert layer.can_scan_fast()
    fast = run_with_gradients(layer, arguments, mask, *resets)
    reference_steps = count_reference_steps(layer)
    layer.can_scan_fast = lambda: False
    reference = run_with_gradients(layer, arguments, mask, *resets)
    assert len(reference_steps) == len(layer.lstms) * length
    names = ["outputs", "hidden", "cell", "d inputs", "d hidden", "d cell"]
    names += [f"d {name}" for name, _ in layer.named_parameters()]
    for name, actual, expected in zip(names, fast, reference, strict=True):
        torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0, msg=name)


def count_reference_steps(layer: BiLMLayer) -> list[LSTMP]:
    """Grows by one for each position and direction that the reference computes."""
    steps: list[LSTMP] = []
    for lstm in layer.lstms:

        def masked_step(*args: Tensor, lstm: LSTMP = lstm) -> tuple[Tensor, Tensor]:
            steps.append(lstm)
            return LSTMP.masked_step(lstm, *args)

        lstm.masked_step = masked_step
    return steps


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(("lengths", "side", "has_resets"), TEXTS)
@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_values_states_and_gradients_are_the_references(
    fields: dict[str, Any],
    lengths: str,
    side: str,
    has_resets: bool,
    way: Kernels,
) -> None:
    resets = (torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4) if has_resets else ()
    with using(way):
        assert_fast_is_reference(layer_of(**fields), mask_of(LENGTHS[lengths], side), *resets)


def test_clips_act_in_these_tests() -> None:
    outputs, _, cell = run(layer := layer_of(), arguments_of(layer), mask_of([T] * B))
    for tensor, limit in ((outputs, 0.3), (cell, 0.4)):
        is_clipped = tensor.abs() == limit
        assert 0.2 < is_clipped.double().mean() < 0.9


def test_single_precision_is_the_references_too() -> None:
    resets = (torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)
    assert_fast_is_reference(layer_of(torch.float32), mask_of(LENGTHS["padded"]), *resets, tolerance=2e-5)


def test_one_step_is_the_references() -> None:
    assert_fast_is_reference(layer_of(), torch.ones(B, 1, dtype=torch.bool), length=1)


def test_a_skip_connection_adds_the_input() -> None:
    assert_fast_is_reference(layer_of(has_skip_connection=True), mask_of(LENGTHS["padded"]))
    layer = layer_of(has_skip_connection=True)
    arguments = arguments_of(layer)
    skipping = run(layer, arguments, mask_of([T] * B))
    layer.has_skip_connection = False
    plain = run(layer, arguments, mask_of([T] * B))
    assert_outputs_close(skipping, (plain[0] + arguments[0], *plain[1:]), 1e-12)


@pytest.mark.parametrize("words", [1, B, 2 * B, 5 * B, 1000])
def test_blocks_of_a_text_are_the_whole(words: int) -> None:
    layer = layer_of()
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    resets = (torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)
    expected = run(layer, arguments, mask, *resets)
    with torch.no_grad(), using(Kernels(block_words=words)):
        actual = run(layer, arguments, mask, *resets)
    assert not any(tensor.requires_grad for tensor in actual)
    assert_outputs_close(actual, expected, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_values_with_and_without_gradients_are_bit_equal(way: Kernels, dtype: torch.dtype) -> None:
    layer = layer_of(dtype)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    with using(way):
        with torch.no_grad():
            without = run(layer, arguments, mask)
        for tensor, expected in zip(run(layer, arguments, mask), without, strict=True):
            assert torch.equal(tensor, expected)


def test_what_needs_no_gradient_gets_none() -> None:
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
def test_a_gradient_taken_twice_is_the_same(fields: dict[str, Any]) -> None:
    layer = layer_of(**fields)
    arguments = arguments_of(layer)
    loss = run(layer, arguments, mask_of(LENGTHS["padded"]))[0].square().sum()
    first, second = (torch.autograd.grad(loss, arguments, retain_graph=True) for _ in range(2))
    assert_outputs_close(second, first, 0)


def test_a_second_derivative_is_refused() -> None:
    layer = layer_of()
    arguments = arguments_of(layer)
    outputs, _, _ = run(layer, arguments, mask_of(LENGTHS["full"]))
    (gradient,) = torch.autograd.grad(outputs.square().sum(), arguments[0], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "reference"])
@pytest.mark.parametrize(("clip", "expected"), [("cell_clip", 1), ("projection_clip", 1), (None, 1)])
@pytest.mark.parametrize("excess", [0, 1e-3])
def test_gradients_pass_a_clip_exactly_at_its_limit_and_not_beyond(
    is_fast: bool, clip: str | None, expected: int, excess: float
) -> None:
    """A cell that carries its state on unchanged, so that what is clipped can be any number."""
    limit = 0.5
    fields = {"projection_size": 1, "cell_size": 1, "cell_projection": True, "forget_bias": 0.0}
    fields |= {"cell_clip": None, "projection_clip": None} | ({clip: limit} if clip else {})
    layer = BiLMLayer(ElmoConfig(**fields), False).double()
    for lstm in (layer.forward_lstm, layer.backward_lstm):
        lstm.input_linear.weight.data.zero_()
        lstm.recurrent_linear.weight.data.zero_()
        # i = 0 and f = o = 1 to the last bit, so c_t = c_{t-1} and p_t = W_p tanh(c_t).
        lstm.input_linear.bias.data = torch.tensor([-1000.0, 1000, 0, 1000], dtype=torch.float64)
        lstm.projection.weight.data.fill_(1.0)
    if not is_fast:
        layer.can_scan_fast = lambda: False
    inputs, hidden = torch.zeros(1, 1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    # Before the clip the cell is its state, the projection its hyperbolic tangent.
    start = torch.full((1, 2), limit + excess, dtype=torch.float64)
    if clip == "projection_clip":
        start = start.atanh()
        for lstm in (layer.forward_lstm, layer.backward_lstm):
            lstm.projection.weight.data.fill_((limit + excess) / start[0, 0].tanh().item())
    cell = start.clone().requires_grad_()
    outputs, _, last_cell = run(layer, (inputs, hidden, cell), torch.ones(1, 1, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(outputs.sum() if clip == "projection_clip" else last_cell.sum(), cell)
    passes = clip is None or excess == 0
    if clip == "cell_clip":
        assert last_cell[0, 0].item() == limit
    if clip == "projection_clip":
        assert outputs[0, 0, 0].item() == limit
    assert (gradient > 0).all().item() == passes
    assert (gradient == 0).all().item() == (not passes)


def reference_steps_of(layer: BiLMLayer) -> int:
    """How many steps of a run over full rows the reference computes: all of them or none."""
    steps = count_reference_steps(layer)
    run(layer, arguments_of(layer), mask_of([T] * B))
    return len(steps)


def test_a_plain_layer_takes_the_fast_scan() -> None:
    assert reference_steps_of(layer_of()) == 0


@pytest.mark.parametrize("name", ["forward_lstm", "backward_lstm.recurrent_linear", "forward_lstm.projection"])
@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_a_hooked_layer_takes_the_reference_and_the_hook_is_called(name: str, register: str) -> None:
    layer, calls = layer_of(), []
    getattr(layer.get_submodule(name), register)(lambda module, *args: calls.append(module))
    steps = count_reference_steps(layer)
    sum(tensor.sum() for tensor in run(layer, arguments_of(layer), mask_of([T] * B))).backward()
    assert len(steps) == 2 * T
    assert calls


def test_a_hook_that_is_taken_away_gives_the_fast_scan_back() -> None:
    layer = layer_of()
    hook = layer.forward_lstm.register_forward_hook(lambda module, args, output: None)
    assert not layer.can_scan_fast()
    hook.remove()
    assert layer.can_scan_fast()


def test_a_forward_of_an_instance_is_called() -> None:
    layer, calls = layer_of(), []
    linear = layer.forward_lstm.recurrent_linear
    original = linear.forward
    linear.forward = lambda inputs: calls.append(1) or original(inputs)
    assert reference_steps_of(layer) == 2 * T
    assert len(calls) == T


def test_a_linear_of_another_class_is_called() -> None:
    class Doubled(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return 2 * super().forward(inputs)

    layer = layer_of()
    doubled = Doubled(P, 4 * H, bias=False).double()
    doubled.load_state_dict(layer.forward_lstm.recurrent_linear.state_dict())
    arguments, mask = arguments_of(layer), mask_of([T] * B)
    layer.forward_lstm.recurrent_linear = doubled
    actual = run(layer, arguments, mask)
    layer.forward_lstm.recurrent_linear = nn.Linear(P, 4 * H, bias=False).double()
    layer.forward_lstm.recurrent_linear.weight.data = 2 * doubled.weight.data
    assert layer.can_scan_fast()
    assert_outputs_close(actual, run(layer, arguments, mask), 1e-12)


def test_parametrised_weights_take_the_reference() -> None:
    layer = layer_of()
    nn.utils.parametrizations.weight_norm(layer.backward_lstm.input_linear)
    assert reference_steps_of(layer) == 2 * T


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_autocast_is_near_the_reference_in_single_precision(way: Kernels) -> None:
    layer = layer_of(torch.float32)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    resets = (torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)
    with scan_path("reference"):
        expected = run_with_gradients(layer, arguments, mask, *resets)
    steps = count_reference_steps(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16), using(way):
        actual = run_with_gradients(layer, arguments, mask, *resets)
    assert not steps
    for tensor, wanted in zip(actual, expected, strict=True):
        assert tensor.dtype == torch.float32
        # Three significant digits go into each product; a clip may or may not stop a gradient.
        assert (tensor - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_nearer_to_single_precision_than_the_reference(dtype: torch.dtype) -> None:
    layer = layer_of(torch.float32).to(dtype)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    with torch.no_grad():
        packed = run(layer, arguments, mask)
        with scan_path("reference"):
            reference = run(layer, arguments, mask)
            exact = run(layer.float(), tuple(argument.float() for argument in arguments), mask)
    error = [sum((a - b).square().sum() for a, b in zip(found, exact, strict=True)) for found in (packed, reference)]
    assert all(tensor.dtype == dtype for tensor in packed)
    assert 0 < error[0] < 0.9 * error[1]


def test_a_path_is_taken_only_if_no_other_is_requested() -> None:
    layer = layer_of()
    with scan_path("packed"):
        assert layer.can_scan_fast()
        with scan_path("reference"):
            assert not layer.can_scan_fast()
        assert layer.can_scan_fast()
    with (
        pytest.raises(ValueError, match="`path` must be one of reference, packed, triton, found 'fast'"),
        scan_path("fast"),
    ):
        pass


def test_lora_adapters_take_the_reference_in_the_layers_that_have_them(tiny_model: ElmoModel) -> None:
    peft = pytest.importorskip("peft")
    first, second = tiny_model.bilm.layers
    targets = r".*layers\.1\..*recurrent_linear"
    peft.get_peft_model(tiny_model, peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False))
    assert first.can_scan_fast()
    assert not second.can_scan_fast()


def test_each_direction_of_a_full_text_is_a_reference_scan_of_its_own() -> None:
    layer = layer_of()
    inputs, hidden, cell = arguments_of(layer)
    mask = mask_of(LENGTHS["padded"], "left")
    outputs, last_hidden, last_cell = run(layer, (inputs, hidden, cell), mask)
    for number, (lstm, reverse) in enumerate(((layer.forward_lstm, False), (layer.backward_lstm, True))):
        halves = (tensor.chunk(2, dim=-1)[number] for tensor in (inputs, hidden, cell))
        one_inputs, one_hidden, one_cell = halves
        expected = lstm(one_inputs, mask, one_hidden, one_cell, reverse)
        actual = (tensor.chunk(2, dim=-1)[number] for tensor in (outputs, last_hidden, last_cell))
        assert_outputs_close(tuple(actual), expected, 1e-12)
