"""Packed weights: when a scan packs them, and that they are used only while the weights are what they were."""

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from scan_layers import (
    LENGTHS,
    PACKS,
    SHAPES,
    B,
    H,
    P,
    T,
    arguments_of,
    assert_scan,
    layer_of,
    mask_of,
    run,
)
from scan_layers import Path as ScanPath
from tiny_inputs import assert_outputs_close
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.model.bilm import BiLMLayer
from elmo_hf.model.packing import pack
from elmo_hf.scan.kernels import using
from elmo_hf.scan.packed_weights import REPAYS
from elmo_hf.scan.path import scan_path
from elmo_hf.scan.processor_kernels import ProcessorKernels
from elmo_hf.scan.reading_order import BatchLayout

has_onednn = torch.backends.mkldnn.is_available()
pytestmark = pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(
    not (has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported()), reason="oneDNN has no bfloat16 here"
)
F32, BF16 = torch.float32, torch.bfloat16


def kernels_of(steps: int = 3, large_bytes: int = 4 * H * P * 2, **sizes: Any) -> ProcessorKernels:
    """Scans with so many steps of two or three texts pack W_h, which is large, and not W_p."""
    rule = {"repays": dict.fromkeys((F32, BF16), (range(2, 4), steps)), "large_bytes": large_bytes}
    return ProcessorKernels(**PACKS | rule | sizes)


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


def packed_layer() -> BiLMLayer:
    layer = layer_of(F32)
    pack(layer)
    return layer


def assert_reference(layer: BiLMLayer) -> None:
    arguments, mask = arguments_of(layer), mask_of(LENGTHS["padded"])
    with torch.no_grad():
        found = run(layer, arguments, mask)
        with scan_path("reference"):
            assert_outputs_close(found, run(layer, arguments, mask), 2e-6)


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES.keys())
def test_every_product_of_a_scan_that_packs_is_packed(fields: dict[str, Any], counts: Counts) -> None:
    path = ScanPath(ProcessorKernels(**PACKS), F32, 2e-5)
    assert_scan(path, fields, ("padded", "left", False))
    # Twice forward and once backward, W_h and W_p of each direction, at each step of three, two and one texts.
    steps = (
        3 * (1 + (fields.get("cell_size") != P or "cell_projection" in fields)) * (1 + fields.get("bidirectional", 1))
    )
    assert [counts.count(count) for count in (3, 2, 1, 4)] == [steps, 2 * steps, 3 * steps, 0]
    counts.clear()
    assert_scan(path._replace(dtype=torch.float64, tolerance=1e-12), fields, ("padded", "left", False))
    assert not counts


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_scan_packs_large_weights_if_enough_steps_repay_it(has_gradient: bool, counts: Counts) -> None:
    layer, kernels = layer_of(F32), kernels_of()

    def packed_products(kernels: ProcessorKernels, lengths: list[int]) -> list[int]:
        counts.clear()
        with torch.set_grad_enabled(has_gradient), using(kernels):
            outputs, *_ = run(layer, arguments_of(layer), mask_of(lengths))
            if has_gradient:
                outputs.sum().backward()
        return list(counts)

    # Forward, and backward in reverse, for each direction.
    once = [3, 2, 2, 1] * 2 + [1, 2, 2, 3] * 2 * has_gradient
    assert packed_products(kernels, [4, 3, 1, 0]) == once
    assert packed_products(kernels, [6, 2, 1, 0]) == []
    assert packed_products(kernels, [6, 6, 6, 6]) == []
    assert packed_products(kernels_of(joint_bytes=1 << 30), [4, 3, 1, 0]) == []
    assert len(kernels.kept) == 0


def test_the_rule_is_of_dtype_and_columns() -> None:
    weight, kernels = torch.ones(1, 4096, 512), ProcessorKernels(multiplies_bfloat16=True)

    def packs(columns: list[int], dtype: torch.dtype = F32) -> bool:
        with Counts() as found:
            kernels.times(weight.to(dtype), columns)(torch.ones(1, 512, 2, dtype=dtype))
        return bool(found)

    assert REPAYS == {F32: (range(8, 33), 26), BF16: (range(1, 1 << 30), 8)}
    assert [packs([8] * 26), packs([32] * 26), packs([8] * 25), packs([7] * 99), packs([33] * 99)] == [1, 1, 0, 0, 0]
    assert not packs([8] * 99, torch.float64)


@needs_bfloat16
def test_in_bfloat16_the_first_scan_without_gradient_keeps_what_it_packs(counts: Counts) -> None:
    layer, kernels = layer_of(BF16), kernels_of()
    arguments, mask = arguments_of(layer), mask_of([1, 1, 1, 1])
    large = [lstm.recurrent_linear.weight for lstm in layer.lstms]
    with using(kernels):
        run(layer, arguments, mask)
        assert not counts
        with torch.no_grad():
            first, again = run(layer, arguments, mask), run(layer, arguments, mask)
            assert counts == [4] * 4
            assert list(map(id, kernels.kept)) == list(map(id, large))
            assert_outputs_close(first, again, 0)
            large[0].mul_(2)
            changed = run(layer, arguments, mask)
    with torch.no_grad(), using(kernels_of(large_bytes=1 << 30)):
        assert_outputs_close(changed, run(layer, arguments, mask), 0.02)


def test_bfloat16_is_packed_only_where_the_processor_multiplies_it() -> None:
    kernels = kernels_of(multiplies_bfloat16=False)
    with using(kernels):
        pack(layer_of(BF16))
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
    with using(kernels_of(steps=99)):
        layer = packed_layer()
        assert_reference(layer)
        assert len(counts) == 2 * 2 * T
        with torch.no_grad():
            for lstm in layer.lstms:
                change(lstm.recurrent_linear.weight)
                change(lstm.projection.weight)
        counts.clear()
        assert_reference(layer)
        assert not counts
        pack(layer)
        assert_reference(layer)
        assert counts


@needs_bfloat16
@torch.no_grad()
def test_what_autocast_makes_is_packed_for_one_scan_of_enough_steps(counts: Counts) -> None:
    layer, kernels = layer_of(F32), kernels_of()
    for lengths, expected in (([1, 1, 1, 1], []), ([3, 3, 2, 0], [3, 3, 2] * 2)):
        with torch.autocast("cpu", BF16), using(kernels):
            run(layer, arguments_of(layer), mask_of(lengths))
        assert sorted(counts) == sorted(expected)
        assert len(kernels.kept) == 0


@pytest.mark.parametrize("dtype", [F32, pytest.param(BF16, marks=needs_bfloat16)], ids=str)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@torch.no_grad()
def test_a_traced_layer_is_not_packed(dtype: torch.dtype) -> None:
    layer = layer_of(dtype).requires_grad_(False)
    arguments, layout = arguments_of(layer), BatchLayout(mask_of([T] * B), None, 2)
    with using(kernels_of()):
        pack(layer)
        traced = torch.jit.trace(lambda *tensors: layer(tensors[0], layout, *tensors[1:]), arguments, check_trace=False)
    assert "mkldnn" not in str(traced.graph)
    assert_outputs_close(traced(*arguments), layer(arguments[0], layout, *arguments[1:]), 0.02)


def test_copies_and_tensors_of_inference_mode_are_not_packed_and_what_is_kept_dies_with_its_weight(
    counts: Counts,
) -> None:
    kernels = kernels_of(steps=99)
    with torch.inference_mode():
        kernels.pack(torch.ones(5, 3))
    with using(kernels):
        assert_reference(copy.deepcopy(layer := packed_layer()))
    assert not counts
    assert len(kernels.kept) == 4
    del layer
    gc.collect()
    assert len(kernels.kept) == 0


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
