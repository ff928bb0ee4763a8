"""How much an untrusted file may cost: a small file that fills memory, disk or an afternoon is a bomb, no checkpoint.

Weights are noise and hardly compress; text shrinks to a tenth. A bomb shrinks to a thousandth, its header claims more
than it holds, or it holds millions of small things. Every limit is far above what any published ELMo needs: about 40
arrays, 2 layers, 50 characters per word, 800,000 words, options of 1 kB. An error names the limit.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from .errors import ConversionError

MAX_RATIO = 100
ALLOWANCE = 16 << 20  # bytes that any file may unpack to
MAX_GROWTH = 256 << 20  # bytes that unpacking may add to those of the file
MAX_JSON = 4 << 20  # bytes of an options file
MAX_DEPTH = 50  # lists and objects in each other in JSON
MAX_TEXT = 64 << 20  # bytes of a list of words
MAX_WORDS = 2_000_000  # lines of a list of words
MAX_LINE = 10_000  # bytes of one of its lines
MAX_FILES = 10_000  # entries of an archive or of a folder
MAX_DIRECTORY = 4 << 20  # bytes of a zip file's list of entries
MAX_FOLDERS = 8  # in each other, in an archive
MAX_GROUPS = 32  # in each other, in an hdf5 file
MAX_ARRAYS = 10_000  # arrays of a checkpoint, and groups of an hdf5 file
MAX_AXES = 8
MAX_CHUNKS = 50_000  # of all arrays of an hdf5 file
MAX_CHUNK = 128 << 20  # bytes of one of them
MAX_SIZE = 1_000_000  # of one dimension in the options
MAX_LAYERS = 100  # also of highways and filters
MAX_WORD_LENGTH = 1_000  # characters

Item = TypeVar("Item")


def refuse_bomb(unpacked: int, packed: int, where: str) -> None:
    """Checks the size that a file declares before any of it is unpacked.

    Raises:
        ConversionError: if `packed` bytes would become too many.
    """
    if unpacked > min(MAX_RATIO * packed + ALLOWANCE, packed + MAX_GROWTH):
        raise ConversionError(
            f"{where} has {packed:,} bytes and would unpack to {unpacked:,}, as no checkpoint does; it is not unpacked."
        )


def at_most(limit: int, items: Iterable[Item], where: str, what: str) -> Iterator[Item]:
    """Passes on items up to a limit.

    Raises:
        ConversionError: if there are more than `limit`; says where, and what they are.
    """
    items = iter(items)
    yield from islice(items, limit)
    for _ in items:
        raise ConversionError(f"{where} holds more than {limit:,} {what}, as no checkpoint does; it is not read.")
