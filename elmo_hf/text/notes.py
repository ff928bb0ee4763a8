"""Notes of the readers: one line to standard error where a file is read in a way that its name does not show."""

import logging

from .escapes import printable

logger = logging.getLogger("elmo_hf.text")


def note(message: str) -> None:
    """Logs a note as a warning; without other settings, `logging` prints it to standard error."""
    logger.warning("Note: %s", printable(message))
