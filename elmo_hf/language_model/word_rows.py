"""Surprisal of a table with one word a row, the form of most corpora of reading times.

A cell holds what stands between blanks in the text: a *region*, such as `river.` or `“left`. The rows of one text
follow each other and agree in some columns, the *keys*, such as item, or participant and item. Their cells, joined with
blanks, are the text, so quotes and marks are split as in any text, also where they belong to several rows. A row has
the sum of the surprisals of its words (`surprisal_table.py`).

    keys                          a sentence is              a document is
    item                          the rows of an item        the same
    item, sentence                the rows of a sentence     the rows of an item
    participant, item, sentence   the rows of a sentence     the rows of a participant and item

The result has the rows and columns of the input, in order, and beside them

    num_words                     how many words the model reads in the row
    is_unknown                    whether one of them is scored as `<UNK>`
    forward_bits, backward_bits   the sums, or forward_nats, backward_nats; empty if a word was not scored

A text whose rows lie in several places of the table is refused, because there may be a text for each participant. So
is one that has all its words several times.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..model.tokenization_elmo import ElmoTokenizer, make_word_splitter, to_words
from ..text.first_look import raw_texts
from ..text.formats import Format, format_of, refuse_foreign
from ..text.notes import note
from ..text.opened_files import opened
from ..text.sentences import storable
from ..text.tables import table_rows
from ..text.text_files import TextFile
from .scoring import Scores
from .surprisal_table import NATS_PER, PlacedSentence, surprisal_table

# A text may repeat fewer words than these; a column that counts rows goes up by one in six of ten rows.
FEWEST_REPEATED, LEAST_STEPS = 3, 0.6
COUNT = re.compile(r"\s*[0-9]{1,9}\s*")


@dataclass(frozen=True)
class WordRows:
    """A table with one word a row, and its sentences."""

    columns: dict[str, list[str]]  # all columns, of n cells each
    sentences: list[PlacedSentence]  # `regions` count rows of a sentence, `document_region` is the number of its first
    texts: list[str]  # the beginnings of the first texts, joined


@dataclass(frozen=True)
class Rows:
    """Rows as they are read.

    Attributes:
        place: the table, for messages.
        columns: all columns, of n cells each.
        lines: `(n,)` the number of each row's line.
        keys: the names of the key columns.
    """

    place: str
    columns: dict[str, list[str]]
    lines: list[int]
    keys: Sequence[str]

    def key_of(self, row: int) -> tuple[str, ...]:
        """The cells of the key columns, without blanks at their ends."""
        return tuple(self.columns[name][row].strip() for name in self.keys)

    def shown(self, row: int) -> str:
        """The cells of the key columns for messages, such as `item 3`."""
        return ", ".join(f"{name} {self.columns[name][row].strip()}" for name in self.keys)

    def fault(self, row: int, reason: str) -> ValueError:
        """An error with the row's place."""
        return ValueError(f"{self.place}, line {self.lines[row]}: {reason}")


@dataclass(frozen=True)
class WordTable:
    """A table with one word a row that was read and checked, and whose texts are not yet split into words.

    Attributes:
        rows: the rows.
        column: the column with the words.
        texts: the rows of each text, in order.
    """

    rows: Rows
    column: str
    texts: list[range]

    def split(self, word_splitter: str) -> WordRows:
        """Splits the joined cells of each text into words; `word_splitter` is `"whitespace"` or `"ptb"`."""
        cells = self.rows.columns[self.column]
        sentences: list[PlacedSentence] = []
        document = 0
        document_sentence = 0
        last_document: tuple[str, ...] = ()
        for line, text in enumerate(self.texts):
            key = self.rows.key_of(text[0])
            this_document = key[:-1] or key
            if line > 0 and this_document != last_document:
                document += 1
                document_sentence = 0
            last_document = this_document
            words, regions = _split([cells[row] for row in text], word_splitter)
            if words:
                sentences.append(PlacedSentence(line, words, regions, document, document_sentence, text[0]))
                document_sentence += 1
        joined = (" ".join(cells[text.start : text.stop]) for text in self.texts)
        return WordRows(self.rows.columns, sentences, raw_texts(joined))


def read_word_table(
    path: Path, column: str, keys: Sequence[str], encoding: str = "utf-8", input_format: Format | None = None
) -> WordTable:
    """Reads a table with one word a row; arguments and errors are those of `read_word_rows` and `read_sentences`."""
    with opened(path) as file:
        refuse_foreign(file)
        text = TextFile(file, encoding)
        if (input_format or format_of(text, (column,))) != "table":
            raise ValueError(f"{path} is no table of text with a column {column!r}; write it as .csv or .tsv.")
        return read_word_rows(table_rows(text, (column,), are_distinct=True), str(path), column, keys)


def read_word_rows(
    rows: Iterable[tuple[int, dict[str, str]]], place: str, column: str, keys: Sequence[str]
) -> WordTable:
    """Reads the rows of a table, and tells its texts apart.

    Args:
        rows: the number of the line and the cells of each row.
        place: the table, for messages.
        column: the column with the words.
        keys: the columns whose cells are the same in all rows of a text; the last one tells sentences apart.

    Raises:
        ValueError: if there are no rows or no such columns, a cell of one of them is empty, the rows of a text lie in
            several places, or all words of a text come several times, as if rows of participants were mixed.
    """
    table = _collect(rows, place, column, keys)
    texts = list(_texts(table))
    for text in texts:
        _refuse_repeated(table, text, column)
    _note_counters(table, texts, column)
    return WordTable(table, column, texts)


def word_rows_table(
    rows: WordRows, scores: Scores, tokenizer: ElmoTokenizer, unit: str = "bits", skips_unknown: bool = False
) -> pa.Table:
    """The rows with their surprisals.

    Args:
        rows: the rows that were read.
        scores: the scores of their sentences.
        tokenizer: as in `surprisal_table`.
        unit: as in `surprisal_table`.
        skips_unknown: whether rows with unknown words have no surprisal.
    """
    regions = surprisal_table(rows.sentences, scores, tokenizer, unit, skips_unknown, by_region=True)
    num_rows = len(next(iter(rows.columns.values())))
    places = regions["document_region"].to_numpy()  # numbers of rows, see `WordRows`
    columns = {name: pa.array(map(storable, cells), pa.string()) for name, cells in rows.columns.items()}
    num_words = np.zeros(num_rows, dtype=np.int64)
    num_words[places] = regions["num_words"].to_numpy()
    is_unknown = np.zeros(num_rows, dtype=bool)
    is_unknown[places] = regions["is_unknown"].to_numpy()
    columns["num_words"] = pa.array(num_words)
    columns["is_unknown"] = pa.array(is_unknown)
    for name in (f"forward_{unit}", f"backward_{unit}"):
        values = np.full(num_rows, np.nan, dtype=np.float32)
        values[places] = regions[name].to_numpy()
        columns[name] = pa.array(values, from_pandas=True)
    return pa.table(columns)


def added_columns(unit: str) -> tuple[str, ...]:
    """The names of the columns that `word_rows_table` adds."""
    return ("num_words", "is_unknown", f"forward_{unit}", f"backward_{unit}")


def _collect(rows: Iterable[tuple[int, dict[str, str]]], place: str, column: str, keys: Sequence[str]) -> Rows:
    columns: dict[str, list[str]] = {}
    table = Rows(place, columns, [], keys)
    for line, cells in rows:
        if not columns:
            columns |= {name: [] for name in cells}
            _check_names(table, column)
        table.lines.append(line)
        for name, cell in cells.items():
            columns[name].append(cell)
        for name in (column, *keys):
            if not cells[name].strip():
                raise table.fault(
                    len(table.lines) - 1,
                    f"the cell of column {name!r} is empty. Each row needs a word and its text; fill it, or leave out "
                    "the row.",
                )
    if not table.lines:
        raise ValueError(f"{place} has no rows.")
    return table


def _check_names(table: Rows, column: str) -> None:
    shown = ", ".join(table.columns)[:200]
    for name in (column, *table.keys):
        if name not in table.columns:
            raise ValueError(f"{table.place} has no column {name!r}; its columns are {shown}.")
    if column in table.keys or len({*table.keys}) < len(table.keys):
        raise ValueError(
            f"{table.place}: the columns that tell texts apart are {', '.join(map(repr, table.keys))}, and {column!r} "
            "holds the words; they must be different columns."
        )
    for unit in NATS_PER:
        for name in added_columns(unit):
            if name in table.columns:
                raise ValueError(f"{table.place} has a column {name!r} already, which is to be added; rename it.")


def _texts(table: Rows) -> Iterator[range]:
    """The rows of each text, in order; a text must lie in one place."""
    first_rows: dict[tuple[str, ...], int] = {}
    for key, group in groupby(range(len(table.lines)), table.key_of):
        rows = list(group)
        if key in first_rows:
            first = first_rows[key]
            raise table.fault(
                rows[0],
                f"{table.shown(first)} began in line {table.lines[first]} and goes on here, after other rows. If each "
                "participant or item has such rows, name the column that tells them apart as well; otherwise put the "
                "rows of a text together, in the order of its words.",
            )
        first_rows[key] = rows[0]
        yield range(rows[0], rows[-1] + 1)


def _refuse_repeated(table: Rows, text: range, column: str) -> None:
    """Refuses a text all of whose words come several times, one after the other, or over again."""
    words = table.columns[column][text.start : text.stop]
    for length in range(FEWEST_REPEATED, len(words) // 2 + 1):
        if len(words) % length or len({*words}) < FEWEST_REPEATED:
            continue
        count = len(words) // length
        comes_over_again = words[length:] == words[:-length]
        comes_word_by_word = all(words[row] == words[row - row % count] for row in range(len(words)))
        if comes_over_again or comes_word_by_word:
            raise table.fault(
                text.start,
                f"{table.shown(text.start)} has the same {length} words {count} times, as if every participant had "
                "rows of their own; name the column of participants as well, or leave one row for each word.",
            )


def _note_counters(table: Rows, texts: Sequence[range], column: str) -> None:
    """Notes the first column that counts the rows of a text and begins again within it."""
    for name, cells in table.columns.items():
        if name == column or name in table.keys or not all(map(COUNT.fullmatch, cells)):
            continue
        steps = np.diff([int(cell) for cell in cells])
        for text in texts:
            within = steps[text.start : text.stop - 1]
            falls = np.flatnonzero(within < 0)
            if len(falls) and np.mean(within == 1) >= LEAST_STEPS:
                row = text.start + int(falls[0]) + 1
                note(
                    f"{table.place}, line {table.lines[row]}: {name!r} counts up within {table.shown(row)}, and begins "
                    "again here. If another sentence or participant begins here, name the column that shows it as well."
                )
                return


def _split(cells: Sequence[str], word_splitter: str) -> tuple[list[str], list[int]]:
    """The words of cells, which are split as one text, and for each word the number of its cell."""
    if word_splitter == "whitespace":
        pairs = [(word, number) for number, cell in enumerate(cells) for word in cell.split()]
        return [word for word, _ in pairs], [number for _, number in pairs]
    stripped = [cell.strip() for cell in cells]
    starts = [0]
    for cell in stripped[:-1]:
        starts.append(starts[-1] + len(cell) + 1)
    encoded = to_words(" ".join(stripped), False, make_word_splitter(word_splitter).pre_tokenize_str)
    return encoded.words, [bisect_right(starts, start) - 1 for start, _ in encoded.offsets]
