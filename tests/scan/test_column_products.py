"""Products of large weights with few columns, in all their ways, against one plain product."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from elmo_hf.scan import column_products
from elmo_hf.scan.column_products import (
    columns_in,
    default_way,
    multiply,
    num_blocks,
    wants_rows,
    way_of_products,
)

M, N = 12, 5
# Bytes of a block of 3 rows in float64, the number of columns below which they lie as rows, the processor, and the way.
WAYS = {
    "one block": (1 << 19, 8, False, "blocks"),
    "blocks of columns": (3 * N * 8, 2, False, "blocks"),
    "blocks of rows": (3 * N * 8, 99, False, "blocks"),
    "weight first": (3 * N * 8, 99, True, "amd"),
    "plain": (3 * N * 8, 99, False, "plain"),
    "plain, rows": (3 * N * 8, 99, True, "plain"),
}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    *values, way = request.param
    for name, value in zip(("BLOCK_BYTES", "FEW_COLUMNS", "IS_AMD"), values, strict=True):
        monkeypatch.setattr(column_products, name, value)
    with way_of_products(way):
        yield


def drawn(directions: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.randn(directions, M, N, dtype=torch.float64), torch.randn(directions, N, columns, dtype=torch.float64)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("columns", [1, 2, 3, 7])
@pytest.mark.parametrize("as_rows", [False, True])
def test_products_are_the_plain_ones_written_or_added(directions: int, columns: int, as_rows: bool) -> None:
    weight, vectors = drawn(directions, columns)
    memory = torch.full((directions * M * columns + 1,), torch.nan, dtype=torch.float64)
    out = columns_in(memory, directions, M, columns, as_rows)
    multiply(weight, vectors, out)
    torch.testing.assert_close(out, weight @ vectors, rtol=0, atol=1e-13)
    multiply(weight, vectors, out, adds=True)
    torch.testing.assert_close(out, 2 * weight @ vectors, rtol=0, atol=1e-13)
    assert memory[-1].isnan()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("columns", [1, 3, 7])
def test_what_is_written_over_is_not_read(directions: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Some devices multiply it by zero, and not a number stays one.
    for name in ("addmm", "baddbmm"):
        monkeypatch.setattr(torch, name, None)
    weight, vectors = drawn(directions, columns)
    memory = torch.full((directions * M * columns,), torch.nan, dtype=torch.float64)
    out = columns_in(memory, directions, M, columns, wants_rows(weight, columns))
    multiply(weight, vectors, out)
    torch.testing.assert_close(out, weight @ vectors, rtol=0, atol=1e-13)


def test_weights_are_cut_into_blocks_of_the_caches_size_and_of_as_many_rows_as_columns() -> None:
    gates, projection = torch.ones(1, 16384, 512), torch.ones(1, 512, 4096)
    for way, of_one in (("blocks", 1), ("amd", 64)):
        with way_of_products(way):
            assert [num_blocks(gates, columns) for columns in (1, 2, 256, 257)] == [of_one, 64, 64, 32]
            assert [num_blocks(projection, columns) for columns in (2, 32, 64, 500)] == [16, 16, 8, 1]
            assert num_blocks(torch.ones(1, 28, 1 << 20), 2) == 4
            assert num_blocks(torch.ones(2, 16384, 512), 2) == 1


def test_columns_take_the_beginning_of_the_memory() -> None:
    memory = torch.arange(100)
    assert columns_in(memory, 2, 3, 4, as_rows=False).tolist() == memory[:24].view(2, 3, 4).tolist()
    assert columns_in(memory, 2, 3, 4, as_rows=True).tolist() == memory[:24].view(2, 4, 3).transpose(1, 2).tolist()


def test_few_columns_lie_as_rows_and_plain_products_have_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_products, "FEW_COLUMNS", 8)
    assert [wants_rows(torch.ones(1, M, N), columns) for columns in (1, 7, 8)] == [True, True, False]
    with way_of_products("plain"):
        assert num_blocks(torch.ones(1, 16384, 512), 2) == 1


@pytest.mark.parametrize("other", ["blocks", "amd"])
def test_the_way_is_that_of_the_processor(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_products, "IS_AMD", other == "amd")
    for knows_bfloat16, way in ((True, "plain"), (False, other)):
        monkeypatch.setattr(column_products, "multiplies_bfloat16", lambda knows=knows_bfloat16: knows)
        assert [default_way(dtype) for dtype in (torch.bfloat16, torch.float32)] == [way, other]


def test_an_unknown_way_is_refused() -> None:
    with (
        pytest.raises(ValueError, match=r"`way` must be one of blocks, amd, plain, packed, found 'fast'."),
        way_of_products("fast"),
    ):
        pass
