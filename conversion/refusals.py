"""Refuses files from strangers with one class of errors, one form of messages and one check of sizes.

Readers report the file, the field, the legal values and the value found (`require`). A library's error for a damaged
file is replaced by an error with the file's name (`reading`).
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
    *(ArithmeticError, EOFError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError),
    *(struct.error, tarfile.TarError, zipfile.BadZipFile, zlib.error),
)


class ConversionError(ValueError):
    """A checkpoint cannot be converted; the message names the file, the legal values and the value found."""


def require(holds: bool, where: object, field: str, expected: str, found: object, advice: str = "") -> None:
    """Raises a `ConversionError` unless a condition holds.

    Args:
        holds: the condition.
        where: the file.
        field: the field; empty if the whole file is meant.
        expected: the legal values.
        found: the value found, as text; a value from the file in Python's form.
        advice: a sentence that tells the user what to do.
    """
    if not holds:
        what = f"{where}: `{shortened(field)}`" if field else f"{where}"
        what_is = shortened(str(found), 5 * MAX_QUOTE) or "nothing"
        raise ConversionError(f"{what} must be {expected}, found {what_is}. {advice}".rstrip())


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Replaces a library's error for a damaged file by one with the file's name."""
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, ConversionError) or getattr(error, "errno", None) in NO_ROOM:
            raise
        missing = isinstance(error, FileNotFoundError)
        text = f"there is no file {path}" if missing else one_line(error) or type(error).__name__
        if str(path) not in text:
            text = f"{path} cannot be read, it may be damaged or another kind of file: {text}"
        raise ConversionError(f"{text.rstrip('.')}.") from error


def check_unpacked(unpacked: int, path: Path) -> None:
    """Checks the size that a file declares for its content before any of it is unpacked."""
    packed = path.stat().st_size
    most = min(MAX_RATIO * packed + ALLOWANCE, packed + MAX_GROWTH)
    require(unpacked <= most, path, "", f"at most {most:,} bytes when it is unpacked", f"{unpacked:,}")


def shortened(text: str, most: int = MAX_QUOTE) -> str:
    """The text for a terminal, cut to `most` characters."""
    return printable(text if len(text) <= most else f"{text[:most]}...")


def listed(names: Iterable[object], separator: str = ", ") -> str:
    """The first `MAX_LISTED` names, and how many others there are."""
    texts = [shortened(str(name)) for name in names]
    more = [f"and {len(texts) - MAX_LISTED:,} more"] if len(texts) > MAX_LISTED else []
    return separator.join(texts[:MAX_LISTED] + more)
