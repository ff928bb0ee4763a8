"""The Triton kernels between the matrix products of a step of a biLM layer: two forward, two backward.

The equations are those of `packed.py`. A kernel computes everything between two products, for all directions at once:

    forward     r = W_h h_{t-1}  |  cell_step: z_t to c_t and m_t  |  p_t = W_p m_t       |  hidden_step: p_t to h_t
    backward    hidden_gradient_step: dh_t, dp_t  |  dm_t = W_p^T dp_t  |  cell_gradient_step: dz_t  |  r = W_h^T dz_t

m_t is the memory. Kernels compute in float32, whatever the dtype of the tensors. A reset is applied after the product:
(W_h h) * keeps instead of W_h (h * keeps), which saves a second copy of h. a_t is not kept; the backward pass computes
it again from the gates and c_{t-1}.

Arguments: a program computes `BLOCK` of the `count` elements of step `step` of `length`; `limit` is infinite without
clipping. Tensors are contiguous. In tensors of all steps, step is the second axis:

    (D, T, B, .)        gates (4H), projected (P), d_outputs (P) and the flags is_word and keeps, bytes of 1 or 0
    (D, T + 1, B, .)    the states cells (H, float32) and hidden (P): the first is the one before the first step
    (D, B, .)           scratch of one step: products (4H forward, P backward), memory (H), d_hidden, d_cell (float32)

Without a projection P = H, and memory and d_memory have all steps.

Glossary: D directions, B batch, T steps, P projection, H cell; WIDTH = H and `count` = D B H, or SIZE = P and
`count` = D B P. Without Triton this file still imports, but its functions cannot run.
"""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton, tl = None, SimpleNamespace(tensor=Any, constexpr=Any)

IS_INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"


def _jit(kernel: Callable[..., Any]) -> Any:
    """Compiles a kernel once for all steps, lengths and batch sizes."""
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=("step", "length", "batch"))


@_jit
def _rows(place: tl.tensor, step: int, length: int, batch: int, WIDTH: tl.constexpr) -> tl.tensor:
    """For elements `place` of (D, B, WIDTH): the row in (D, T, B, .), the row in (D, T + 1, B, .), and the column."""
    direction = place // WIDTH // batch
    row = (direction * length + step) * batch + place // WIDTH % batch
    return row.to(tl.int64), (row + direction * batch).to(tl.int64), place % WIDTH


@_jit
def _float(pointer: tl.tensor, mask: tl.tensor) -> tl.tensor:
    return tl.load(pointer, mask=mask, other=0).to(tl.float32)


@_jit
def _flag(pointer: tl.tensor, mask: tl.tensor) -> tl.tensor:
    return tl.load(pointer, mask=mask, other=1) != 0


@_jit
def _tanh(x: tl.tensor) -> tl.tensor:
    """Accurate to a few units in the last place; a series replaces 1 - 2 / (e^2x + 1) near 0, where digits cancel."""
    square = x * x
    series = x * (1 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * 62 / 2835))))
    size = 1 - 2 / (tl.exp(2 * tl.abs(x)) + 1)
    return tl.where(tl.abs(x) < 0.25, series, tl.where(x < 0, -size, size))


@_jit
def _clip(x: tl.tensor, limit: float) -> tl.tensor:
    """Like `torch.clamp`: NaN stays NaN."""
    return tl.where(x > limit, limit, tl.where(x < -limit, -limit, x))


@_jit
def cell_step(
    gates: tl.tensor,
    products: tl.tensor,
    is_word: tl.tensor,
    keeps: tl.tensor,
    cells: tl.tensor,
    memory: tl.tensor,
    step: int,
    length: int,
    batch: int,
    count: int,
    limit: float,
    WIDTH: tl.constexpr,
    KEEPS_GATES: tl.constexpr,
    IS_PROJECTED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """From z_t to the cell and the memory: reads gates, products and cells at t; writes cells at t + 1 and memory.

    With `KEEPS_GATES`, i, f, g, o replace the gates.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    row, state_row, column = _rows(place, step, length, batch, WIDTH)
    keep = _flag(keeps + row, mask)
    gate, product = gates + row * (4 * WIDTH) + column, products + place // WIDTH * (4 * WIDTH) + column
    i = tl.sigmoid(_float(gate, mask) + tl.where(keep, _float(product, mask), 0.0))
    f = tl.sigmoid(_float(gate + WIDTH, mask) + tl.where(keep, _float(product + WIDTH, mask), 0.0))
    g = _tanh(_float(gate + 2 * WIDTH, mask) + tl.where(keep, _float(product + 2 * WIDTH, mask), 0.0))
    o = tl.sigmoid(_float(gate + 3 * WIDTH, mask) + tl.where(keep, _float(product + 3 * WIDTH, mask), 0.0))
    before = tl.where(keep, _float(cells + state_row * WIDTH + column, mask), 0.0)
    cell = tl.where(_flag(is_word + row, mask), _clip(f * before + i * g, limit), before)
    tl.store(cells + (state_row + batch) * WIDTH + column, cell, mask=mask)
    if IS_PROJECTED:
        tl.store(memory + place, o * _tanh(cell), mask=mask)
    else:
        tl.store(memory + row * WIDTH + column, o * _tanh(cell), mask=mask)
    if KEEPS_GATES:
        tl.store(gate, i, mask=mask)
        tl.store(gate + WIDTH, f, mask=mask)
        tl.store(gate + 2 * WIDTH, g, mask=mask)
        tl.store(gate + 3 * WIDTH, o, mask=mask)


@_jit
def hidden_step(
    projected: tl.tensor,
    is_word: tl.tensor,
    keeps: tl.tensor,
    hidden: tl.tensor,
    step: int,
    length: int,
    batch: int,
    count: int,
    limit: float,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """From p_t to h_t: reads projected and hidden at t; writes hidden at t + 1."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    row, state_row, column = _rows(place, step, length, batch, SIZE)
    before = tl.where(_flag(keeps + row, mask), _float(hidden + state_row * SIZE + column, mask), 0.0)
    clipped = _clip(_float(projected + row * SIZE + column, mask), limit)
    after = tl.where(_flag(is_word + row, mask), clipped, before)
    tl.store(hidden + (state_row + batch) * SIZE + column, after, mask=mask)


@_jit
def hidden_gradient_step(
    products: tl.tensor,
    d_hidden: tl.tensor,
    d_outputs: tl.tensor,
    is_word: tl.tensor,
    keeps: tl.tensor,
    projected: tl.tensor,
    d_projected: tl.tensor,
    limit: float,
    step: int,
    length: int,
    batch: int,
    count: int,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """From the gradient that step t + 1 sends back to dh_t and dp_t (d_projected).

    products is W_h^T dz_{t+1}, or zero at the last step. d_hidden changes from dh_{t+1} to dh_t, both including e.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    row, _, column = _rows(place, step, length, batch, SIZE)
    # The last step has no next one: its flags are read as 1, so `products` are used as they are.
    has_next = mask & (step + 1 < length)
    came_back = tl.where(
        _flag(is_word + row + batch, has_next), _float(products + place, mask), tl.load(d_hidden + place, mask=mask)
    )
    came_back = tl.where(_flag(keeps + row + batch, has_next), came_back, 0.0)
    gradient = came_back + _float(d_outputs + row * SIZE + column, mask)
    tl.store(d_hidden + place, gradient, mask=mask)
    passes = _flag(is_word + row, mask) & (tl.abs(_float(projected + row * SIZE + column, mask)) <= limit)
    tl.store(d_projected + row * SIZE + column, tl.where(passes, gradient, 0.0), mask=mask)


@_jit
def cell_gradient_step(
    d_memory: tl.tensor,
    gates: tl.tensor,
    cells: tl.tensor,
    is_word: tl.tensor,
    keeps: tl.tensor,
    d_cell: tl.tensor,
    d_gates: tl.tensor,
    limit: float,
    step: int,
    length: int,
    batch: int,
    count: int,
    WIDTH: tl.constexpr,
    IS_PROJECTED: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """From dm_t to dz_t (d_gates) and dc_{t-1}: d_cell changes from dc_t to dc_{t-1}; gates are i, f, g, o."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    row, state_row, column = _rows(place, step, length, batch, WIDTH)
    word, keep = _flag(is_word + row, mask), _flag(keeps + row, mask)
    gate, d_gate = gates + row * (4 * WIDTH) + column, d_gates + row * (4 * WIDTH) + column
    i, f = _float(gate, mask), _float(gate + WIDTH, mask)
    g, o = _float(gate + 2 * WIDTH, mask), _float(gate + 3 * WIDTH, mask)
    before = tl.where(keep, _float(cells + state_row * WIDTH + column, mask), 0.0)
    tanh_cell = _tanh(_float(cells + (state_row + batch) * WIDTH + column, mask))
    if IS_PROJECTED:
        from_memory = _float(d_memory + place, mask)
    else:
        from_memory = _float(d_memory + row * WIDTH + column, mask)
    from_memory = tl.where(word, from_memory, 0.0)
    came_back = tl.load(d_cell + place, mask=mask)
    gradient = came_back + from_memory * o * (1 - tanh_cell * tanh_cell)
    gradient = tl.where(word & (tl.abs(f * before + i * g) <= limit), gradient, 0.0)
    tl.store(d_gate, gradient * g * i * (1 - i), mask=mask)
    tl.store(d_gate + WIDTH, gradient * before * f * (1 - f), mask=mask)
    tl.store(d_gate + 2 * WIDTH, gradient * i * (1 - g * g), mask=mask)
    tl.store(d_gate + 3 * WIDTH, from_memory * tanh_cell * o * (1 - o), mask=mask)
    tl.store(d_cell + place, tl.where(keep, tl.where(word, gradient * f, came_back), 0.0), mask=mask)
