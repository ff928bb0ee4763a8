"""Words in columns, one a line, with a blank line after each sentence: CoNLL-U, CoNLL-X and CoNLL-2003.

conllu   10 columns with tabs: the number of a word, the word, ...; the words of multiword tokens are read, not the
         tokens; empty nodes (`2.1`) and comments (`# ...`) are left out
conll    columns with tabs or blanks. If the first counts the words of each sentence, as in CoNLL-X and CoNLL-2009,
         the word is in the second; if the third does, as in CoNLL-2012, in the fourth; else, as in CoNLL-2003, in
         the first. Lines `-DOCSTART-`, `#begin ...` and `#end ...` are left out.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from .text_files import MAX_CHARACTERS, TOO_LONG, WORD_COST, TextFile

CONLLU_NUMBER = re.compile(r"([0-9]+)|[0-9]+[-.][0-9]+")
CONLLU_COLUMNS = 10
# The least columns of a file of which the first counts; a table may have fewer.
LEAST_COUNTED = 8
# The least lines of words with tags; the lines of a shorter text may look like them.
LEAST_TAGGED = 4
# The least different tags of a known set; a text has no more in one place of all its lines.
LEAST_TAGS = 3
# In sentences of at least so many lines, a column with so many times fewer values than lines may have labels.
LEAST_LABELLED, LEAST_REPEATED = 6, 3
DOCUMENT = re.compile(r"-DOCSTART-|#\s*(?:begin|end) document")
# The first line of a file with several documents.
BEGINNING = re.compile(r"-DOCSTART-(?:\s+(?:-[A-Z]+-|[A-Z_*|-]+))*|#\s*begin document\s*\(.*")
# Labels of entities; those of chunks and entities in capitals; parts of speech with marks.
ENTITY = re.compile(r"O|[BIESLUMW]-\S+")
LABEL = re.compile(r"[BIESLUMW]-[A-Z][A-Z_]+")
PART_OF_SPEECH = re.compile(r"""[A-Z][A-Z0-9$_|-]*|[-.,:;!?'"`()$#]+""")
MARK = re.compile(r"[.!?,;:]|\.\.\.")
# The parts of speech of Universal Dependencies, and of the Penn Treebank, whose marks are tagged as themselves.
# fmt: off
UNIVERSAL = frozenset([
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
])
PENN = frozenset([
    "CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS", "MD", "NN", "NNS", "NNP", "NNPS", "PDT", "POS",
    "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "SYM", "TO", "UH", "VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT",
    "WP", "WP$", "WRB", "HYPH", "NFP", "ADD", "AFX", "GW", "XX", ".", ",", ":", "``", "''", "$", "#", "(", ")",
    "-LRB-", "-RRB-",
])
# fmt: on
# How many lines of a sentence are looked at to find the column of the words.
LOOKED_AT = 1000

Cells = list[str]


def conllu_sentences(file: TextFile) -> Iterator[list[str]]:
    """The words of each sentence of CoNLL-U; errors are those of `conllu_blocks`."""
    for block in conllu_blocks(file, [1], CONLLU_COLUMNS):
        yield [cells[1] for cells in block]


def conllu_blocks(file: TextFile, columns: Sequence[int], num_columns: int | None = None) -> Iterator[list[Cells]]:
    """The cells of the words of each sentence of CoNLL-U.

    Args:
        file: the file.
        columns: the numbers of columns that there must be.
        num_columns: how many columns there must be; None: as many as in the first line.

    Raises:
        ValueError: if a line has other columns, or does not begin with the number of a word.
    """
    least = max(2, _least_columns(columns))
    block: list[Cells] = []
    size = 0
    for number, line in enumerate(file.lines(), start=1):
        line = line.rstrip("\r\n")
        if not line.strip():
            if block:
                yield block
            block, size = [], 0
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if num_columns is None:
            num_columns = len(cells)
        numbered = CONLLU_NUMBER.fullmatch(cells[0])
        if len(cells) != num_columns or len(cells) < least or numbered is None or cells[1] == "":
            expected = max(num_columns, least)
            raise file.fault(
                f"CoNLL-U has {expected} columns, the number of a word, such as 1, 2-3 or 4.1, and the word first, "
                f"found {len(cells)}: {line[:80]!r}.",
                number,
            )
        if numbered[1] is None:
            continue
        size = _checked_size(file, size, cells[1])
        block.append(cells)
    if block:
        yield block


def conll_sentences(file: TextFile, column: str | None) -> Iterator[list[str]]:
    """The words of each sentence of a file of columns.

    Args:
        file: the file.
        column: the number of the words' column, from 0, or from -1 backwards; None: as the module's docstring says.

    Raises:
        ValueError: if lines have different numbers of columns, or no such column.
    """
    place = words_place(file, column)
    if column is None and looks_like_conllu(file.first_lines(LOOKED_AT)):
        yield from conllu_sentences(file)
        return
    for block in conll_blocks(file, [place]):
        yield [cells[place] for cells in block]


def words_place(file: TextFile, column: str | None) -> int:
    """The column of the words: by the number that a user gave, or by the first lines.

    Raises:
        ValueError: if what the user gave is no number.
    """
    if column is None:
        return word_column(file.first_lines(LOOKED_AT))
    if re.fullmatch("-?[0-9]{1,3}", column) is None:
        raise file.fault(f"its columns have no names; give a number, such as `column='0'`, found {column!r}.")
    return int(column)


def conll_blocks(file: TextFile, columns: Sequence[int]) -> Iterator[list[Cells]]:
    """The cells of the words of each sentence of a file of columns.

    Args:
        file: the file.
        columns: the numbers of columns that there must be.

    Raises:
        ValueError: if lines have different numbers of columns, or too few.
    """
    least = _least_columns(columns)
    block: list[Cells] = []
    num_columns = size = 0
    for number, line in enumerate(file.lines(), start=1):
        cells = cells_of(line)
        if not any(cells) or DOCUMENT.match(line):
            if block:
                yield block
            block, size = [], 0
            continue
        if not block and line.startswith("#") and num_columns not in (0, len(cells)):
            continue  # a comment before a sentence; a word `#` has the columns of the others
        if num_columns == 0:
            num_columns = len(cells)
        if len(cells) != num_columns or num_columns < least:
            expected = f"at least {least} columns" if num_columns < least else f"{num_columns} columns as before"
            raise file.fault(f"expected {expected}, found {len(cells)}.", number)
        size = _checked_size(file, size, line)
        block.append(cells)
    if block:
        yield block


def cells_of(line: str) -> Cells:
    """The cells of a line: between tabs if it has any, else between blanks."""
    line = line.rstrip("\r\n")
    return line.split("\t") if "\t" in line else line.split()


def word_column(lines: Sequence[str]) -> int:
    """The column of the words, by the first lines of a file."""
    blocks: list[list[Cells]] = [[]]
    for line in lines:
        cells = cells_of(line)
        if not any(cells) or line.startswith("#") or DOCUMENT.match(line):
            blocks.append([])
        else:
            blocks[-1].append(cells)
    blocks = [block for block in blocks if block]
    for counter in (0, 2):
        if blocks and max(map(len, blocks)) > 1 and all(_counts(block, counter) for block in blocks):
            return counter + 1
    return 0


def looks_like_conllu(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are CoNLL-U: comments, and words with numbers in ten columns."""
    filled = [line for line in lines if line.strip() and not line.startswith("#")]
    if not filled:
        return False
    rows = [line.split("\t") for line in filled]
    return all(len(cells) == CONLLU_COLUMNS and CONLLU_NUMBER.fullmatch(cells[0]) for cells in rows)


def looks_like_conll(lines: Sequence[str]) -> Literal["certain", "possible", "no"]:
    """Whether the first lines of a file can only be words in columns (certain), or may be (possible).

    Certain are files that begin with the line `-DOCSTART-` or `#begin document`, and lines with the same number of
    columns, of which the first of many counts, or one has only labels of entities or chunks, or only tags of a known
    set of parts of speech. Possible are columns of other tags, and of labels that repeat, with blank lines between
    sentences. One line alone is text.
    """
    filled = [line for line in lines if line.strip()]
    if filled and BEGINNING.fullmatch(filled[0].strip()):
        return "certain"
    rows = [cells_of(line) for line in filled if not line.startswith("#")]
    if len(rows) < 2 or len(rows[0]) < 2 or len({len(cells) for cells in rows}) > 1:
        return "no"
    words, *others = zip(*rows, strict=True)
    if any(" " in word.strip() for word in words):
        return "no"
    if len(rows[0]) >= LEAST_COUNTED and word_column(lines) == 1:
        return "certain"
    is_plain = len(others) == 1 and "\t" not in filled[-1]  # two words with a blank, as lines of a poem may be
    if {*others[-1]} == {"O"} and (len(rows) >= LEAST_TAGGED or not is_plain):
        return "certain"
    if any(_are_labels(column, is_plain) or _are_known_tags(column) for column in others):
        return "certain"
    if any(_may_be_labels(column) or _may_be_tags(words, column) for column in others):
        return "possible"
    if has_blocks(lines) and any(_repeats(words, column) for column in others):
        return "possible"
    return "no"


def has_blocks(lines: Sequence[str]) -> bool:
    """Whether blank lines are between lines."""
    return any(not line.strip() for line in "\n".join(lines).strip().split("\n"))


def _are_labels(column: Sequence[str], is_plain: bool) -> bool:
    """Whether no text has such a column: labels of entities, or of chunks.

    Args:
        column: the cells of a column behind the words.
        is_plain: whether lines may be two words of a text.
    """
    if "O" in column:
        return {*column} != {"O"} and all(map(ENTITY.fullmatch, column))
    if is_plain and not any(cell.startswith("B-") for cell in column):
        return False
    return all(map(LABEL.fullmatch, column))


def _may_be_labels(column: Sequence[str]) -> bool:
    has_begins = any(cell.startswith("B-") for cell in column)
    return (has_begins or "O" in column) and all(map(ENTITY.fullmatch, column))


def _are_known_tags(column: Sequence[str]) -> bool:
    return len(column) >= LEAST_TAGGED and _num_known(column) >= LEAST_TAGS


def _num_known(column: Sequence[str]) -> int:
    """How many different tags, marks left out, a column of known tags has; 0 for another column."""
    tags = {*column}
    if not (tags <= UNIVERSAL or tags <= PENN):
        return 0
    return sum(tag.isalpha() for tag in tags)


def _may_be_tags(words: Sequence[str], column: Sequence[str]) -> bool:
    """Whether a column may have parts of speech: two known ones, or others with a mark among the words."""
    if _num_known(column) > 1:
        return True
    has_mark = any(map(MARK.fullmatch, words))
    has_letters = any(cell.isalpha() for cell in column)
    return len(words) >= LEAST_TAGGED and has_mark and has_letters and all(map(PART_OF_SPEECH.fullmatch, column))


def _repeats(words: Sequence[str], column: Sequence[str]) -> bool:
    """Whether a column repeats its values as labels do, more than the words are repeated."""
    num_labels = len({*column})
    if len(words) < LEAST_LABELLED or LEAST_REPEATED * num_labels > len(words):
        return False
    return len({*words}) >= 2 * num_labels


def _least_columns(columns: Sequence[int]) -> int:
    return max(column + 1 if column >= 0 else -column for column in columns)


def _counts(block: list[Cells], column: int) -> bool:
    """Whether a column of a sentence, which has a further one, counts from 0 or 1."""
    if min(map(len, block)) < column + 2:
        return False
    values = [cells[column] for cells in block]
    if values[0] not in ("0", "1"):
        return False
    return all(after.isdecimal() and int(after) == int(before) + 1 for before, after in pairwise(values))


def _checked_size(file: TextFile, size: int, text: str) -> int:
    size += len(text) + WORD_COST
    if size > MAX_CHARACTERS:
        raise ValueError(f"{file.path}: {TOO_LONG}")
    return size
