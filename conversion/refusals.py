"""Refuses files from strangers with one class of errors and one check of sizes.

Whoever finds a fault raises a `ConversionError` with a whole sentence: the file, what was expected, what was found, and
what to do. Names and values from a file are cut and escaped (`shortened`, `listed`). A library's error for a damaged
file is replaced by one with the file's name (`naming_file`).
"""

import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elmo_hf.disk.whole_files import NO_ROOM
from elmo_hf.folder.saved_json import one_line
from elmo_hf.text.escapes import printable

MAX_QUOTE = 200
MAX_LISTED = 20
# Compression hardly shrinks weights; it shrinks text to a tenth.
MAX_RATIO = 100
ALLOWANCE = 16 << 20  # bytes that any file may unpack to
MAX_GROWTH = 256 << 20  # bytes that unpacking may add to the file's size
# Errors of h5py, json, numpy, tarfile, torch, zipfile, zlib and the decoders of text on damaged bytes.
DAMAGE = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class ConversionError(ValueError):
    """A checkpoint cannot be converted; the message says which file, what was expected and what was found instead."""


class AnotherModelError(ConversionError):
    """A checkpoint is not the published model whose name it has.

    Attributes:
        fact: what was expected and what was found.
    """

    def __init__(self, fact: str, advice: str = "") -> None:
        """Takes the fact, and what to do if the files are the user's own."""
        super().__init__(f"{fact} {advice}".rstrip())
        self.fact = fact


@contextmanager
def naming_file(path: object) -> Iterator[None]:
    """Replaces a library's error for a damaged file by one with the file's name."""
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, ConversionError) or getattr(error, "errno", None) in NO_ROOM:
            raise
        if isinstance(error, FileNotFoundError):
            raise ConversionError(f"there is no file {path}.") from error
        reason = one_line(error).rstrip(".")
        if str(path) in reason:
            raise ConversionError(f"{reason}.") from error
        raise ConversionError(f"{path} cannot be read, it may be damaged or another kind of file: {reason}.") from error


def check_unpacked(unpacked: int, path: Path) -> None:
    """Checks the size that a file declares for its content before any of it is unpacked."""
    packed = path.stat().st_size
    most = min(MAX_RATIO * packed + ALLOWANCE, packed + MAX_GROWTH)
    if unpacked > most:
        raise ConversionError(
            f"{path} has {packed:,} bytes, and would have {unpacked:,} when it is unpacked; for a file of its size at "
            f"most {most:,} are unpacked. It may be damaged: get it again from its source."
        )


def shortened(text: str, most: int = MAX_QUOTE) -> str:
    """The text for a terminal, cut to `most` characters."""
    if len(text) > most:
        text = f"{text[:most]}..."
    return printable(text)


def listed(names: Iterable[object], separator: str = ", ") -> str:
    """The first `MAX_LISTED` names, and how many others there are."""
    texts = [shortened(str(name)) for name in names]
    num_others = len(texts) - MAX_LISTED
    if num_others > 0:
        texts = [*texts[:MAX_LISTED], f"and {num_others:,} more"]
    return separator.join(texts)
