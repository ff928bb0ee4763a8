"""The one error of this package that a user is meant to read."""


class ConversionError(Exception):
    """A checkpoint that cannot be converted; the message says what was expected, what was found, and what to do."""
