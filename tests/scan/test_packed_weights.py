"""Packed weights: the reference's numbers, for one scan, or while the weights are what they were when packed."""

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scan_layers import LENGTHS, SHAPES, B, H, P, T, arguments_of, layer_of, mask_of, run, with_gradients
from tiny_inputs import assert_outputs_close
from torch import Tensor, nn

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.model import bilm
from elmo_hf.model.bilm import BiLMLayer
from elmo_hf.scan import packed, packed_weights
from elmo_hf.scan.column_products import multiplies_bfloat16, way_of_products
from elmo_hf.scan.layer import BatchLayout
from elmo_hf.scan.packed_weights import COUNTS, PackedWeight, faster_at, pack

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(not multiplies_bfloat16(), reason="the processor does not know bfloat16")
pytestmark = needs_onednn


@pytest.fixture(autouse=True)
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts of columns of the packed products, which are taken as the faster ones for an even count."""
    counts: list[int] = []

    def times(rows: Tensor, blocks: Tensor) -> Tensor:
        counts.append(len(rows))
        return torch.ops.mkldnn._linear_pointwise(rows, blocks, None, "none", [], "")

    def measured(weight: Tensor) -> tuple[bool, ...]:
        return tuple(count % 2 == 0 for count in packed_weights.COUNTS)

    for name in ("packed", "bilm"):
        monkeypatch.setattr({"packed": packed, "bilm": bilm}[name], "JOINT_BYTES", 0)
    monkeypatch.setattr(packed_weights, "_faster_at", {})
    monkeypatch.setattr(packed_weights, "COUNTS", tuple(range(1, B + 1)))
    monkeypatch.setattr(packed_weights, "IS_AMD", False)
    monkeypatch.setattr(packed_weights, "_measured", measured)
    monkeypatch.setattr(packed_weights, "_times", times)
    return counts


def packed_layer(**fields: Any) -> BiLMLayer:
    layer = layer_of(torch.float32, **fields)
    layer.pack()
    return layer


def assert_reference(layer: BiLMLayer, *resets: Tensor) -> None:
    """Values and states without gradient, and with it, where gradients are compared too."""
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    leaves = [*arguments, *layer.parameters()]
    with torch.no_grad():
        alone = run(layer, arguments, mask, *resets)
    fast = with_gradients(run(layer, arguments, mask, *resets), leaves)
    layer.can_scan_fast = lambda: False
    expected = with_gradients(run(layer, arguments, mask, *resets), leaves)
    del layer.can_scan_fast
    assert_outputs_close(alone, expected[:3], 2e-6)
    assert_outputs_close(fast, expected, 2e-5)


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_a_packed_layer_computes_the_same(fields: dict[str, Any], products: list[int]) -> None:
    layer = packed_layer(**fields)
    assert_reference(layer)
    assert products
    assert all(count % 2 == 0 for count in products)
    assert_reference(layer, torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)


@needs_bfloat16
@torch.no_grad()
def test_a_packed_layer_in_bfloat16_computes_the_same_but_for_rounding(products: list[int]) -> None:
    layer = layer_of(torch.bfloat16)
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    expected = run(layer, arguments, mask)
    assert not products
    layer.pack()
    assert_outputs_close(run(layer, arguments, mask), expected, 0.02)
    assert products


def test_bfloat16_is_packed_only_where_the_processor_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "multiplies_bfloat16", lambda: False)
    layer = layer_of(torch.bfloat16)
    layer.pack()
    assert all(packed_weights._find(weight) is None for weight in layer.parameters())


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
    change: Callable[[Tensor], object], products: list[int]
) -> None:
    layer = packed_layer()
    with torch.no_grad():
        for lstm in layer.lstms:
            change(lstm.recurrent_linear.weight)
            change(lstm.projection.weight)
    assert_reference(layer)
    assert not products
    layer.pack()
    assert_reference(layer)
    assert products


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_a_scan_packs_on_request(fields: dict[str, Any], products: list[int]) -> None:
    layer = layer_of(torch.float32, **fields)
    with way_of_products("packed"):
        assert_reference(layer)
        has_projection = layer.forward_lstm.projection is not None
        # Twice forward and once backward, W_h and W_p of each direction, at each step of three, two and one texts.
        steps = 3 * (1 + has_projection) * len(layer.lstms)
        assert [products.count(count) for count in (3, 2, 1, 4)] == [steps, 2 * steps, 3 * steps, 0]
        assert_reference(layer, torch.rand(B, T) < 0.4, torch.rand(B, T) < 0.4)
        del products[:]
        run(layer_of(torch.float64, **fields), arguments_of(layer_of(torch.float64, **fields)), mask_of([T] * B))
    assert not products


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this processor scans with at least three steps of two texts pack."""
    monkeypatch.setattr(packed_weights, "IS_AMD", True)
    monkeypatch.setattr(packed_weights, "LARGE_BYTES", 4 * H * P * 2)
    monkeypatch.setattr(packed_weights, "RULE", {torch.float32: (2, 3), torch.bfloat16: (2, 3)})


@pytest.mark.usefixtures("rule")
@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_scan_packs_large_weights_if_it_has_enough_steps(
    has_gradient: bool, products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_of(torch.float32)

    def packed_products(lengths: list[int]) -> list[int]:
        del products[:]
        with torch.set_grad_enabled(has_gradient):
            outputs, *_ = run(layer, arguments_of(layer), mask_of(lengths))
        if has_gradient:
            outputs.sum().backward()
        return products

    # W_h is large, W_p is not; forward, and backward in reverse, for each direction.
    once = [3, 2, 2] * 2 + [2, 2, 3] * 2 * has_gradient
    assert packed_products([6, 3, 1, 0]) == once
    assert packed_products([6, 2, 1, 0]) == []
    assert packed_products([1, 1, 1, 1]) == []
    with way_of_products("plain"):
        assert packed_products([6, 6, 6, 6]) == []
    monkeypatch.setattr(packed_weights, "IS_AMD", False)
    assert packed_products([6, 6, 6, 6]) == []
    assert all(packed_weights._find(weight) is None for weight in layer.parameters())


@pytest.mark.usefixtures("rule")
@needs_bfloat16
@pytest.mark.parametrize("is_amd", [False, True])
def test_in_bfloat16_the_first_scan_without_gradient_keeps_what_it_packs(
    is_amd: bool, products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_weights, "IS_AMD", is_amd)
    layer = layer_of(torch.bfloat16)
    arguments, mask = arguments_of(layer), mask_of([1, 1, 1, 1])
    run(layer, arguments, mask)
    assert not products
    with torch.no_grad():
        first, again = run(layer, arguments, mask), run(layer, arguments, mask)
    assert products == [4] * 4
    large = [lstm.recurrent_linear.weight for lstm in layer.lstms]
    assert [weight for weight in layer.parameters() if packed_weights._find(weight)] == large
    assert_outputs_close(first, again, 0)
    with torch.no_grad():
        large[0].mul_(2)
        run(layer, arguments, mask)
    assert all(packed_weights._find(weight) for weight in large)


@pytest.mark.usefixtures("rule")
@needs_bfloat16
@torch.no_grad()
def test_what_autocast_makes_is_packed_for_one_scan_of_enough_steps(products: list[int]) -> None:
    layer = layer_of(torch.float32)
    for lengths, expected in (([1, 1, 1, 1], []), ([3, 3, 2, 0], [3, 3, 2] * 2)):
        with torch.autocast("cpu", torch.bfloat16):
            run(layer, arguments_of(layer), mask_of(lengths))
        assert sorted(products) == sorted(expected)
        assert len(packed_weights._kept) == 0


@pytest.mark.usefixtures("rule")
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bfloat16)], ids=str)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@torch.no_grad()
def test_a_traced_layer_is_not_packed(dtype: torch.dtype, products: list[int]) -> None:
    layer = layer_of(dtype).requires_grad_(False)
    arguments, layout = arguments_of(layer), BatchLayout(mask_of([T] * B), None, 2)
    layer.pack()
    del products[:]
    traced = torch.jit.trace(lambda *tensors: layer(tensors[0], layout, *tensors[1:]), arguments, check_trace=False)
    assert not products
    assert_outputs_close(traced(*arguments), layer(arguments[0], layout, *arguments[1:]), 0.02)


def test_doubles_copies_and_small_layers_have_no_packed_weights(
    products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_reference(copy.deepcopy(packed_layer()))
    layer = layer_of(torch.float64)
    layer.pack()
    with torch.no_grad():
        run(layer, arguments_of(layer), mask_of(LENGTHS["padded"]))
    layer = packed_layer()
    with way_of_products("plain"):
        run(layer, arguments_of(layer), mask_of(LENGTHS["padded"]))
    for module in (bilm, packed):
        monkeypatch.setattr(module, "JOINT_BYTES", 1 << 30)
    with way_of_products("packed"):
        assert_reference(packed_layer())
    assert not products


def test_what_is_never_faster_is_not_kept_and_what_is_kept_dies_with_its_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.collect()
    before = len(packed_weights._kept)
    layer = packed_layer()
    assert len(packed_weights._kept) == before + 4
    del layer
    gc.collect()
    assert len(packed_weights._kept) == before
    monkeypatch.setattr(packed_weights, "_measured", lambda weight: (False,) * B)
    monkeypatch.setattr(packed_weights, "_faster_at", {})
    layer = layer_of(torch.float32)
    layer.pack()
    assert len(packed_weights._kept) == before


def test_a_count_between_two_measured_ones_is_taken_for_the_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "COUNTS", COUNTS)
    monkeypatch.setattr(packed_weights, "_measured", lambda weight: tuple(count in (4, 16) for count in COUNTS))
    packed_weight = PackedWeight(torch.ones(5, 3))
    faster = [count for count in range(1, 99) if packed_weight.is_faster(count)]
    assert faster == [*range(4, 8), *range(16, 64)]
    assert packed_weight.wants_rows(3)  # the other product stores few columns as rows
    assert not packed_weight.wants_rows(64)


def test_measuring_compares_the_two_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    seconds = iter([[5.0, 0.8, 3.0], [1.0, 1.1, 9.0], [5.0, 0.95, 3.0], [1.0, 1.1, 9.0]])
    monkeypatch.setattr(packed_weights, "_faster_at", {})
    monkeypatch.setattr(packed_weights, "COUNTS", (1, 2))
    monkeypatch.setattr(packed_weights, "IS_AMD", False)

    def timed(product: Callable[[], object], **how_often: int) -> list[float]:
        product()
        assert how_often == {"number": 1, "repeat": packed_weights.ROUNDS}
        return next(seconds)

    monkeypatch.setattr(packed_weights, "repeat", timed)
    assert faster_at(nn.Parameter(torch.ones(5, 3))) == (True, False)


def test_each_kind_of_weight_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[int, ...]] = []
    monkeypatch.setattr(packed_weights, "_measured", lambda weight: measured.append(weight.shape) or (False,) * B)
    for shape in ((5, 3), (3, 5), (5, 3)):
        assert faster_at(torch.ones(shape)) == (False,) * B
    with way_of_products("packed"):
        assert faster_at(torch.ones(5, 3)) == (True,) * B
    assert not any(faster_at(torch.ones(5, 3)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    faster_at(torch.ones(3, 5))
    assert measured == [(5, 3), (3, 5), (3, 5)]


def test_a_model_packs_all_its_layers_and_saves_the_same(tmp_path: Any, products: list[int]) -> None:
    sizes = {"projection_size": 6, "cell_size": 7, "char_embedding_size": 3, "char_filters": [[1, 2], [2, 3]]}
    model = ElmoModel(ElmoConfig(**sizes)).eval()
    ids = torch.randint(1, 200, (B, T, 50))
    with torch.no_grad():
        expected = model(ids).last_hidden_state
        model.pack()
        keys = list(model.state_dict())
        torch.testing.assert_close(model(ids).last_hidden_state, expected, atol=2e-6, rtol=0)
    assert set(products) == {B}
    model.save_pretrained(tmp_path)
    assert list(ElmoModel.from_pretrained(tmp_path).state_dict()) == keys


def test_weights_of_inference_mode_are_not_packed() -> None:
    with torch.inference_mode():
        weight = torch.ones(5, 3)
    before = len(packed_weights._kept)
    assert pack(weight) is None
    assert len(packed_weights._kept) == before


@pytest.mark.usefixtures("rule")
def test_a_rule_takes_the_place_of_the_measurement() -> None:
    weight = PackedWeight(torch.ones(6, 5))
    assert [weight.is_faster(count) for count in range(1, B + 1)] == [count >= 2 for count in range(1, B + 1)]
