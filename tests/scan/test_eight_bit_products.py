"""Products with weights in eight bits against exact ones."""

import pytest
import torch

from elmo_hf.scan.eight_bit_products import EightBitProducts
from elmo_hf.scan.products import columns_in

M = 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "columns", "scales"), [(64, 1, M), (64, 5, 1), (32, 49, M), (9, 2, 1)])
def test_products_are_near_the_exact_ones_written_or_added_and_the_same_in_any_batch(
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
