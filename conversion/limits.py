"""How much a file may unpack to: a small file that fills memory or disk is a bomb, not a checkpoint.

Weights are noise and hardly compress; text shrinks to a tenth. A bomb shrinks to a thousandth, or its header claims
more bytes than it holds.
"""

from .errors import ConversionError

MAX_RATIO = 100
ALLOWANCE = 16 << 20  # bytes that any file may unpack to
MAX_TEXT = 64 << 20  # bytes of an options file or a list of words


def refuse_bomb(unpacked: int, packed: int, where: str) -> None:
    """Checks the size that a file declares before any of it is unpacked.

    Raises:
        ConversionError: if `packed` bytes would become too many.
    """
    if unpacked > MAX_RATIO * packed + ALLOWANCE:
        raise ConversionError(
            f"{where} has {packed:,} bytes and would unpack to {unpacked:,}, as no checkpoint does; it is not unpacked."
        )
