"""What the gradient of the packed scan multiplies by and with."""

import pytest
import torch

from elmo_hf.scan.packed_gradient import product, transposed


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
