"""Tables of text: a first line that names the columns, then a row a line, or more lines where cells are quoted.

In a `.csv` a cell that begins with a quote ends with one, and quotes within are doubled (RFC 4180); it may hold
separators and line feeds. In a `.tsv` a quote is a letter, unless the quotes of the whole file are a writer's:

- a quoted cell that holds a tab or a line feed, where lines would have other numbers of cells without quotes; or
- in each column with quoted cells, all cells are quoted, or those whose own quotes are doubled and no other cell with a
  quote.

Cells are text as they are: `datasets` would read `007` as 7, `NA` as null, and shift long rows.
"""

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from .notes import note
from .opened_files import suffix_of
from .text_files import MAX_CHARACTERS, TOO_LONG, WORD_COST, TextFile
from .values import KEYS, NUMBER, Sentence, Sentences

# The usual separator of tables, by suffix.
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
# How many characters of a table with tabs are looked at from its first quoted cell on.
LOOKED_AT_CHARACTERS = 1 << 22
# How many rows are looked at to see whether a column holds numbers.
LOOKED_AT_ROWS = 100
# A quoted cell between tabs.
QUOTED = re.compile('"(?:[^"]|"")*"')
# The first line of a table that Excel is to split at a character.
LINE_OF_EXCEL = re.compile(r"sep=\S?", re.IGNORECASE)
# A list of numbers as text.
NUMBERS = re.compile(r"\s*\[[\s\d.,eE+-]*\d[\s\d.,eE+-]*\]\s*")

Row = dict[str, str]


def table_sentences(file: TextFile, column: str | None) -> Iterator[Sentence]:
    """The sentences in a column of a table, or in the first column of those named as in `KEYS`.

    Raises:
        ValueError: as `table_rows`; or if a column that is not named by the user holds numbers.
    """
    keys = KEYS if column is None else (column,)
    rows = table_rows(file, keys)
    first = list(islice(rows, LOOKED_AT_ROWS))
    if column is None and first:
        _refuse_numbers(file, [row for _, row in first])
    sentences = Sentences(file.path, keys)
    for number, row in chain(first, rows):
        try:
            sentence = sentences(row)
        except ValueError as error:
            raise file.fault(error, number) from error
        yield sentence


def shown_columns(file: TextFile, keys: Sequence[str]) -> str:
    """The columns of a table, and which of them is read."""
    header = next((line for line in file.first_lines(LOOKED_AT_ROWS) if line.strip()), "")
    names = max((_split(header, separator) for separator in NAMES), key=len)
    key = next((key for key in keys if key in names), "none")
    return f"{key}, of {', '.join(names)}"


def table_rows(file: TextFile, keys: Sequence[str], are_distinct: bool = False) -> Iterator[tuple[int, Row]]:
    """The number of the last line and the cells of each row.

    Args:
        file: the table.
        keys: names of columns, one of which the table must have; empty: the table may have any columns.
        are_distinct: whether two columns of one name are refused also if they are none of `keys`.

    Raises:
        ValueError: if a row has more or fewer cells than the first line, quotes do not fit, or no column is one of
            `keys`; the message names file and line.
    """
    limit = csv.field_size_limit(MAX_CHARACTERS)  # of the whole process
    try:
        separator = _separator(file, keys)
        records = _records_with_tabs(file) if separator == "\t" else _quoted_records(file, separator, file.lines())
        names: list[str] = []
        for number, cells in records:
            if not names:
                names = cells
                _refuse_line_of_excel(file, cells, separator, number)
                _check_names(file, names, keys, separator)
                if are_distinct:
                    _refuse_twice(file, names, names)
                continue
            if len(cells) != len(names):
                raise file.fault(f"expected {len(names)} columns, found {len(cells)}.", number)
            yield number, dict(zip(names, cells, strict=True))
    finally:
        csv.field_size_limit(limit)


def looks_like_table(lines: Sequence[str], keys: Collection[str]) -> bool:
    """Whether the first lines of a file are a table with a header: names with a key among them, and equal rows.

    Prose may begin with `text, more text`; names are all different, and none begins with a blank. Tabs between such
    names are those of a table, even if some rows are damaged.
    """
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2:
        return False
    for separator in NAMES:
        names = _split(filled[0], separator)
        if _are_names(names) and set(keys) & set(names):
            num_equal = sum(line.count(separator) == len(names) - 1 for line in filled)
            if num_equal == len(filled) or (separator == "\t" and 2 * num_equal > len(filled)):
                return True
            return _are_records([f"{line}\n" for line in lines], separator)
    return False


def _are_names(cells: Sequence[str]) -> bool:
    """Whether the cells of a first line may be names of columns: several, all different, none with a blank first."""
    if len(cells) < 2 or len(set(cells)) < len(cells):
        return False
    return all(cell == cell.lstrip() for cell in cells)


def looks_like_columns(lines: Sequence[str]) -> int:
    """How many columns lines have that all have as many tabs; 0 if they do not, or if only one has cells."""
    rows = [line.split("\t") for line in lines if line.strip()]
    if len(rows) < 2 or len({len(cells) for cells in rows}) > 1:
        return 0
    num_filled = 0
    for column in zip(*rows, strict=True):
        if any(cell.strip() for cell in column):
            num_filled += 1
    return len(rows[0]) if num_filled > 1 else 0


def _split(line: str, separator: str) -> list[str]:
    """The cells of a line; quotes are left out where they are around a cell."""
    try:
        cells = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []
    return cells


def _separator(file: TextFile, keys: Sequence[str]) -> str:
    """The character between cells: that of the suffix, or another one between the names of the first line."""
    usual = SEPARATORS.get(suffix_of(Path(file.name)), "")
    header = next((line for line in file.first_lines(LOOKED_AT_ROWS) if line.strip()), "")
    by_separator = {separator: _split(header, separator) for separator in NAMES}
    if keys:
        fitting = [separator for separator, names in by_separator.items() if {*keys} & {*names}]
    else:
        fitting = [separator for separator, names in by_separator.items() if len(names) > 1]
    if usual in fitting:
        return usual
    several = [separator for separator in fitting if len(by_separator[separator]) > 1]
    if several:
        if usual:
            note(f"{file.path} has {NAMES[several[0]]} between its columns, so its rows are split there.")
        return several[0]
    if usual:
        return usual
    return max(by_separator, key=lambda separator: len(by_separator[separator]))


def _check_names(file: TextFile, names: list[str], keys: Sequence[str], separator: str) -> None:
    if keys and not {*keys} & {*names}:
        found, seeming = _seeming_columns(names, separator)
        raise ValueError(
            f"{file.path}: the first line must name a column {' or '.join(map(repr, keys))}, found "
            f"{', '.join(found)[:80]}, separated by {seeming!r}; choose one (`column='NAME'`), or rename it."
        )
    _refuse_twice(file, names, keys)


def _refuse_line_of_excel(file: TextFile, cells: list[str], separator: str, number: int) -> None:
    """Refuses the line that names the separator for Excel, such as `sep=;`, in front of the names of the columns."""
    line = separator.join(cells).rstrip()
    if LINE_OF_EXCEL.fullmatch(line):
        raise file.fault(
            f"the line {line} is for Excel alone; delete it, so that the first line names the columns.", number
        )


def _seeming_columns(names: list[str], separator: str) -> tuple[list[str], str]:
    """The names of columns and their separator; and if there is a single name, its parts.

    A single name may be a whole line with another separator; it is the one that cuts it into most parts.
    """
    by_separator = {separator: names}
    if len(names) == 1:
        by_separator |= {other: _split(names[0], other) for other in NAMES if other != separator}
    seeming = max(by_separator, key=lambda each: len(by_separator[each]))
    return by_separator[seeming], seeming


def _refuse_twice(file: TextFile, names: list[str], keys: Sequence[str]) -> None:
    twice = [key for key in keys if names.count(key) > 1]
    if twice:
        raise file.fault(f"the first line names the column {twice[0]!r} twice; rename one.")


def _refuse_numbers(file: TextFile, rows: list[Row]) -> None:
    """Refuses a column with a name of `KEYS` that holds no texts."""
    key = next(key for key in KEYS if key in rows[0])
    cells = [row[key] for row in rows if row[key].strip()]
    for pattern, shown in ((NUMBER, "numbers"), (NUMBERS, "lists of numbers")):
        if cells and all(map(pattern.fullmatch, cells)):
            raise ValueError(
                f"{file.path}: the column {key!r} holds {shown}, such as {cells[0][:40]}. Say which column holds the "
                f"sentences (`column='NAME'`), of {', '.join(rows[0])[:200]}."
            )


def _counted(file: TextFile, lines: Iterator[str], separator: str, record: list[str], num_before: int) -> Iterator[str]:
    """Gives lines and keeps those of one record, which must not be too long."""
    number = num_before
    size = 0
    for line in lines:
        number += 1
        if not record:
            size = 0
        size += len(line) + WORD_COST * line.count(separator)
        if size > MAX_CHARACTERS:
            raise file.fault(TOO_LONG, number)
        record.append(line)
        yield line


def _quoted_records(
    file: TextFile, separator: str, lines: Iterator[str], num_before: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """The number of the last line and the cells of each record whose quotes are a writer's."""
    record: list[str] = []
    reader = csv.reader(_counted(file, lines, separator, record, num_before), delimiter=separator, strict=True)
    num_cells = 0
    try:
        for cells in reader:
            number = num_before + reader.line_num
            if cells:
                if num_cells == 0:
                    num_cells = len(cells)
                if len(record) > 1 and num_cells > 1 and _is_swallowed(record, cells, separator, num_cells):
                    raise file.fault(
                        f"a cell that begins with a quote in line {number - len(record) + 1} ends here and holds whole "
                        "rows. If that quote is a letter, double it, and put quotes around the cell.",
                        number,
                    )
                yield number, cells
            record.clear()
    except csv.Error as error:
        raise file.fault(_reason_of(error), num_before + reader.line_num) from error


def _reason_of(error: csv.Error) -> str:
    if "new-line character" in str(error):
        return "a carriage return is in a cell without quotes; end lines with line feeds."
    if "unexpected end" in str(error):
        return "unexpected end of data: a cell that begins with a quote does not end."
    return str(error)


def _is_swallowed(record: list[str], cells: list[str], separator: str, num_cells: int) -> bool:
    """Whether a cell of several lines may hold rows.

    With tabs it may if it holds one, as no text does. With other separators, which are marks of a text too, it may if
    each line of the record has as many cells as a row, and either no blank behind a separator, or a number in front.
    """
    if separator == "\t":
        return any("\n" in cell and "\t" in cell for cell in cells)
    rows = [line.rstrip("\r\n").split(separator) for line in record]
    if {len(row) for row in rows} != {num_cells}:
        return False
    if all(NUMBER.fullmatch(row[0]) for row in rows):
        return True
    behind_separators = [cell for row in rows for cell in row[1:]]
    return not any(cell.startswith(" ") for cell in behind_separators)


def _records_with_tabs(file: TextFile) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line; from the first cell that begins with a quote on, as its quotes say."""
    lines = file.lines()
    header: list[str] = []
    plain: set[int] = set()
    with_quotes: set[int] = set()
    number = 0
    for line in lines:
        cells = line.rstrip("\r\n").split("\t")
        if any(cell.startswith('"') for cell in cells):
            break
        number += 1
        _check_size(file, line, number)
        if not line.strip("\r\n"):
            continue
        if header:
            plain |= {place for place, cell in enumerate(cells) if cell}
            with_quotes |= {place for place, cell in enumerate(cells) if '"' in cell}
        else:
            header = cells
        yield number, cells

    else:
        return
    sample = [line]
    size = len(line)
    for line in lines:
        sample.append(line)
        size += len(line)
        if size > LOOKED_AT_CHARACTERS:
            break
    if _are_a_writers(sample, len(header), plain, with_quotes):
        yield from _quoted_records(file, "\t", chain(sample, lines), number)
        return
    for line in chain(sample, lines):
        number += 1
        _check_size(file, line, number)
        if line.strip("\r\n"):
            yield number, line.rstrip("\r\n").split("\t")


def _check_size(file: TextFile, line: str, number: int) -> None:
    if len(line) + WORD_COST * line.count("\t") > MAX_CHARACTERS:
        raise file.fault(TOO_LONG, number)


def _are_a_writers(sample: list[str], num_cells: int, plain: set[int], with_quotes: set[int]) -> bool:
    """Whether the quotes of lines are a writer's, and not letters, by the rule of the module's docstring.

    Args:
        sample: lines, the first of which has a cell that begins with a quote.
        num_cells: how many columns the lines before have; 0: the first line names them.
        plain: columns with filled cells before.
        with_quotes: columns with quotes in cells before.
    """
    rows = [line.rstrip("\r\n").split("\t") for line in sample if line.strip("\r\n")]
    body = rows
    if num_cells == 0:
        num_cells = len(rows[0])
        body = rows[1:]
    if {len(cells) for cells in rows} != {num_cells}:
        return _are_records(sample, "\t")
    if not all(map(_is_closed, chain.from_iterable(rows))):
        return False
    for place in range(num_cells):
        cells = [row[place] for row in body if row[place] not in ("", '""')]
        quoted = [cell for cell in cells if cell.startswith('"')]
        if len(quoted) == len(cells) and place not in plain:
            continue
        num_with_quotes = sum('"' in cell for cell in cells)
        are_needed = all('""' in cell[1:-1] for cell in quoted)
        if quoted and not (are_needed and num_with_quotes == len(quoted) and place not in with_quotes):
            return False
    return True


def _is_closed(cell: str) -> bool:
    """Whether a cell ends with a quote, and has others doubled, if it begins with one."""
    return not cell.startswith('"') or QUOTED.fullmatch(cell) is not None


def _are_records(sample: list[str], separator: str) -> bool:
    """Whether lines are records with equally many cells if their quotes are a writer's; the last may be cut off."""
    records: list[list[str]] = []
    try:
        for cells in csv.reader(sample, delimiter=separator, strict=True):
            records.append(cells)
    except csv.Error as error:
        if "unexpected end" not in str(error):
            return False
    counts = {len(cells) for cells in records if cells}
    return len(counts) == 1
