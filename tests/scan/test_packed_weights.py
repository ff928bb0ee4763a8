"""Packed weights: when a scan packs them, and that they are used only while the weights are what they were."""

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.kernels.packing import pack
from elmo_hf.kernels.path import scan_path
from elmo_hf.kernels.processor_kernels import ProcessorKernels, WeightState
from elmo_hf.model.layers_elmo import BiLMLayer
from elmo_hf.model.scan_elmo import Kernels, using
from elmo_hf.share.model_info import complete_card
from tests.helpers.scan_layers import PACKS, PADDED, B, H, Operators, P, T, arguments_of, layer_of, mask_of, run
from tests.helpers.tiny_inputs import assert_outputs_close

has_onednn = torch.backends.mkldnn.is_available()
pytestmark = pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(
    not (has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported()), reason="oneDNN has no bfloat16 here"
)
F32, BF16 = torch.float32, torch.bfloat16


def kernels_of(steps: int = 3, **sizes: Any) -> ProcessorKernels:
    """Scans with so many steps pack W_h, which is large, and not W_p."""
    rule = {"repays": dict.fromkeys((F32, BF16), steps), "large_bytes": 4 * H * P * 2}
    return ProcessorKernels(**PACKS | rule | sizes)


def packed_columns(
    kernels: ProcessorKernels, layer: BiLMLayer, mask: Tensor = PADDED, has_gradient: bool = False
) -> list[int]:
    """The count of columns of each packed product of a scan, whose values are the reference's."""
    arguments, tolerance = arguments_of(layer), 2e-5 if layer.forward_lstm.projection.weight.dtype == F32 else 0.02
    with torch.set_grad_enabled(has_gradient), using(kernels), Operators() as called:
        found = run(layer, arguments, mask)
        if has_gradient:
            found[0].sum().backward()
    with scan_path("reference"):
        assert_outputs_close(found, run(layer, arguments, mask), tolerance)
    return called.by_onednn(is_packed=True)


@pytest.mark.parametrize("has_gradient", [False, True])
def test_a_scan_packs_large_weights_if_enough_steps_repay_it(has_gradient: bool) -> None:
    layer, kernels, mask = layer_of(F32), kernels_of(), mask_of(4, 3, 1, 0)
    once = [3, 2, 2, 1] * 2
    assert packed_columns(kernels, layer, mask, has_gradient) == once
    assert len(packed_columns(kernels_of(large_bytes=0), layer, mask, has_gradient)) == 2 * len(once)
    for others, lengths in (
        (kernels, (2, 2, 1, 0)),
        (kernels_of(large_bytes=4 * H * P * 4 + 1), (4, 3, 1, 0)),
        (kernels_of(joint_bytes=1 << 30), (4, 3, 1, 0)),
    ):
        assert packed_columns(others, layer, mask_of(*lengths), has_gradient) == []
    assert packed_columns(kernels, layer_of(torch.float64), mask, has_gradient) == []
    assert len(kernels.kept) == 0


@pytest.mark.parametrize("multiplies", [pytest.param(True, marks=needs_bfloat16), False])
def test_in_bfloat16_the_first_scan_keeps_what_it_packs_or_widens(multiplies: bool) -> None:
    layer, kernels, mask = layer_of(BF16), kernels_of(multiplies_bfloat16=multiplies), mask_of(1, 1, 1, 1)
    linears = [linear for lstm in layer.lstms for linear in (lstm.recurrent_linear, lstm.input_linear)]
    large = [linear.weight for linear in linears[:: 1 + multiplies]]
    for has_gradient in (True, False):
        assert packed_columns(kernels, layer, mask, has_gradient) == [4] * 2 * multiplies
        assert list(map(id, kernels.kept)) == list(map(id, large))
    large[0].data.mul_(2)
    assert packed_columns(kernels, layer, mask) == [4] * 2 * multiplies


def negate_last_number(weight: Tensor) -> None:
    """Negates the last number through NumPy, which torch does not see."""
    weight.detach().numpy()[-1, -1] *= -1


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda weight: weight.mul_(2),
    "another tensor": lambda weight: setattr(weight, "data", 2 * weight.data),
    "one row": lambda weight: weight.data[weight.shape[1]].add_(1),
    "all columns but one": lambda weight: weight.data[:, 1:].add_(1),
    "one number, counted": lambda weight: weight[0, 1].add_(1),
    "one column": lambda weight: weight.data[:, 1].neg_(),
    "the last number, by NumPy": negate_last_number,
    "rows in another order": lambda weight: weight.data.copy_(weight.data.flip(0)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_changed_weights_are_used_as_they_are_and_can_be_packed_again(change: Callable[[Tensor], object]) -> None:
    layer, kernels = layer_of(F32), kernels_of(steps=99)
    for _ in range(2):
        with using(kernels):
            pack(layer)
        # W_h and W_p of two directions, at the one step of three texts; the others have two or one.
        assert packed_columns(kernels, layer) == [3] * 2 * 2
        assert packed_columns(kernels, copy.deepcopy(layer)) == []
        with torch.no_grad():
            for lstm in layer.lstms:
                change(lstm.recurrent_linear.weight)
                change(lstm.projection.weight)
        assert packed_columns(kernels, layer) == []


@torch.no_grad()
def test_a_scan_that_uses_no_kept_copy_does_not_read_whole_weights_to_find_changes() -> None:
    layer, kernels = layer_of(F32), kernels_of(steps=99)
    sums = []
    with using(kernels):
        pack(layer)
        for lengths in ((2, 1, 0, 0), (3, 3, 2, 1)):
            with Operators() as called:
                run(layer, arguments_of(layer), mask_of(*lengths))
            sums.append([function for function, _ in called].count(torch.ops.aten.sum.dim_IntList))
    without, of_weights = sums
    assert of_weights - without == 2 * 2  # each weight of two directions once, at the first of its steps


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", [(64, 48), (48, 37), (7, 5)])
def test_the_state_of_a_weight_shows_every_change(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    sums = WeightState.of(weight).sums
    last_bits = weight.flatten().view(torch.int16)[:: weight.element_size() // 2]
    for index in range(weight.numel()):  # the smallest change of each single number
        last_bits[index] ^= 1
        assert not torch.equal(WeightState.of(weight).sums, sums)
        last_bits[index] ^= 1
    one_column_negated, two_columns_swapped = weight.clone(), weight.clone()
    one_column_negated[:, 3] *= -1
    two_columns_swapped[:, [0, 4]] = weight[:, [4, 0]]
    for changed in (weight.flip(0), weight.flip(1), -weight, one_column_negated, two_columns_swapped):
        assert not torch.equal(WeightState.of(changed).sums, sums)
    assert torch.equal(WeightState.of(weight.clone()).sums, sums)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_the_state_of_a_part_of_a_buffer_is_that_of_its_numbers(start: int, dtype: torch.dtype) -> None:
    buffer = torch.randn(200, generator=torch.Generator().manual_seed(1)).to(dtype)
    weight = buffer[start : start + 18 * 7].view(18, 7)
    assert torch.equal(WeightState.of(weight).sums, WeightState.of(weight.clone()).sums)


def test_what_cannot_be_packed_is_not_and_what_is_kept_dies_with_its_weight() -> None:
    kernels = kernels_of(multiplies_bfloat16=False)
    with torch.inference_mode():
        kernels.pack(torch.ones(5, 3))
    with using(kernels):
        for dtype, kept in ((BF16, 0), (torch.float64, 0), (F32, 4)):
            pack(layer := layer_of(dtype))
            assert len(kernels.kept) == kept
    del layer
    gc.collect()
    assert len(kernels.kept) == 0


@needs_bfloat16
@torch.no_grad()
def test_what_autocast_makes_is_packed_for_one_scan_of_enough_steps() -> None:
    layer, kernels = layer_of(F32), kernels_of()
    for lengths, expected in (((1, 1, 1, 1), []), ((3, 3, 2, 0), [3, 3, 2] * 2)):
        with torch.autocast("cpu", BF16), using(kernels), Operators() as called:
            run(layer, arguments_of(layer), mask_of(*lengths))
        assert called.by_onednn(is_packed=True) == expected
        assert len(kernels.kept) == 0


def test_a_model_packs_all_its_layers() -> None:
    sizes = {"projection_size": 6, "cell_size": 7, "char_embedding_size": 3, "char_filters": [[1, 2], [2, 3]]}
    model = ElmoModel(ElmoConfig(**sizes)).eval()
    ids = torch.randint(1, 200, (B, T, 50))
    with torch.no_grad(), using(kernels_of()):
        expected = model(ids).last_hidden_state
        model.pack()
        with Operators() as called:
            torch.testing.assert_close(model(ids).last_hidden_state, expected, atol=2e-6, rtol=0)
    assert called.by_onednn(is_packed=True) == [B] * T * 2 * 2 * 2  # W_h and W_p of two directions in two layers


def test_the_public_names_plug_the_packages_kernels_into_the_models() -> None:
    assert type(Kernels.default) is ProcessorKernels
    assert ElmoModel.keep_packed is pack
    assert ElmoModel.complete_card is complete_card
