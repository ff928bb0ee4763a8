"""Notes of the readers: one line to standard error where a file is read in a way that its name does not show."""

import logging

from .escapes import printable

logger = logging.getLogger("elmo_hf.text")


def note(message: str, argument: str = "") -> None:
    """Logs a note as a warning; without other settings, `logging` prints it to standard error.

    Args:
        message: the note, a whole sentence.
        argument: the argument of the readers that it is about, if it holds for every file that is read with it. The
            record has it as `argument`, by which a command prints the first of such notes only.
    """
    logger.warning("Note: %s", printable(message), extra={"argument": argument})
