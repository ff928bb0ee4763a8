"""Large weights in huge pages of memory, which a processor reads faster (docs/speed.md).

A system maps memory in pages of 4 KiB, which may lie anywhere, and the processor looks up where each of them is. Linux
also has pages of 2 MiB, for memory in which a process asks for them. A step of a scan for few texts takes as long as
reading its weights, so there the number of pages matters. The numbers of a weight and their order stay as they are.
"""

import mmap

import torch
from torch import Tensor

PAGE_BYTES = 1 << 21


def in_huge_pages(tensor: Tensor) -> Tensor:
    """A contiguous copy of a tensor on a CPU, in huge pages, whose memory cannot be resized.

    The tensor itself if it is smaller than a page, or if there are no huge pages or too little memory for a copy. Only
    Linux has huge pages, and it may be built without them. If an administrator has turned them off, the copy is in
    small pages.
    """
    if tensor.nbytes < PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return tensor
    try:
        memory = mmap.mmap(-1, tensor.nbytes + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # no memory, or a Linux without huge pages: the tensor stays where it is
        return tensor
    with torch.inference_mode(False):  # a parameter with this copy must be able to learn
        address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
        bytes_before_page = -address % PAGE_BYTES
        copy = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=bytes_before_page)
        return copy.view(tensor.shape).copy_(tensor)
