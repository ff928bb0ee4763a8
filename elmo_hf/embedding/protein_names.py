"""Names of proteins as keys: every protein of an input has one name, and no other protein has it.

The name of a FASTA record is the first word of its header, the line `>NAME ...`, or the first word of a part of the
header, such as `P12345` in `sp|P12345|X`. Files of vectors hold a protein under its name, so a name must be a key that
every format can hold, and must not occur twice. Four rules ensure this. They need only the records before, in the order
of the input, so every process that reads the input gives the same names.

    the n-th record with a name, n > 1    `NAME (n)`; a name has no blank, so no other record is called that
    no name                               `unnamed`
    a path that leaves its folder         `_` in place of each slash, because an .npz may be unpacked into files
        (`../x`, `/x`)
    a name that files of vectors use      `NAME_`
        themselves (`x.scales`)

Glossary: a *header* is the line of a record without its `>`; a *part* of it lies between separators.

Deliberate differences from SeqVec, whose `--id` and `--split-char` choose a part: the default is the first word and not
the second part, a name ends at its first blank, and of two records with one name both are kept.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..text.sentences import Protein, Sentence, storable

UNNAMED = "unnamed"
# What files of vectors call other things: an array of hdf5, the key of metadata in safetensors, arrays of a protein.
RESERVED = re.compile(r"sentence_to_index|__metadata__|.*\.(scales|positions)")
LEAVES_FOLDER = re.compile(r"/|(.*/)?\.\./|.*\\|[A-Za-z]:/")
# The name of a file in a zip has at most 65,535 bytes, with the ending of the array.
MAX_NAME_BYTES = 60_000


# The records without residues that are remembered.
MOST_EMPTY = 3


class HeaderPartError(ValueError):
    """A name was to be a part of a header that is not there; the message says which."""


class HeaderPart(NamedTuple):
    """The part of a header that holds the name."""

    number: int  # which part, from 0
    separator: str = "|"  # what lies between the parts

    def first_word(self, header: str) -> str:
        """The first word of the part; "" if there is no such part."""
        parts = header.split(self.separator)
        if self.number >= len(parts):
            return ""
        return _first_word(parts[self.number])


class ProteinNames:
    """Gives each protein of an input its name, in the order of the input.

    Attributes:
        num_repeated: how many proteins had the name of an earlier one.
        repeated: the first of these, by its new name.
        num_unnamed: how many proteins had no name.
        num_not_in_hdf5: how many names are no names in hdf5 (`is_name_in_hdf5`).
        not_in_hdf5: the first of these.
        num_changed: how many names could not be keys and were changed.
        changed: the first of these, as it was.
        num_empty: how many proteins had no residues.
        empty: the names of the first of these.
    """

    def __init__(self, part: HeaderPart | None = None) -> None:
        """Takes the first word of each header, or a part of the header."""
        self.part = part
        self.begin()

    def begin(self) -> None:
        """Forgets all names, before the input is read again."""
        self._counts: dict[str, int] = {}
        self._number = ""
        self._has_text = False
        self.num_repeated = 0
        self.repeated = ""
        self.num_unnamed = 0
        self.num_not_in_hdf5 = 0
        self.not_in_hdf5 = ""
        self.num_changed = 0
        self.changed = ""
        self.num_empty = 0
        self.empty: list[str] = []

    def job(self) -> dict[str, str]:
        """What the names depend on besides the headers; empty for first words."""
        if self.part is None:
            return {}
        return {"protein_names": f"part {self.part.number} between {self.part.separator!r}"}

    def give(self, document: str, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """The sentences of the next document of the input, whose proteins get their names.

        Args:
            document: its name, for messages.
            sentences: its sentences, from the first one.

        Raises:
            HeaderPartError: as `see_text` and `name`.
            ValueError: as `see_text` and `name`.
        """
        for sentence in sentences:
            if isinstance(sentence, Protein):
                sentence.name = self.name(sentence, f"{document}, line {sentence.line}")
            else:
                self.see_text(document)
            yield sentence

    def see_text(self, place: str) -> None:
        """Notes that the input has a sentence that is no protein.

        Args:
            place: the document, for the message.

        Raises:
            HeaderPartError: if names are to be parts of headers.
            ValueError: if the number of a sentence may be a protein's name.
        """
        if self.part is not None:
            raise HeaderPartError(
                f"{place} is not FASTA, so it has no headers of which a part could be a name; leave out the part, or "
                "give FASTA alone."
            )
        self._has_text = True
        self._refuse_numbers()

    def name(self, protein: Protein, place: str) -> str:
        """The name of the next protein.

        Args:
            protein: the protein, with its header.
            place: the document and the line of the record, for the message.

        Raises:
            HeaderPartError: if the header has no such part.
            ValueError: if the name is too long for a key, or may be the number of a sentence.
        """
        name = storable(self._own_name(protein.header, place))
        if len(name.encode()) > MAX_NAME_BYTES:
            raise ValueError(
                f"{place}: the name {name[:40]!r}... has more than {MAX_NAME_BYTES:,} bytes, which no file of vectors "
                "holds; put a line feed between the name and the residues."
            )
        if not name:
            self.num_unnamed += 1
            name = UNNAMED
        if LEAVES_FOLDER.match(name):
            self._count_change(name)
            name = re.sub(r"[/\\]", "_", name)
        if RESERVED.fullmatch(name):
            self._count_change(name)
            name += "_"
        unique = self._unique(name)
        if not is_name_in_hdf5(unique):
            self.num_not_in_hdf5 += 1
            self.not_in_hdf5 = self.not_in_hdf5 or unique
        if unique.isdecimal():
            self._number = self._number or unique
            self._refuse_numbers()
        if len(protein) == 0:
            self._count_empty(unique)
        return unique

    def _own_name(self, header: str, place: str) -> str:
        if self.part is None:
            return _first_word(header)
        name = self.part.first_word(header)
        if not name:
            raise HeaderPartError(
                f"{place}: the header {header[:80]!r} has no part {self.part.number}, counted from 0, between "
                f"{self.part.separator!r}; choose another part or separator, or no part: then the first word is the "
                "name. Later headers may lack the part too."
            )
        return name

    def _unique(self, name: str) -> str:
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        if count == 1:
            return name
        unique = f"{name} ({count})"
        self.num_repeated += 1
        self.repeated = self.repeated or unique
        return unique

    def _count_change(self, name: str) -> None:
        self.num_changed += 1
        self.changed = self.changed or name

    def _count_empty(self, name: str) -> None:
        self.num_empty += 1
        if len(self.empty) < MOST_EMPTY:
            self.empty.append(name)

    def _refuse_numbers(self) -> None:
        if self._has_text and self._number:
            raise ValueError(
                f"a protein has the name {self._number!r}, and the sentences of the other files have numbers as their "
                "names; embed proteins and text apart."
            )


def is_name_in_hdf5(name: str) -> bool:
    """Whether hdf5 finds an array by this name: no number of a sentence, and no path."""
    return not name.isdecimal() and "/" not in name and name != "."


def _first_word(text: str) -> str:
    return next(iter(text.split()), "")
