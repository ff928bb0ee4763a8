"""What a reader says of a file that it reads in a way that its name does not show: one line, to standard error."""

import logging

from .escapes import printable

logger = logging.getLogger("elmo_hf.text")


def note(message: str) -> None:
    """Logs a note as a warning; without other settings, `logging` prints it to standard error."""
    logger.warning("Note: %s", printable(message))
