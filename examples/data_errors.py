"""The error for everything that is wrong with a user's data, or with what a user says of it."""


class DataError(ValueError):
    """Something is wrong with a user's data; the message is for the user."""
