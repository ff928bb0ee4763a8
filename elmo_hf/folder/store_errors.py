"""The libraries of stores, such as S3, whose errors of network, keys and settings are of kinds of their own."""

from .saved_json import one_line

LIBRARIES = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google.api_core", "google.auth", "google.cloud")
# What to do if a store fails.
ADVICE = "look at its address, your keys and the network, and give the same command again."


def line_of_store(error: Exception) -> str | None:
    """The line for an error that the library of a store raised; None for other errors."""
    module = type(error).__module__
    if not any(f"{module}.".startswith(f"{library}.") for library in LIBRARIES):
        return None
    return f"a store does not answer as it should ({one_line(error)}); {ADVICE}"
