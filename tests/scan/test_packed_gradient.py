"""What the gradient of the packed scan multiplies by and with."""

import pytest
import torch

from elmo_hf.scan import packed_gradient
from elmo_hf.scan.packed_gradient import product, transposed


@pytest.mark.parametrize("shape", [(5, 3), (1, 8, 3), (2, 7, 4)])
def test_a_transposed_weight_has_memory_of_its_own(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_gradient, "COPIED_ROWS", 4)
    weight = torch.randn(shape)
    assert torch.equal(transposed(weight), weight.mT)
    assert transposed(weight).is_contiguous()


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_a_product_comes_in_the_dtype_asked_for(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_gradient, "PRODUCT_ROWS", rows)
    first, second = torch.randn(10, 6).bfloat16(), torch.randn(6, 3).bfloat16()
    exact = first.double() @ second.double()
    for dtype in (torch.float32, torch.bfloat16):
        assert product(first, second, dtype).dtype == dtype
        torch.testing.assert_close(product(first, second, dtype).double(), exact, rtol=2**-8, atol=2**-8)
