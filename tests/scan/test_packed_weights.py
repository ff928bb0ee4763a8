"""Packed weights: the reference's numbers, for one scan, or while the weights are what they were when packed."""

import copy
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from scan_layers import LENGTHS, SHAPES, B, H, P, T, arguments_of, layer_of, mask_of, run, with_gradients
from tiny_inputs import assert_outputs_close
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.model.bilm import BiLMLayer
from elmo_hf.model.packing import pack
from elmo_hf.scan.kernels import using
from elmo_hf.scan.packed_weights import COUNTS, PackedProducts, measured
from elmo_hf.scan.path import scan_path
from elmo_hf.scan.processor_kernels import ProcessorKernels
from elmo_hf.scan.processor_products import onednn_has_bfloat16
from elmo_hf.scan.products import BlockProducts
from elmo_hf.scan.reading_order import BatchLayout

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(not onednn_has_bfloat16(), reason="oneDNN has no bfloat16 on this processor")
pytestmark = needs_onednn
EACH_COUNT = tuple(range(1, B + 1))


def kernels_of(is_amd: bool = False, way: str | None = None, **sizes: Any) -> ProcessorKernels:
    """With bfloat16; each direction by itself; packed products are the faster ones for an even count of columns."""

    def measure(products: BlockProducts, counts: tuple[int, ...]) -> list[bool]:
        return [count % 2 == 0 for count in counts]

    options = {"joint_bytes": 0, "counts": EACH_COUNT, "measure": measure, "multiplies": True} | sizes
    return ProcessorKernels(way, is_amd, **options)


def rule_of(is_amd: bool = True, **sizes: Any) -> ProcessorKernels:
    """On AMD's processors scans with at least three steps of two texts pack W_h, which is large, and not W_p."""
    rule = {torch.float32: (2, 3), torch.bfloat16: (2, 3)}
    return kernels_of(is_amd, rule=rule, large_bytes=4 * H * P * 2, **sizes)


class Counts(TorchDispatchMode, list):
    """The count of columns of each packed product while it is active."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs each operator."""
        if function is torch.ops.mkldnn._linear_pointwise.default and args[1].is_mkldnn:
            self.append(len(args[0]))
        return function(*args, **(kwargs or {}))


@pytest.fixture
def counts() -> Iterator[Counts]:
    with Counts() as found:
        yield found


def packed_layer(**fields: Any) -> BiLMLayer:
    layer = layer_of(torch.float32, **fields)
    pack(layer)
    return layer


def assert_reference(layer: BiLMLayer, *resets: Tensor) -> None:
    """Values and states without gradient, and with it, where gradients are compared too."""
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    leaves = [*arguments, *layer.parameters()]
    with torch.no_grad():
        alone = run(layer, arguments, mask, *resets)
    fast = with_gradients(run(layer, arguments, mask, *resets), leaves)
    with scan_path("reference"):
        expected = with_gradients(run(layer, arguments, mask, *resets), leaves)
    assert_outputs_close(alone, expected[:3], 2e-6)
    assert_outputs_close(fast, expected, 2e-5)


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_a_packed_layer_computes_the_same(fields: dict[str, Any], counts: Counts) -> None:
    with using(kernels_of()):
        layer = packed_layer(**fields)
        assert_reference(layer)
        assert counts
        assert all(count % 2 == 0 for count in counts)
        assert_reference(layer, torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)


@needs_bfloat16
@torch.no_grad()
def test_a_packed_layer_in_bfloat16_computes_the_same_up_to_rounding(counts: Counts) -> None:
    layer = layer_of(torch.bfloat16)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    with using(kernels_of(large_bytes=1 << 30)):
        expected = run(layer, arguments, mask)
        assert not counts
        pack(layer)
        assert_outputs_close(run(layer, arguments, mask), expected, 0.02)
    assert counts


def test_bfloat16_is_packed_only_where_the_processor_knows_it() -> None:
    kernels = kernels_of(multiplies=False)
    with using(kernels):
        pack(layer_of(torch.bfloat16))
    assert len(kernels.kept) == 0


def step_of_a_fused_optimiser(weight: nn.Parameter) -> None:
    weight.grad = torch.randn_like(weight)
    torch.optim.AdamW([weight], lr=0.1, fused=True).step()


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda weight: weight.mul_(2),
    "another tensor": lambda weight: setattr(weight, "data", 2 * weight.data),
    "in place, not counted": lambda weight: weight.data.mul_(2),
    "one row": lambda weight: weight.data[weight.shape[1]].add_(1),
    "all columns but one": lambda weight: weight.data[:, 1:].add_(1),
    "one number, counted": lambda weight: weight[0, 1].add_(1),
    "fused optimiser": step_of_a_fused_optimiser,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_changed_weights_are_used_as_they_are_and_can_be_packed_again(
    change: Callable[[Tensor], object], counts: Counts
) -> None:
    with using(kernels_of()):
        layer = packed_layer()
        with torch.no_grad():
            for lstm in layer.lstms:
                change(lstm.recurrent_linear.weight)
                change(lstm.projection.weight)
        assert_reference(layer)
        assert not counts
        pack(layer)
        assert_reference(layer)
        assert counts


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_a_scan_packs_on_request(fields: dict[str, Any], counts: Counts) -> None:
    layer, double = layer_of(torch.float32, **fields), layer_of(torch.float64, **fields)
    with using(kernels_of(way="packed")):
        assert_reference(layer)
        has_projection = layer.forward_lstm.projection is not None
        # Twice forward and once backward, W_h and W_p of each direction, at each step of three, two and one texts.
        steps = 3 * (1 + has_projection) * len(layer.lstms)
        assert [counts.count(count) for count in (3, 2, 1, 4)] == [steps, 2 * steps, 3 * steps, 0]
        assert_reference(layer, torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)
        counts.clear()
        run(double, arguments_of(double), mask_of([T] * B))
    assert not counts


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_scan_packs_large_weights_if_it_has_enough_steps(has_gradient: bool, counts: Counts) -> None:
    layer, kernels = layer_of(torch.float32), rule_of()

    def packed_products(kernels: ProcessorKernels, lengths: list[int]) -> list[int]:
        counts.clear()
        with torch.set_grad_enabled(has_gradient), using(kernels):
            outputs, *_ = run(layer, arguments_of(layer), mask_of(lengths))
            if has_gradient:
                outputs.sum().backward()
        return list(counts)

    # Forward, and backward in reverse, for each direction.
    once = [3, 2, 2] * 2 + [2, 2, 3] * 2 * has_gradient
    assert packed_products(kernels, [6, 3, 1, 0]) == once
    assert packed_products(kernels, [6, 2, 1, 0]) == []
    assert packed_products(kernels, [1, 1, 1, 1]) == []
    assert packed_products(kernels_of(way="plain"), [6, 6, 6, 6]) == []
    assert packed_products(rule_of(is_amd=False), [6, 6, 6, 6]) == []
    assert len(kernels.kept) == 0


@needs_bfloat16
@pytest.mark.parametrize("is_amd", [False, True])
def test_in_bfloat16_the_first_scan_without_gradient_keeps_what_it_packs(is_amd: bool, counts: Counts) -> None:
    layer, kernels = layer_of(torch.bfloat16), rule_of(is_amd)
    arguments, mask = arguments_of(layer), mask_of([1, 1, 1, 1])
    large = [lstm.recurrent_linear.weight for lstm in layer.lstms]
    with using(kernels):
        run(layer, arguments, mask)
        assert not counts
        with torch.no_grad():
            first, again = run(layer, arguments, mask), run(layer, arguments, mask)
            assert counts == [4] * 4
            kept = [weight for weight in layer.parameters() if kernels.kept.find(weight)]
            assert list(map(id, kept)) == list(map(id, large))
            assert_outputs_close(first, again, 0)
            large[0].mul_(2)
            run(layer, arguments, mask)
    assert all(kernels.kept.find(weight) for weight in large)


@needs_bfloat16
@torch.no_grad()
def test_what_autocast_makes_is_packed_for_one_scan_of_enough_steps(counts: Counts) -> None:
    layer, kernels = layer_of(torch.float32), rule_of()
    for lengths, expected in (([1, 1, 1, 1], []), ([3, 3, 2, 0], [3, 3, 2] * 2)):
        with torch.autocast("cpu", torch.bfloat16), using(kernels):
            run(layer, arguments_of(layer), mask_of(lengths))
        assert sorted(counts) == sorted(expected)
        assert len(kernels.kept) == 0


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)], ids=str)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@torch.no_grad()
def test_a_traced_layer_is_not_packed(dtype: torch.dtype) -> None:
    layer = layer_of(dtype).requires_grad_(False)
    arguments, layout = arguments_of(layer), BatchLayout(mask_of([T] * B), None, 2)
    with using(rule_of()):
        pack(layer)
        traced = torch.jit.trace(lambda *tensors: layer(tensors[0], layout, *tensors[1:]), arguments, check_trace=False)
    assert "mkldnn" not in str(traced.graph)
    assert_outputs_close(traced(*arguments), layer(arguments[0], layout, *arguments[1:]), 0.02)


def test_doubles_copies_and_small_layers_have_no_packed_weights(counts: Counts) -> None:
    kernels = kernels_of()
    with using(kernels):
        layer = packed_layer()
        assert_reference(copy.deepcopy(layer))
        double = layer_of(torch.float64)
        pack(double)
        with torch.no_grad():
            run(double, arguments_of(double), mask_of(LENGTHS["padded"]))
    for other in (kernels_of(way="plain"), kernels_of(way="packed", joint_bytes=1 << 30)):
        with using(other):
            assert_reference(packed_layer())
    assert not counts


def test_what_is_never_faster_is_not_kept_and_what_is_kept_dies_with_its_weight() -> None:
    kernels = kernels_of()
    with using(kernels):
        layer = packed_layer()
        assert len(kernels.kept) == 4
        del layer
        gc.collect()
        assert len(kernels.kept) == 0
    kernels = kernels_of(measure=lambda products, counts: [False] * B)
    with using(kernels):
        packed_layer()
    assert len(kernels.kept) == 0


def test_a_count_between_two_measured_ones_is_taken_for_the_smaller() -> None:
    def measure(_: BlockProducts, counts: Sequence[int]) -> list[bool]:
        return [count in (4, 16) for count in counts]

    kernels = ProcessorKernels(is_amd=False, measure=measure, few_columns=8)
    weight = torch.ones(5, 3)
    packed = PackedProducts(kernels.products(weight[None]), kernels._is_faster(weight))
    assert [count for count in range(1, 99) if packed.is_faster(count)] == [*range(4, 8), *range(16, 64)]
    assert packed.wants_rows(3)  # the other products store few columns as rows
    assert not packed.wants_rows(64)


def test_measuring_compares_the_two_products(counts: Counts) -> None:
    seconds = iter([[5.0, 0.8, 3.0], [1.0, 1.1, 9.0], [5.0, 0.95, 3.0], [1.0, 1.1, 9.0]])

    def timed(product: Callable[[], object], number: int, repeat: int) -> list[float]:
        product()
        times = next(seconds)
        assert (number, repeat) == (1, len(times))
        return times

    assert measured(BlockProducts(torch.ones(1, 5, 3), 1 << 19, 8), (1, 2), timed) == (True, False)
    assert counts == [1, 2]


def test_each_kind_of_weight_is_measured_once() -> None:
    shapes: list[tuple[int, ...]] = []

    def measure(products: BlockProducts, counts: tuple[int, ...]) -> list[bool]:
        shapes.append(tuple(products.weight.shape))
        return [False] * len(counts)

    kernels = ProcessorKernels(is_amd=False, measure=measure)
    for shape in ((5, 3), (3, 5), (5, 3)):
        assert kernels.faster_at(torch.ones(shape)) == [False] * len(COUNTS)
    assert shapes == [(1, 5, 3), (1, 3, 5)]
    assert kernels_of(way="packed").faster_at(torch.ones(5, 3)) == [True] * B


def test_a_rule_takes_the_place_of_the_measurement() -> None:
    assert rule_of().faster_at(torch.ones(6, 5)) == [count >= 2 for count in EACH_COUNT]


def test_a_model_packs_all_its_layers_and_saves_the_same(tmp_path: Any, counts: Counts) -> None:
    sizes = {"projection_size": 6, "cell_size": 7, "char_embedding_size": 3, "char_filters": [[1, 2], [2, 3]]}
    model = ElmoModel(ElmoConfig(**sizes)).eval()
    ids = torch.randint(1, 200, (B, T, 50))
    with torch.no_grad(), using(kernels_of()):
        expected = model(ids).last_hidden_state
        model.pack()
        keys = list(model.state_dict())
        torch.testing.assert_close(model(ids).last_hidden_state, expected, atol=2e-6, rtol=0)
    assert set(counts) == {B}
    model.save_pretrained(tmp_path)
    assert list(ElmoModel.from_pretrained(tmp_path).state_dict()) == keys


def test_weights_of_inference_mode_are_not_packed() -> None:
    with torch.inference_mode():
        weight = torch.ones(5, 3)
    kernels = kernels_of()
    kernels.pack(weight)
    assert len(kernels.kept) == 0
