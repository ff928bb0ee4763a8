"""Operators of our own: calls that a compiled graph keeps as they are, with whatever Python they run inside.

A graph may not depend on how long texts are or which words are equal; inside an operator Python may. So one graph
serves all batches.

A saved folder carries this code too, so a process may load several copies of it. The first one registers an operator,
the others use it. Therefore names end in a version, which must grow whenever arguments, results or meaning change.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# An older torch does not tell export from compilation.
is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def calls_operators() -> bool:
    """Whether a graph is being compiled; an exported one must run without this package."""
    return torch.compiler.is_compiling() and not is_exporting()


def register(
    name: str,
    schema: str,
    function: Callable[..., Any],
    fake: Callable[..., Any],
    keep: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Returns the operator `elmo_hf::name`, which runs `function`; registers it unless another copy already did.

    `fake` makes results of the right shapes; `keep` stores in its `ctx` what `backward` needs.
    """
    if not hasattr(torch.ops.elmo_hf, name):
        operator = torch.library.custom_op(f"elmo_hf::{name}", function, mutates_args=(), schema=schema)
        operator.register_fake(fake)
        if backward is not None:
            operator.register_autograd(backward, setup_context=keep)
    return getattr(torch.ops.elmo_hf, name).default


def opaque(name: str, fake: Callable[..., Tensor]) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Makes a function of tensors, which returns a new contiguous one, an operator of compiled graphs.

    Its gradient runs the function again, with autograd. Otherwise the function is called as it is.
    """

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def gradients(d_result: Tensor, tensors: list[Tensor]) -> list[Tensor]:
            # Operators run below autograd; to leave inference mode is to come back to it.
            with torch.inference_mode(False):
                leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
                result, wanted = function(*leaves), [leaf for leaf in leaves if leaf.requires_grad]
                found = torch.autograd.grad(result, wanted, d_result, materialize_grads=True)
            return [gradient.clone(memory_format=torch.contiguous_format) for gradient in found]

        def fake_gradients(d_result: Tensor, tensors: list[Tensor]) -> list[Tensor]:
            return [tensor.new_empty(tensor.shape) for tensor in tensors if tensor.is_floating_point()]

        def keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        def backward(ctx: Any, d_result: Tensor) -> tuple[Tensor | None, ...]:
            tensors = ctx.saved_tensors
            found = iter(run_gradients(d_result.contiguous(), list(tensors)))
            return tuple(next(found) if tensor.is_floating_point() else None for tensor in tensors)

        arguments = ", ".join(f"Tensor {argument}" for argument in inspect.signature(function).parameters)
        run = register(name, f"({arguments}) -> Tensor", function, fake, keep, backward)
        run_gradients = register(
            f"{name}_backward", "(Tensor d_result, Tensor[] tensors) -> Tensor[]", gradients, fake_gradients
        )

        @functools.wraps(function)
        def call(*tensors: Tensor) -> Tensor:
            return run(*tensors) if calls_operators() else function(*tensors)

        return call

    return decorate
