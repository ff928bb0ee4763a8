"""Products with weights in eight bits, by the kernel and by blocks of floats, against exact ones."""

import pytest
import torch

from elmo_hf.scan.eight_bit_products import EightBitProducts
from elmo_hf.scan.kernels import apply_linear
from elmo_hf.scan.products import columns_in

M = 12


@pytest.mark.parametrize("float_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("size", "columns"), [(64, 1), (64, 3), (64, 5), (32, 49), (9, 2)])
def test_products_are_the_exact_ones_rounded_to_bfloat16_written_or_added(
    size: int, columns: int, float_dtype: torch.dtype
) -> None:
    values = torch.randint(-128, 128, (M, size), dtype=torch.int8)
    # (32, 49): blocks of 5, 5 and 2 rows.
    weight = EightBitProducts(values, torch.rand(M, 1), float_dtype, 4, block_numbers=4 * 32)
    vectors = torch.randint(-999, 1000, (1, size, columns)).float()  # sums of whole numbers are exact in any order
    exact = (values.double() @ vectors.bfloat16().double()).bfloat16() * weight.scales
    out = columns_in(torch.full((M * columns,), torch.nan), 1, M, columns, weight.wants_rows(columns))
    weight.multiply(vectors, out)
    assert torch.equal(out, exact)
    weight.multiply(vectors, out, adds=True)
    assert torch.equal(out, 2 * exact)


@torch.inference_mode()
@pytest.mark.parametrize("offset", [1, 8])
def test_weights_may_stand_anywhere_in_a_file(offset: int) -> None:
    """The kernel ends the process where it reads four columns or more of weights at such an address."""
    torchao = pytest.importorskip("torchao.quantization")
    linear, inputs = torch.nn.Linear(64, M), torch.randn(49, 64)
    torchao.quantize_(linear, torchao.Int8WeightOnlyConfig())
    weight = linear.weight
    expected = [apply_linear(linear, inputs[:count]) for count in range(1, 50)]
    values, buffer = weight.qdata, torch.zeros(weight.qdata.nbytes + offset, dtype=torch.int8)
    weight.qdata = buffer[offset:].view_as(values).copy_(values)
    for count, outputs in enumerate(expected, start=1):
        assert torch.equal(apply_linear(linear, inputs[:count]), outputs)
    assert torch.equal(weight.qdata, values)
    assert weight.qdata.data_ptr() % 64 == 0
    assert not weight.qdata.is_inference()
