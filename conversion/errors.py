"""The error that users of the conversion see."""


class ConversionError(Exception):
    """A checkpoint cannot be converted; the message says what was expected, what was found, and what to do."""
