"""Weights in huge pages: the same numbers, in memory for which huge pages were asked."""

import errno
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elmo_hf.kernels.huge_pages import PAGE_BYTES, in_huge_pages
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from tests.helpers.scan_layers import Operators

needs_huge_pages = pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="only Linux has huge pages")
needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
MAPPINGS = Path("/proc/self/smaps")
SHAPE = (1024, 520)  # in float32 a little more than a page


def flags_of_mapping(address: int) -> list[str]:
    """The flags that Linux shows for the mapping of an address."""
    is_inside = False
    for line in MAPPINGS.read_text(encoding="utf-8").splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            begin, end = (int(number, 16) for number in name.split("-"))
            is_inside = begin <= address < end
        elif is_inside and name == "VmFlags:":
            return values
    raise AssertionError(f"no mapping has the address {address:#x}")


def starts_a_page(tensor: Tensor) -> bool:
    return tensor.data_ptr() % PAGE_BYTES == 0


@needs_huge_pages
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_copy_has_the_same_numbers_from_the_start_of_a_page(dtype: torch.dtype) -> None:
    tensor = torch.randn(SHAPE, dtype=dtype)
    for original in (tensor, tensor.t()):
        copy = in_huge_pages(original)
        assert torch.equal(copy, original)
        assert copy.is_contiguous()
        assert starts_a_page(copy)


@needs_huge_pages
@pytest.mark.skipif(not MAPPINGS.exists(), reason="this system does not show how memory is mapped")
def test_linux_is_asked_for_huge_pages() -> None:
    copy = in_huge_pages(torch.ones(SHAPE))
    assert "hg" in flags_of_mapping(copy.data_ptr())


def test_a_tensor_that_does_not_fill_a_page_stays() -> None:
    tensor = torch.ones(PAGE_BYTES // 4 - 1)
    assert in_huge_pages(tensor) is tensor


@needs_huge_pages
def test_a_tensor_stays_where_there_are_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.ones(SHAPE)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9999)  # as a Linux without them, which refuses this advice too
    assert in_huge_pages(tensor) is tensor
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert in_huge_pages(tensor) is tensor


@needs_huge_pages
def test_a_tensor_stays_where_there_is_no_memory_for_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    tensor = torch.ones(SHAPE)
    monkeypatch.setattr(mmap, "mmap", refuse)
    assert in_huge_pages(tensor) is tensor


@needs_huge_pages
@needs_onednn
def test_packing_moves_a_weight_in_float32_whose_copy_is_used_and_which_learns() -> None:
    weight = nn.Parameter(torch.randn(SHAPE))
    rows = torch.randn(1, 3, SHAPE[1])
    numbers = weight.detach().clone()
    kernels = ProcessorKernels()
    with torch.inference_mode():
        kernels.pack(weight)
    assert starts_a_page(weight)
    assert torch.equal(weight, numbers)
    with torch.no_grad(), Operators() as called:
        kernels.products([weight]).times(rows)
    assert called.by_onednn(is_packed=True) == [3]
    (gradient,) = torch.autograd.grad((rows[0] @ weight.t()).sum(), weight)
    torch.testing.assert_close(gradient[0], rows[0].sum(dim=0), rtol=1e-5, atol=1e-5)


def test_packing_leaves_a_weight_in_bfloat16_where_it_is() -> None:
    weight = nn.Parameter(torch.randn(2 * SHAPE[0], SHAPE[1]).bfloat16())
    address = weight.data_ptr()
    ProcessorKernels(multiplies_bfloat16=True).pack(weight)
    assert weight.data_ptr() == address


@needs_onednn
def test_packing_again_moves_no_unchanged_weight_and_makes_no_other_copy() -> None:
    weight = nn.Parameter(torch.randn(SHAPE))
    kernels = ProcessorKernels()
    kernels.pack(weight)
    address, (copy, _) = weight.data_ptr(), kernels.kept[weight]
    kernels.pack(weight)
    assert weight.data_ptr() == address
    assert kernels.kept[weight][0] is copy
    with torch.no_grad():
        weight[3, 5] += 1
    kernels.pack(weight)
    assert kernels.kept[weight][0] is not copy


@needs_onednn
def test_packing_leaves_a_weight_where_it_is_in_shared_memory_or_made_in_inference_mode() -> None:
    with torch.inference_mode():
        made_in_inference = nn.Parameter(torch.randn(SHAPE), requires_grad=False)
    shared = nn.Parameter(torch.randn(SHAPE))
    shared.share_memory_()
    kernels = ProcessorKernels()
    for weight in (made_in_inference, shared):
        address = weight.data_ptr()
        kernels.pack(weight)
        assert weight.data_ptr() == address
    assert shared.is_shared()
    rows = torch.randn(1, 2, SHAPE[1])
    torch.testing.assert_close(
        kernels.products([made_in_inference]).times(rows)[0], rows[0] @ made_in_inference.t(), rtol=1e-5, atol=1e-4
    )
