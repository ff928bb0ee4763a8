"""Parquet: one column of texts, or of lists of words."""

import io
from collections.abc import Iterator
from typing import Any

from .opened_files import OpenedFile
from .values import KEYS, Sentence, Sentences

MAGIC = b"PAR1"


def parquet_sentences(file: OpenedFile, column: str | None) -> tuple[str, Iterator[Sentence]]:
    """The column of a Parquet file that is read, of all, and the sentences in it; "" for nulls.

    Args:
        file: the file.
        column: the column; None: the first of those named as in `KEYS`.

    Raises:
        ValueError: if the file is damaged, has no such column, or has other values in it.
    """
    import pyarrow
    from pyarrow import parquet

    source: Any = file.original
    if source is None:
        source = io.BytesIO(file.content.read())
    else:
        source.seek(0)
    try:
        table = parquet.ParquetFile(source)
        key = _column_of(table.schema_arrow, column)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _fault(file, error) from error
    return f"{key}, of {', '.join(table.schema_arrow.names)}", _values(file, table, key)


def _values(file: OpenedFile, table: Any, key: str) -> Iterator[Sentence]:
    import pyarrow

    sentences = Sentences(file.path, (key,))
    row = 0
    try:
        for batch in table.iter_batches(batch_size=1024, columns=[key]):
            for value in batch.column(key).to_pylist():
                row += 1
                yield sentences({key: value})
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _fault(file, error, row) from error


def _fault(file: OpenedFile, error: Exception, row: int = 0) -> ValueError:
    place = f", row {row}" if row else ""
    return ValueError(f"{file.path}{place}: {' '.join(str(error).split())}")


def _column_of(schema: Any, column: str | None) -> str:
    """The name of the column to read.

    Raises:
        ValueError: if there is none, or it holds neither texts nor lists of texts.
    """
    keys = KEYS if column is None else (column,)
    key = next((key for key in keys if key in schema.names), None)
    shown = ", ".join(f"{field.name} ({field.type})" for field in schema)[:300]
    if key is None:
        raise ValueError(
            f"Parquet needs a column {' or '.join(map(repr, keys))}, found {shown}; give its name (`column='NAME'`)."
        )
    if not _is_text(schema.field(key).type):
        raise ValueError(
            f"the column {key!r} holds neither texts nor lists of words. Say which column holds the sentences "
            f"(`column='NAME'`), of {shown}."
        )
    return key


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind) or types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)
