"""Writes tables that Python's csv, pandas, R and spreadsheets read alike: `*.csv` with commas, `*.tsv` with tabs.

    texts              in quotes, always; a quote within them is doubled. So a comma, a line feed, a carriage return and
                       blanks at the ends are part of the text, and an empty text differs from a missing one
    true, false        TRUE and FALSE, the only spelling that R reads as logical values
    numbers            the fewest digits that give the number again; Inf and -Inf
    missing, NaN       an empty cell without quotes

The files are UTF-8 without a mark at the beginning, and lines end with a line feed. By default R and pandas take a
quoted NA for a missing value; docs/linguists.md has their options. R cannot read two characters whatever the file is
like: it reads a carriage return as a line feed, and ends a text at U+0000, with a warning.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..text.tables import SEPARATORS
from .whole_files import new_file

# Rows that are in memory as text at a time.
ROWS = 10_000


def save_table(path: Path, table: pa.Table) -> None:
    """Writes a table as the suffix says, `*.parquet`, `*.csv` or `*.tsv`.

    The file exists only once it is complete. Raises OSError as in `new_file`, and if the file exists.
    """
    if path.suffix == ".parquet":
        with new_file(path, replaces=False) as partial:
            pq.write_table(table, partial)
    else:
        write_text_table(path, table)


def write_text_table(path: Path, table: pa.Table) -> None:
    """Writes a table as a new file, which exists only once it is complete.

    Args:
        path: `*.csv` or `*.tsv`.
        table: columns of strings, booleans, integers and floats; null and NaN are missing. Names of columns are in
            quotes only if they hold a separator, a quote or the end of a line.

    Raises:
        OSError: as in `new_file`, and if the file exists.
    """
    separator = SEPARATORS[path.suffix]
    with new_file(path, replaces=False) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        headings = [_heading(name, separator) for name in table.column_names]
        file.write(separator.join(headings) + "\n")
        for rows in table.to_batches(max_chunksize=ROWS):
            columns = [_cells(column) for column in rows.columns]
            lines = pc.binary_join_element_wise(*columns, separator)
            file.writelines(f"{line}\n" for line in lines.to_pylist())


def _heading(name: str, separator: str) -> str:
    if any(mark in name for mark in (separator, '"', "\n", "\r")):
        doubled = name.replace('"', '""')
        return f'"{doubled}"'
    return name


def _cells(column: pa.Array) -> pa.Array:
    """The text of each cell of a column."""
    if pa.types.is_string(column.type):
        doubled = pc.replace_substring(column, '"', '""')
        cells = pc.binary_join_element_wise('"', doubled, '"', "")
    elif pa.types.is_boolean(column.type):
        cells = pc.if_else(column, "TRUE", "FALSE")
    elif pa.types.is_floating(column.type):
        numbers = pc.if_else(pc.is_nan(column), None, column)
        cells = pc.replace_substring(numbers.cast(pa.string()), "inf", "Inf")
    else:
        cells = column.cast(pa.string())
    return pc.fill_null(cells, "")
