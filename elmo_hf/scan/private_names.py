"""The private names of torch that this code uses, with what takes the place of each.

A saved folder is opened for years, and any version of torch may remove a private name or change its arguments. So each
name is looked up here and nowhere else, when it is needed. Without it, the numbers are the same up to the order of
float sums, except that bfloat16 is rounded elsewhere:

    torch._C._are_functorch_transforms_active      a function is called that `torch.func` refuses: 25 microseconds more
    torch._higher_order_ops.scan.scan              nothing can be exported; the error says so
    torch.utils._pytree._register_namedtuple       `torch.export.save` refuses programs that take or return `BiLMState`
    torch.cpu._is_amx_tile_supported               the public list of the processor's instructions is read
    torch.cpu._is_avx512_bf16_supported            as above
    torch.ops.mkldnn._is_mkldnn_bf16_supported     oneDNN counts as able to use those instructions
    torch.ops.mkldnn._linear_pointwise             torch multiplies in blocks, for any number of vectors: slower
    torch.ops.mkldnn._reorder_linear_weight        no copy in oneDNN's layout: bfloat16 is slower

Neither documented nor private are the following names:

    torch.lstm                                     a task's LSTM takes its steps in Python: slower
    torch.get_autocast_dtype                       the dtype of autocast is that of a product: a few microseconds more
    torch.jit.is_tracing                           `torch.jit.trace` is gone, so nothing is traced
    _forward_hooks and others of `nn.Module`       every module counts as hooked, so the reference runs: much slower

Glossary: b vectors; a weight is `(m, n)`.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class _RefusedByTransforms(torch.autograd.Function):
    """A function that `torch.func` refuses, because its `forward` takes the context."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor


def has_transforms() -> bool:
    """Whether a transform of `torch.func` is active."""
    try:
        return torch._C._are_functorch_transforms_active()
    except AttributeError:
        return is_refused_by_transforms()


def is_refused_by_transforms() -> bool:
    """Whether a transform of `torch.func` is active, by what it refuses."""
    try:
        _RefusedByTransforms.apply(torch.empty(0, device="cpu"))
    except RuntimeError:
        return True
    return False


def is_tracing() -> bool:
    """Whether `torch.jit.trace` makes a graph."""
    try:
        return torch.jit.is_tracing()
    except AttributeError:
        return False


def is_hooked(module: nn.Module) -> bool:
    """Whether more than the module's own `forward` runs when it is called, or may run."""
    try:
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    except AttributeError:
        return True
    return any(hooks) or "forward" in vars(module)  # accelerate sets `forward` on the instance


def autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype of products under autocast on a kind of device; None without autocast."""
    if not torch.is_autocast_enabled(device):
        return None
    try:
        return torch.get_autocast_dtype(device)
    except AttributeError:
        one = torch.ones(1, 1, device=device)
        return torch.mm(one, one).dtype


def scan_operator() -> Callable[..., Any]:
    """Returns torch's operator for a loop over words.

    Raises:
        ImportError: if this torch does not have it.
    """
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ImportError(
            f"a model is exported with torch's scan operator, which torch {torch.__version__} does not have under the "
            "name `torch._higher_order_ops.scan.scan`: export with torch 2.13."
        ) from error
    return scan


def register_namedtuple(cls: type, name: str) -> None:
    """Lets `torch.export.save` write a class of named tuples under a name, if this torch can."""
    try:
        from torch.utils._pytree import _register_namedtuple
    except ImportError:
        return
    _register_namedtuple(cls, serialized_type_name=name)


def lstm(inputs: Tensor, state: list[Tensor], weights: list[Tensor]) -> Tensor | None:
    """Outputs of an LSTM with torch's weights, all texts first; None if this torch cannot be called so."""
    try:
        function = torch.lstm
    except AttributeError:
        return None
    # With a gradient, cuDNN must be told that it trains.
    return function(inputs, state, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16, and oneDNN may use them."""
    return has_bfloat16() and torch.backends.mkldnn.is_available() and may_use_bfloat16()


def has_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    try:
        has_instructions = torch.cpu._is_amx_tile_supported(), torch.cpu._is_avx512_bf16_supported()
    except AttributeError:
        has_instructions = bool(processor().get("amx_tile")), bool(processor().get("avx512_bf16"))
    return any(has_instructions)


def may_use_bfloat16() -> bool:
    """Whether oneDNN may use the processor's instructions for bfloat16, which its environment can forbid."""
    try:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    except AttributeError:
        return True


def processor() -> Mapping[str, Any]:
    """The processor's name and instructions; empty in a torch before 2.9."""
    try:
        return torch.cpu.get_capabilities()
    except AttributeError:
        return {}


@functools.cache
def has_onednn() -> bool:
    """Whether `by_onednn` computes products of plain weights in this torch."""
    one = torch.ones(2, 2, device="cpu")
    try:
        sums = by_onednn(one, one, one), by_onednn(one, one, one[0])
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(torch.equal(each, one + 2) for each in sums)


@functools.cache
def has_onednn_layout() -> bool:
    """Whether `in_onednn_layout` makes copies of weights that `by_onednn` multiplies in this torch."""
    one = torch.ones(2, 2, device="cpu")
    try:
        return torch.equal(by_onednn(one, in_onednn_layout(one, 2), None), one + 1)
    except (AttributeError, RuntimeError, TypeError):
        return False


def by_onednn(rows: Tensor, weight: Tensor, plus: Tensor | None) -> Tensor:
    """Rows `(b, n)` times the transpose of a weight, plain or in the layout, plus `(b, m)`, `(1, m)` or `(m,)`."""
    if plus is not None and plus.dim() == 2 and len(plus) > 1:
        return torch.ops.mkldnn._linear_pointwise.binary(rows, plus, weight, None, "add")
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None if plus is None else plus.flatten(), "none", [], "")


def in_onednn_layout(weight: Tensor, rows: int) -> Tensor:
    """A copy of a weight in oneDNN's own layout, which is best for a number of rows."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)
