"""Products of large weights with few columns, in all their ways, against one plain product; weights in eight bits."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from scan_layers import Operators
from torch import Tensor

from elmo_hf.scan.eight_bit_products import EightBitProducts
from elmo_hf.scan.packed_gradient import product, transposed
from elmo_hf.scan.processor_kernels import ProcessorKernels
from elmo_hf.scan.products import BlockProducts, columns_in

M, N = 12, 5
THREE_ROWS = 3 * N * 8  # bytes of a block in float64
Make = Callable[[Tensor], BlockProducts]
WAYS: dict[str, Make] = {
    "one block": lambda weight: BlockProducts(weight, 1 << 19, 8, is_amd=False),
    "blocks of columns": lambda weight: BlockProducts(weight, THREE_ROWS, 2, is_amd=False),
    "blocks of rows": lambda weight: BlockProducts(weight, THREE_ROWS, 99, is_amd=False),
    "weight first": lambda weight: BlockProducts(weight, THREE_ROWS, 99, is_amd=True),
    "bfloat16's": ProcessorKernels(multiplies_bfloat16=True).products,
}


def drawn(directions: int, columns: int, height: int = M) -> tuple[Tensor, Tensor]:
    shapes = (directions, height, N), (directions, N, columns)
    weight, vectors = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return weight, vectors


def assert_products(products: BlockProducts, vectors: Tensor, exact: Tensor, as_rows: bool, tolerance: float) -> None:
    """Products are written over what stood there, or added to it, and nothing behind is written."""
    # What is written over is not read: some devices multiply it by zero, and not a number stays one.
    memory = torch.full((exact.numel() + 1,), torch.nan, dtype=exact.dtype)
    out = columns_in(memory, *exact.shape, as_rows)
    products.multiply(vectors, out)
    torch.testing.assert_close(out, exact, rtol=0, atol=tolerance)
    products.multiply(vectors, out, adds=True)
    torch.testing.assert_close(out, 2 * exact, rtol=0, atol=tolerance)
    assert memory[-1].isnan()


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("height", [M, 4])  # more rows than columns, and fewer
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("columns", [1, 2, 3, 7])
@pytest.mark.parametrize("as_rows", [False, True])
def test_products_are_the_plain_ones_written_or_added(
    make: Make, height: int, directions: int, columns: int, as_rows: bool
) -> None:
    weight, vectors = drawn(directions, columns, height)
    assert_products(make(weight), vectors, weight @ vectors, as_rows, 1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "columns", "scales"), [(64, 1, M), (64, 5, 1), (32, 49, M), (9, 2, 1)])
def test_products_in_eight_bits_are_near_the_exact_ones_written_or_added_and_the_same_in_any_batch(
    size: int, columns: int, scales: int, dtype: torch.dtype
) -> None:
    values = torch.randint(-128, 128, (M, size), dtype=torch.int8)
    values[:, : size // 2] = 127 * torch.tensor([[1], [-1]], dtype=torch.int8).repeat(M // 2, 1)  # the largest sums
    weight = EightBitProducts(values, scale := torch.rand(scales, 1))
    vectors = torch.randn(1, size, columns).to(dtype)
    vectors[..., 0] = 1000.0
    exact = scale.double() * (values.double() @ vectors[0].double())
    out = columns_in(torch.full((M * columns,), torch.nan), 1, M, columns, as_rows=True)
    weight.multiply(vectors, out)
    # Each number of a vector is wrong by at most 1/15,876 of the largest, so by half of that on average.
    bound = scale.double() * values.double().abs().sum(dim=1, keepdim=True) * vectors[0].double().abs().amax(dim=0)
    assert ((out[0] - exact).abs() <= bound / 15_876).all()
    alone = torch.zeros(1, M, 1)
    for column in range(columns):
        weight.multiply(vectors[..., column : column + 1], alone)
        assert torch.equal(alone[0, :, 0], out[0, :, column])
    weight.multiply(vectors, doubled := out.clone(), adds=True)
    assert torch.equal(doubled, 2 * out)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("as_rows", [False, True])
def test_on_amd_onednn_multiplies_many_columns(as_rows: bool) -> None:
    weight, vectors = drawn(1, 9)
    weight, vectors = weight.float(), vectors.float()
    products = BlockProducts(weight, THREE_ROWS, 99, is_amd=True)
    with Operators() as called:
        for columns in (9, 7):
            assert_products(products, vectors[..., :columns], weight @ vectors[..., :columns], as_rows, 1e-5)
    assert called.by_onednn(is_packed=False) == [9, 9]


def test_bfloat16_is_not_multiplied_where_onednn_may_not() -> None:
    """In a new process, because oneDNN reads its environment once."""
    code = "from elmo_hf.scan.processor_kernels import multiplies_bfloat16 as answer; print(answer())"
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).split()[-1] == "False"


@pytest.mark.parametrize("shape", [(5, 3), (1, 256, 3), (2, 129, 4)])
def test_a_transposed_weight_has_memory_of_its_own(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape)
    assert torch.equal(transposed(weight), weight.mT)
    assert transposed(weight).is_contiguous()


@pytest.mark.parametrize("rows", [10, 1025, 2048])
def test_a_product_comes_in_the_requested_dtype(rows: int) -> None:
    first, second = torch.randn(rows, 6).bfloat16(), torch.randn(6, 3).bfloat16()
    exact = first.double() @ second.double()
    for dtype in (torch.float32, torch.bfloat16):
        assert product(first, second, dtype).dtype == dtype
        torch.testing.assert_close(product(first, second, dtype).double(), exact, rtol=2**-8, atol=2**-8)
