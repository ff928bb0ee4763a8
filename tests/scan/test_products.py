"""Products of large weights with few vectors, in all their ways, against one plain product; weights in eight bits."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from elmo_hf.kernels.eight_bit_products import EightBitProducts, EightBitWeight
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from elmo_hf.kernels.transposed_products import TransposedProducts
from elmo_hf.model.scan_elmo import Kernels, PlainProducts, Products, using
from tests.helpers.scan_layers import FULL, TRANSPOSES, B, Operators, T, arguments_of, layer_of, run

M, N = 12, 5
THREE_ROWS = 3 * N * 8  # bytes of a block in float64
Make = Callable[[Tensor], Products]
WAYS: dict[str, Make] = {
    "one block": lambda weight: PlainProducts(weight, 1 << 19, is_amd=False),
    "blocks": lambda weight: PlainProducts(weight, THREE_ROWS, is_amd=False),
    "weight first": lambda weight: PlainProducts(weight, THREE_ROWS, is_amd=True),
}
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def drawn(directions: int, count: int, height: int = M) -> tuple[Tensor, Tensor, Tensor]:
    """Weights `(D, m, n)`, vectors `(D, b, n)`, and their products `(D, b, m)`."""
    weight, rows = (torch.randn(directions, size, N, dtype=torch.float64) for size in (height, count))
    return weight, rows, torch.einsum("dmn,dbn->dbm", weight, rows)


def assert_products(products: Products, rows: Tensor, exact: Tensor, tolerance: float) -> None:
    """Products are right alone, plus a tensor of their shape, and plus a bias, which does not change."""
    for plus in (None, torch.randn_like(exact), torch.randn_like(exact[:, :1])):
        before = 0 if plus is None else plus.clone()
        found = products.times(rows, plus)
        assert found.is_contiguous()
        torch.testing.assert_close(found, exact + before, rtol=0, atol=tolerance)
        assert plus is None or torch.equal(plus, before)


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("height", [M, 4])  # more rows than columns, and fewer
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_products_are_the_plain_ones_plus_what_is_added(make: Make, height: int, directions: int, count: int) -> None:
    weight, rows, exact = drawn(directions, count, height)
    assert_products(make(weight), rows, exact, 1e-13)


@needs_onednn
def test_onednn_multiplies_many_vectors_and_packs_if_enough_steps_repay_it() -> None:
    weight, rows, exact = (each.float() for each in drawn(1, 64))
    for steps, plain, packed in ((1, [64, M], []), (2, [], [64, 9, 2])):
        products = Kernels(large_bytes=0, repays={torch.float32: 2}).products([weight[0]], steps)
        with Operators() as called:
            for count in (64, 9, 2):
                assert_products(products, rows[:, :count], exact[:, :count], 1e-5)
        # The weight `(M, n)` comes first where the vectors are few.
        assert called.by_onednn(is_packed=False) == [each for each in plain for _ in range(3)]
        assert called.by_onednn(is_packed=True) == [each for each in packed for _ in range(3)]


@needs_onednn
@pytest.mark.parametrize(("is_amd", "fewest"), [(True, 6), (False, 8)])
def test_onednn_multiplies_fewer_vectors_on_amds_processors(is_amd: bool, fewest: int) -> None:
    weight, rows, exact = (each.float() for each in drawn(1, 8))
    products = PlainProducts(weight, 1 << 19, is_amd)
    with Operators() as called:
        for count in range(1, 9):
            assert_products(products, rows[:, :count], exact[:, :count], 1e-5)
    # The weight `(M, n)` comes first, three times for each number of vectors.
    assert called.by_onednn(is_packed=False) == [M] * 3 * len(range(fewest, 9))


@needs_onednn
@pytest.mark.parametrize("count", [1, 2, 7, 8, 63, 64])
def test_a_transposed_copy_multiplies_as_the_transpose_does(count: int) -> None:
    weight, rows = torch.randn(M, N, dtype=torch.float64), torch.randn(1, count, M, dtype=torch.float64)
    products = TransposedProducts(weight.float()).times(rows.float())
    assert products.is_contiguous()
    torch.testing.assert_close(products.double(), rows @ weight, rtol=0, atol=1e-5)


@needs_onednn
def test_a_scan_transposes_a_large_weight_if_enough_backward_steps_repay_it() -> None:
    def vectors(changes: dict[str, Any], dtype: torch.dtype = torch.float32) -> list[int]:
        """The number of vectors of each product by oneDNN in the backward pass of a scan of T steps for B texts."""
        layer = layer_of(dtype)
        with using(ProcessorKernels(**TRANSPOSES | changes)):
            loss = run(layer, arguments_of(layer), FULL)[0].sum()
            with Operators() as called:
                loss.backward()
        return called.by_onednn(is_packed=False)

    assert vectors({"transposing_steps": T}) == [B] * T * 2  # of two directions
    for changes in ({"transposing_steps": T + 1}, {"is_amd": False}, {"large_bytes": 1 << 20}, {"joint_bytes": 4096}):
        assert vectors(changes) == []
    assert vectors({}, torch.float64) == []


def test_a_weight_in_bfloat16_multiplies_in_float32_where_the_processor_does_not_multiply_it() -> None:
    weight, rows, _ = (each.bfloat16() for each in drawn(2, 3))
    exact = torch.einsum("dmn,dbn->dbm", weight.double(), rows.double())
    kernels, bias = Kernels(multiplies_bfloat16=False), torch.randn(2, 1, M).bfloat16()
    found = kernels.products(list(weight)).times(rows, bias), kernels.multiply(rows, weight.mT)
    for number, wanted in zip(found, (exact + bias.double(), exact), strict=True):
        assert number.dtype == torch.bfloat16
        torch.testing.assert_close(number.double(), wanted, rtol=2**-8, atol=1e-6)  # rounded once


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "count", "scales"), [(64, 1, M), (64, 5, 1), (32, 49, M), (9, 2, 1)])
def test_products_in_eight_bits_are_near_the_exact_ones_and_the_same_in_any_batch(
    size: int, count: int, scales: int, dtype: torch.dtype
) -> None:
    values, scale = torch.randint(-128, 128, (2, M, size), dtype=torch.int8), torch.rand(2, scales, 1)
    values[..., : size // 2] = 127 * torch.tensor([[1], [-1]], dtype=torch.int8).repeat(M // 2, 1)  # the largest sums
    weights = EightBitProducts([EightBitWeight(*each) for each in zip(values, scale, strict=True)])
    rows = torch.randn(2, count, size).to(dtype)
    rows[:, 0] = 1000.0
    matrices = values.double() * scale.double()
    exact, found = rows.double() @ matrices.mT, weights.times(rows)
    # Each number of a vector is wrong by at most 1/15,876 of the largest, so by half of that on average.
    largest = rows.double().abs().amax(dim=2, keepdim=True)
    rounding = 2**-8 * exact.abs() if dtype == torch.bfloat16 else 0
    assert ((found - exact).abs() <= largest * matrices.abs().sum(dim=2)[:, None] / 15_876 + rounding).all()
    for row in range(count):
        assert torch.equal(weights.times(rows[:, row : row + 1])[:, 0], found[:, row])
    exact_rows, bias = rows.float(), torch.randn(2, 1, M)
    assert torch.equal(weights.times(exact_rows, bias), weights.times(exact_rows) + bias)


def test_bfloat16_is_not_multiplied_where_onednn_may_not() -> None:
    """In a new process, because oneDNN reads its environment once."""
    code = "from elmo_hf.model.scan_elmo import processor_multiplies_bfloat16 as answer; print(answer())"
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).split()[-1] == "False"
