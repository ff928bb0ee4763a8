"""FASTA: proteins, or nucleic acids; each residue is a word.

A record is a line `>NAME ...`, then lines of residues, one letter each, which are read as capitals, as SeqVec reads
them. Lines that begin with `;` are comments. A gap of an alignment (`-`) and a stop (`*`) are read as words, too.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from .notes import note
from .text_files import MAX_CHARACTERS, TOO_LONG, WORD_COST, TextFile

NO_RESIDUE = re.compile("[^A-Z*-]")
# Signs that are no residues, and their meanings.
MARKS = {"-": "gap", "*": "stop"}
# In a file whose name does not say what it holds: lines of residues in capitals (of bases, in small letters too), and
# in any letters; how long a line of residues certainly is, and how many different letters it has: a cry such as `NOOO`
# has fewer.
CAPITALS = re.compile(r"[A-Z*-]+|[acgtun-]+")
LETTERS = re.compile("[A-Za-z*-]+")
CERTAIN_LENGTH, CERTAIN_LETTERS = 20, 4


class Protein(list[str]):
    """The residues of a protein, each a word.

    Attributes:
        header: its line `>NAME ...` without the `>`; "" if it has none.
        name: the first word of the header.
        line: the number of its first line in the file, from 1.
    """

    header = ""
    name = ""
    line = 0


def fasta_sentences(file: TextFile) -> Iterator[Protein]:
    """The records of a file.

    Raises:
        ValueError: if a line is neither a header nor residues, or if several lines of residues stand before the first
            header, because they may be one protein or several.
    """
    protein = Protein()
    is_begun = False
    has_header = False
    marks: Counter[str] = Counter()
    size = 0
    for number, line in enumerate(file.lines(), start=1):
        if line.startswith(";"):
            continue
        if line.startswith(">"):
            if is_begun:
                yield protein
            protein = Protein()
            protein.line = number
            protein.header = line[1:].strip()
            protein.name = next(iter(protein.header.split()), "")
            is_begun, size = protein.name != "", 0
            has_header = True
            continue
        residues = "".join(line.split()).upper()
        sign = NO_RESIDUE.search(residues)
        if sign is not None:
            raise file.fault(
                f"FASTA has a line `>NAME`, then lines of letters, gaps (`-`) and stops (`*`), found `{sign[0]}` in "
                f"{line.strip()[:80]!r}.",
                number,
            )
        if residues and is_begun and not has_header:
            raise file.fault(
                "several lines of residues stand before the first line `>NAME`, so they may be one protein or several. "
                "Put a line `>NAME` above each protein.",
                number,
            )
        marks.update({mark: residues.count(mark) for mark in MARKS})
        size += (1 + WORD_COST) * len(residues)
        if size > MAX_CHARACTERS:
            raise ValueError(f"{file.path}: {TOO_LONG}")
        protein.line = protein.line or number  # residues before the first header
        protein += residues
        is_begun = is_begun or bool(residues)
    if is_begun:
        yield protein
    counts = [f"`{mark}` ({meaning}) {marks[mark]:,}" for mark, meaning in MARKS.items() if marks[mark] > 0]
    if counts:
        note(
            f"{file.path} holds signs that are no residues: {', '.join(counts)}. Each is read as a word, as in "
            "SeqVec's program; remove them if you want residues alone."
        )


def looks_like_fasta(lines: Sequence[str]) -> Literal["certain", "possible", "no"]:
    """Whether the first lines of a file are records of FASTA; text that quotes with `>` has blanks in other lines.

    Lines in capitals are certainly residues if one of them is long. Short ones may be words, and so may be long ones
    in small letters.
    """
    filled = [line.strip() for line in lines if line.strip() and not line.startswith(";")]
    if not filled or not filled[0].startswith(">"):
        return "no"
    residues = [line for line in filled if not line.startswith(">")]
    if not residues or not all(map(LETTERS.fullmatch, residues)):
        return "no"
    is_long = any(len(line) >= CERTAIN_LENGTH and len({*line}) >= CERTAIN_LETTERS for line in residues)
    are_capitals = all(map(CAPITALS.fullmatch, residues))
    if is_long and are_capitals:
        return "certain"
    if is_long or are_capitals:
        return "possible"
    return "no"
