"""The Triton kernels of a biLM layer: all steps of a pass in one launch, forward or backward.

The equations are those of the packed scan (`model/scan_elmo.py`), and so is the order of the words. A GPU
would wait for Python if each operation of a step were a launch. So one program runs on each multiprocessor until the
pass ends. In each part of a step the programs share out the tiles of the result, and a barrier ends the part:

    forward     z_t = W_x x_t + b + W_h h_{t-1}, c_t, m_t | sums of W_p m_t, in SPLITS parts of m | p_t, h_t
    backward    dm_t = W_p^T dp_t, dz_t, dc_{t-1}, m_t    | sums of W_h^T dz_t, in SPLITS parts   | dh_{t-1}, dp_{t-1}

m_t is the memory. The parts of a sum are added in a fixed order, so results do not depend on which program is faster.
Products have the dtype of the tensors, or PRECISION if that is float32, and are summed in float32; so is everything
between two products. A reset is applied after a product: (W_h h) * keeps instead of W_h (h * keeps).

Tensors are contiguous. Those of all words are (D, N, .): row `start` + r is text r at a step, and `starts` `(T + 1,)`
has the first row of each step, then N. States are (D, B, .), and `partial` `(SPLITS, D, B, P)` has the parts of a sum.
Without a projection P = H.

Glossary: D directions, B batch, T steps, N words, P projection (SIZE), H cell (WIDTH); a tile has ROWS texts, and UNITS
cells or COLUMNS of P; DEPTH summands are read at once. Without Triton this file still imports, but its functions cannot
run.
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
    """Compiles a kernel once for all lengths and batch sizes."""
    numbers = ("first", "last", "base", "words", "block", "batch", "steps")
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=numbers)


@_jit
def _float(pointer: tl.tensor, mask: tl.tensor) -> tl.tensor:
    return tl.load(pointer, mask=mask, other=0).to(tl.float32)


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
def _wait_for_all(arrived: tl.tensor, barriers: tl.tensor) -> tl.tensor:
    """Waits until every program has come to this barrier; returns the count of barriers so far."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="acq_rel")
    target = (barriers + 1) * tl.num_programs(0)
    while tl.atomic_add(arrived, 0, sem="acq_rel") < target:
        pass
    tl.debug_barrier()
    return barriers + 1


@_jit
def _sum_in_parts(
    vectors: tl.tensor,
    weight: tl.tensor,
    partial: tl.tensor,
    rows: tl.tensor,
    row_stride: tl.tensor,
    batch: int,
    input_stride: tl.constexpr,
    output_stride: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    LENGTH: tl.constexpr,
    SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    TYPE: tl.constexpr,
) -> None:
    """Fills partial with products of vectors `(D, row_stride, LENGTH)` and a weight, LENGTH by SIZE in each direction.

    The weight's strides are those of one summand and of one output.
    """
    column_tiles: tl.constexpr = (SIZE + COLUMNS - 1) // COLUMNS
    part: tl.constexpr = (LENGTH + SPLITS * DEPTH - 1) // (SPLITS * DEPTH) * DEPTH
    tiles = DIRECTIONS * column_tiles * SPLITS * ((rows + ROWS - 1) // ROWS)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        column = tile % column_tiles * COLUMNS + tl.arange(0, COLUMNS)
        split = tile // column_tiles % SPLITS
        direction = tile // (column_tiles * SPLITS) % DIRECTIONS
        row = tile // (column_tiles * SPLITS * DIRECTIONS) * ROWS + tl.arange(0, ROWS)
        source = vectors + (direction * row_stride + row).to(tl.int64)[:, None] * LENGTH
        own_weight = weight + direction * LENGTH * SIZE + column[None, :] * output_stride
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for begin in range(0, part, DEPTH):
            place = split * part + begin + tl.arange(0, DEPTH)
            exists = place < LENGTH
            given = tl.load(source + place[None, :], mask=(row < rows)[:, None] & exists[None, :], other=0)
            factor = tl.load(
                own_weight + place[:, None] * input_stride, mask=exists[:, None] & (column < SIZE)[None, :], other=0
            )
            total = tl.dot(given.to(TYPE), factor.to(TYPE), total, input_precision=PRECISION)
        target = partial + ((split * DIRECTIONS + direction) * batch + row)[:, None] * SIZE + column[None, :]
        tl.store(target, total, mask=(row < rows)[:, None] & (column < SIZE)[None, :])


@_jit
def forward_steps(
    gate_inputs: tl.tensor,
    keeps: tl.tensor,
    starts: tl.tensor,
    recurrent: tl.tensor,
    projection: tl.tensor,
    hidden: tl.tensor,
    cell: tl.tensor,
    memory: tl.tensor,
    partial: tl.tensor,
    outputs: tl.tensor,
    gates: tl.tensor,
    cells: tl.tensor,
    projected: tl.tensor,
    arrived: tl.tensor,
    first: int,
    last: int,
    base: int,
    block: int,
    words: int,
    batch: int,
    cell_limit: float,
    hidden_limit: float,
    DIRECTIONS: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    HAS_KEEPS: tl.constexpr,
    KEEPS_TRACE: tl.constexpr,
    IS_PROJECTED: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    TYPE: tl.constexpr,
) -> None:
    """Steps `first` to `last` - 1. Reads gate_inputs `(D, block, 4H)`, W_x x + b, whose first row is word `base`.

    Changes the states hidden and cell; writes outputs, and with `KEEPS_TRACE` gates, cells and projected.
    """
    unit_tiles: tl.constexpr = (WIDTH + UNITS - 1) // UNITS
    barriers = 0
    for step in range(first, last):
        start = tl.load(starts + step)
        rows = tl.load(starts + step + 1) - start
        for tile in range(tl.program_id(0), DIRECTIONS * unit_tiles * ((rows + ROWS - 1) // ROWS), tl.num_programs(0)):
            unit = tile % unit_tiles * UNITS + tl.arange(0, UNITS)
            direction = tile // unit_tiles % DIRECTIONS
            row = tile // (unit_tiles * DIRECTIONS) * ROWS + tl.arange(0, ROWS)
            state_row = direction * batch + row
            weight = recurrent + direction * (4 * WIDTH * SIZE) + unit[None, :] * SIZE
            z_i = tl.zeros((ROWS, UNITS), tl.float32)
            z_f = tl.zeros((ROWS, UNITS), tl.float32)
            z_g = tl.zeros((ROWS, UNITS), tl.float32)
            z_o = tl.zeros((ROWS, UNITS), tl.float32)
            for begin in range(0, SIZE, DEPTH):
                place = begin + tl.arange(0, DEPTH)
                mask = (place < SIZE)[:, None] & (unit < WIDTH)[None, :]
                before = tl.load(
                    hidden + state_row[:, None] * SIZE + place[None, :],
                    mask=(row < rows)[:, None] & (place < SIZE)[None, :],
                    other=0,
                ).to(TYPE)
                factor = weight + place[:, None]
                of_i = tl.load(factor, mask, 0).to(TYPE)
                z_i = tl.dot(before, of_i, z_i, input_precision=PRECISION)
                of_f = tl.load(factor + WIDTH * SIZE, mask, 0).to(TYPE)
                z_f = tl.dot(before, of_f, z_f, input_precision=PRECISION)
                of_g = tl.load(factor + 2 * WIDTH * SIZE, mask, 0).to(TYPE)
                z_g = tl.dot(before, of_g, z_g, input_precision=PRECISION)
                of_o = tl.load(factor + 3 * WIDTH * SIZE, mask, 0).to(TYPE)
                z_o = tl.dot(before, of_o, z_o, input_precision=PRECISION)
            mask = (row < rows)[:, None] & (unit < WIDTH)[None, :]
            word = (direction * words + start + row).to(tl.int64)[:, None]
            state = cell + state_row[:, None] * WIDTH + unit[None, :]
            cell_before = _float(state, mask)
            if HAS_KEEPS:
                keep = (tl.load(keeps + word, mask=(row < rows)[:, None], other=1) != 0) & mask
                z_i, z_f = tl.where(keep, z_i, 0.0), tl.where(keep, z_f, 0.0)
                z_g, z_o = tl.where(keep, z_g, 0.0), tl.where(keep, z_o, 0.0)
                cell_before = tl.where(keep, cell_before, 0.0)
            given_row = (direction * block + start - base + row).to(tl.int64)[:, None]
            given = gate_inputs + given_row * (4 * WIDTH) + unit[None, :]
            i = tl.sigmoid(z_i + _float(given, mask))
            f = tl.sigmoid(z_f + _float(given + WIDTH, mask))
            g = _tanh(z_g + _float(given + 2 * WIDTH, mask))
            o = tl.sigmoid(z_o + _float(given + 3 * WIDTH, mask))
            unclipped = f * cell_before + i * g
            clipped = _clip(unclipped, cell_limit)
            tl.store(state, clipped, mask=mask)
            tl.store(memory + state_row[:, None] * WIDTH + unit[None, :], o * _tanh(clipped), mask=mask)
            if KEEPS_TRACE:
                tl.store(cells + word * WIDTH + unit[None, :], unclipped, mask=mask)
                gate = gates + word * (4 * WIDTH) + unit[None, :]
                tl.store(gate, i, mask=mask)
                tl.store(gate + WIDTH, f, mask=mask)
                tl.store(gate + 2 * WIDTH, g, mask=mask)
                tl.store(gate + 3 * WIDTH, o, mask=mask)
        barriers = _wait_for_all(arrived, barriers)
        if IS_PROJECTED:
            _sum_in_parts(
                memory,
                projection,
                partial,
                rows,
                batch,
                batch,
                1,
                WIDTH,
                DIRECTIONS,
                WIDTH,
                SIZE,
                ROWS,
                COLUMNS,
                DEPTH,
                SPLITS,
                PRECISION,
                TYPE,
            )
            barriers = _wait_for_all(arrived, barriers)
        count = DIRECTIONS * rows * SIZE
        for begin in range(tl.program_id(0) * ROWS * 8, count, tl.num_programs(0) * ROWS * 8):
            place = begin + tl.arange(0, ROWS * 8)
            mask = place < count
            direction = place // SIZE // rows
            row, column = place // SIZE % rows, place % SIZE
            state_place = (direction * batch + row) * SIZE + column
            if IS_PROJECTED:
                total = tl.zeros((ROWS * 8,), tl.float32)
                for split in range(SPLITS):
                    total += _float(partial + split * (DIRECTIONS * batch * SIZE) + state_place, mask)
                total = total.to(projected.dtype.element_ty)
            else:
                total = tl.load(memory + state_place, mask=mask)
            word_place = (direction * words + start + row).to(tl.int64) * SIZE + column
            if KEEPS_TRACE:
                tl.store(projected + word_place, total, mask=mask)
            after = _clip(total.to(tl.float32), hidden_limit)
            tl.store(outputs + word_place, after, mask=mask)
            tl.store(hidden + state_place, after, mask=mask)
        barriers = _wait_for_all(arrived, barriers)


@_jit
def backward_steps(
    gates: tl.tensor,
    cells: tl.tensor,
    projected: tl.tensor,
    previous_cells: tl.tensor,
    keeps: tl.tensor,
    starts: tl.tensor,
    recurrent: tl.tensor,
    projection: tl.tensor,
    d_outputs: tl.tensor,
    d_hidden: tl.tensor,
    d_cell: tl.tensor,
    d_gates: tl.tensor,
    memories: tl.tensor,
    partial: tl.tensor,
    arrived: tl.tensor,
    steps: int,
    words: int,
    batch: int,
    cell_limit: float,
    hidden_limit: float,
    DIRECTIONS: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    HAS_KEEPS: tl.constexpr,
    IS_PROJECTED: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    TYPE: tl.constexpr,
) -> None:
    """All steps, the last one first; d_outputs has e_t, but dp_t already at the last step, and becomes dp_t.

    Writes d_gates (dz_t) and memories (m_t); d_hidden and d_cell change from the gradients of the last states to those
    of the first states.
    """
    unit_tiles: tl.constexpr = (WIDTH + UNITS - 1) // UNITS
    barriers = 0
    for index in range(steps):
        step = steps - 1 - index
        start = tl.load(starts + step)
        rows = tl.load(starts + step + 1) - start
        for tile in range(tl.program_id(0), DIRECTIONS * unit_tiles * ((rows + ROWS - 1) // ROWS), tl.num_programs(0)):
            unit = tile % unit_tiles * UNITS + tl.arange(0, UNITS)
            direction = tile // unit_tiles % DIRECTIONS
            row = tile // (unit_tiles * DIRECTIONS) * ROWS + tl.arange(0, ROWS)
            word = (direction * words + start + row).to(tl.int64)[:, None]
            mask = (row < rows)[:, None] & (unit < WIDTH)[None, :]
            if IS_PROJECTED:
                d_memory = tl.zeros((ROWS, UNITS), tl.float32)
                weight = projection + direction * (WIDTH * SIZE) + unit[None, :]
                for begin in range(0, SIZE, DEPTH):
                    place = begin + tl.arange(0, DEPTH)
                    given = tl.load(
                        d_outputs + word * SIZE + place[None, :],
                        mask=(row < rows)[:, None] & (place < SIZE)[None, :],
                        other=0,
                    )
                    factor = tl.load(
                        weight + place[:, None] * WIDTH, mask=(place < SIZE)[:, None] & (unit < WIDTH)[None, :], other=0
                    )
                    d_memory = tl.dot(given.to(TYPE), factor.to(TYPE), d_memory, input_precision=PRECISION)
            else:
                d_memory = _float(d_outputs + word * SIZE + unit[None, :], mask)
            gate = gates + word * (4 * WIDTH) + unit[None, :]
            d_gate = d_gates + word * (4 * WIDTH) + unit[None, :]
            i, f = _float(gate, mask), _float(gate + WIDTH, mask)
            g, o = _float(gate + 2 * WIDTH, mask), _float(gate + 3 * WIDTH, mask)
            unclipped = _float(cells + word * WIDTH + unit[None, :], mask)
            tanh_cell = _tanh(_clip(unclipped, cell_limit))
            state = d_cell + (direction * batch + row)[:, None] * WIDTH + unit[None, :]
            d_here = _float(state, mask) + d_memory * o * (1 - tanh_cell * tanh_cell)
            d_here = tl.where(tl.abs(unclipped) <= cell_limit, d_here, 0.0)
            before = _float(previous_cells + word * WIDTH + unit[None, :], mask)
            tl.store(d_gate, d_here * g * i * (1 - i), mask=mask)
            tl.store(d_gate + WIDTH, d_here * before * f * (1 - f), mask=mask)
            tl.store(d_gate + 2 * WIDTH, d_here * i * (1 - g * g), mask=mask)
            tl.store(d_gate + 3 * WIDTH, d_memory * tanh_cell * o * (1 - o), mask=mask)
            tl.store(memories + word * WIDTH + unit[None, :], o * tanh_cell, mask=mask)
            d_before = d_here * f
            if HAS_KEEPS:
                keep = tl.load(keeps + word, mask=(row < rows)[:, None], other=1) != 0
                d_before = tl.where(keep & mask, d_before, 0.0)
            tl.store(state, d_before, mask=mask)
        barriers = _wait_for_all(arrived, barriers)
        _sum_in_parts(
            d_gates + start.to(tl.int64) * (4 * WIDTH),
            recurrent,
            partial,
            rows,
            words,
            batch,
            SIZE,
            1,
            DIRECTIONS,
            4 * WIDTH,
            SIZE,
            ROWS,
            COLUMNS,
            DEPTH,
            SPLITS,
            PRECISION,
            TYPE,
        )
        barriers = _wait_for_all(arrived, barriers)
        # The step before has more texts: those that end there bring the gradient of their last state.
        start_before = tl.load(starts + tl.maximum(step - 1, 0))
        rows_before = tl.where(step > 0, start - start_before, rows)
        count = DIRECTIONS * rows_before * SIZE
        for begin in range(tl.program_id(0) * ROWS * 8, count, tl.num_programs(0) * ROWS * 8):
            place = begin + tl.arange(0, ROWS * 8)
            mask = place < count
            direction = place // SIZE // rows_before
            row, column = place // SIZE % rows_before, place % SIZE
            state_place = (direction * batch + row) * SIZE + column
            came_back = mask & (row < rows)
            total = tl.zeros((ROWS * 8,), tl.float32)
            for split in range(SPLITS):
                total += _float(partial + split * (DIRECTIONS * batch * SIZE) + state_place, came_back)
            if HAS_KEEPS:
                keep = tl.load(keeps + (direction * words + start + row).to(tl.int64), mask=came_back, other=1) != 0
                total = tl.where(keep, total, 0.0)
            total = tl.where(came_back, total, _float(d_hidden + state_place, mask))
            tl.store(d_hidden + state_place, total, mask=mask)
            earlier = (direction * words + start_before + row).to(tl.int64) * SIZE + column
            is_inside = tl.abs(_float(projected + earlier, mask)) <= hidden_limit
            gradient = tl.where(is_inside, total + _float(d_outputs + earlier, mask), 0.0)
            tl.store(d_outputs + earlier, gradient, mask=mask & (step > 0))
        barriers = _wait_for_all(arrived, barriers)
