"""Finds the format of a file: the one that its user names, that of its suffix, or that of its first lines.

The suffix of a name, before any `.gz`, decides, in capitals or not. A file with any other suffix is text, unless its
first lines can only be another format; then it is read as that format, and a note says so. If they could be either, the
file is refused, and the message names both formats. Files of programs, such as zip or PDF, are refused by their first
bytes, under any name.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Literal, get_args

from . import columns, fasta, json_lines, parquet_files, tables
from .notes import note
from .opened_files import OpenedFile, suffix_of
from .text_files import TextFile

Format = Literal["text", "jsonl", "table", "conllu", "conll", "fasta", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)

SUFFIXES_OF: dict[Format, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".ndjson", ".json", ".jsonlines", ".jl"),
    "table": (".csv", ".tsv", ".tab"),
    "conllu": (".conllu", ".conll-u"),
    "conll": (
        *(".conll", ".conllx", ".conll-x", ".conll02", ".conll03", ".conll06", ".conll09", ".conll12"),
        *(".conll2000", ".conll2002", ".conll2003", ".conll2009", ".conll2012", ".gold_conll"),
        *(".bio", ".iob", ".iob1", ".iob2", ".iobes", ".bioes", ".bilou"),
    ),
    "fasta": (
        *(".fasta", ".fa", ".faa", ".fas", ".fsa", ".fst", ".pep", ".fna", ".ffn", ".frn", ".seq"),
        *(".afa", ".mfa", ".mpfa"),
    ),
    "parquet": (".parquet", ".pq"),
}
FORMAT_OF: dict[str, Format] = {suffix: name for name, suffixes in SUFFIXES_OF.items() for suffix in suffixes}
# The suffixes of files with sentences.
SUFFIXES = (".txt", ".gz", *FORMAT_OF)
# What a format is called in messages.
SHOWN: dict[Format, str] = {
    "text": "text",
    "jsonl": "JSON lines",
    "table": "a table",
    "conllu": "CoNLL-U",
    "conll": "words in columns",
    "fasta": "FASTA",
    "parquet": "Parquet",
}
# How many lines are looked at.
LOOKED_AT = 1000

# The first bytes of files that are not text, what they are, and what to do.
EXPORT = "export its text as UTF-8, or its table as .csv"
FOREIGN = (
    (b"PK\x03\x04", "a zip file, as .docx, .xlsx and .epub are too", "unpack it, or export its text as .txt or .csv"),
    (b"PK\x05\x06", "an empty zip file", "give another file"),
    (b"BZh91AY&SY", "compressed with bzip2", "unpack it (`bunzip2`), or compress it with gzip"),
    (b"\xfd7zXZ\x00", "compressed with xz", "unpack it (`unxz`), or compress it with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstandard", "unpack it (`unzstd`), or compress it with gzip"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "unpack it (`unlz4`), or compress it with gzip"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it"),
    (b"%PDF-", "a PDF", "export its text (`pdftotext`)"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of an old Office program", EXPORT),
    (b"{\\rtf", "a document in RTF", EXPORT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "give the text that it was made from"),
    (b"SQLite format 3\x00", "a database of SQLite", EXPORT),
    (b"ARROW1\x00\x00", "an Arrow file", "write it as Parquet"),
    (b"Obj\x01", "an Avro file", "write it as Parquet or JSON lines"),
    (b"\x93NUMPY", "an array of NumPy", "give the text that it was made from"),
    *((bytes([0x80, version]), "a pickle of Python", "write its texts as JSON lines") for version in (2, 3, 4, 5)),
)
MARKUP = ("<!doctype", "<html", "<?xml")


def refuse_foreign(file: OpenedFile) -> None:
    """Refuses files of programs by their first bytes.

    Raises:
        ValueError: with what the file is, and what to do.
    """
    for magic, shown, cure in FOREIGN:
        if file.head.startswith(magic):
            raise ValueError(f"{file.path} is not text but {shown}: {cure}.")
    if file.head[257:262] == b"ustar":
        raise ValueError(f"{file.path} is not text but a tar archive: unpack it.")


def is_parquet(file: OpenedFile) -> bool:
    """Whether a file begins as Parquet does and cannot be text."""
    return file.head.startswith(parquet_files.MAGIC) and not file.head[4:5].decode("ascii", "ignore").isprintable()


def format_of(file: TextFile, keys: Collection[str]) -> Format:
    """The format of a file of text by its name, or by its first lines.

    Args:
        file: the file.
        keys: the names of columns with sentences.

    Raises:
        ValueError: if the first lines may be text, and another format as well.
    """
    named = FORMAT_OF.get(suffix_of(Path(file.name)))
    if named is not None:
        return named
    seen = seen_in(file, keys)
    if seen is not None:
        return seen
    lines = file.first_lines(LOOKED_AT)
    begin = file.beginning[:100].lstrip().lower()
    if begin.startswith(MARKUP):
        raise file.fault("is HTML or XML: export its text, or read its tags as words (`input_format='text'`).")
    if fasta.looks_like_fasta(lines) == "possible":
        raise _ambiguous(file, "FASTA", "`input_format='fasta'` if it is")
    num_columns = tables.looks_like_columns(lines)
    if num_columns > 1:
        options = "`input_format='table'` if its first line names them"
        if columns.has_blocks(lines) and not any(" " in line for line in lines):
            options += ", `input_format='conll'` if each line is a word"
        raise _ambiguous(file, f"a table of {num_columns} columns with tabs", options)
    if columns.looks_like_conll(lines) == "possible":
        raise _ambiguous(file, SHOWN["conll"], "`input_format='conll'` if each line is a word")
    return "text"


def seen_in(file: TextFile, keys: Collection[str]) -> Format | None:
    """The only format that the first lines of a file can be, with a note; None if they may be text.

    Args:
        file: the file.
        keys: the names of columns with sentences.
    """
    seen = _format_like(file.first_lines(LOOKED_AT), keys)
    if seen is not None:
        note(f"{file.path} looks like {SHOWN[seen]} and is read as such; `input_format='text'` reads it as text.")
    return seen


def _format_like(lines: list[str], keys: Collection[str]) -> Format | None:
    if columns.looks_like_conllu(lines):
        return "conllu"
    if json_lines.looks_like_json(lines):
        return "jsonl"
    if fasta.looks_like_fasta(lines) == "certain":
        return "fasta"
    if columns.looks_like_conll(lines) == "certain":
        return "conll"
    if tables.looks_like_table(lines, keys):
        return "table"
    return None


def _ambiguous(file: TextFile, shown: str, options: str) -> ValueError:
    return ValueError(
        f"{file.path} looks like {shown}, but its name does not say so. Give {options}, or `input_format='text'` to "
        "read each line as a sentence."
    )
