"""Checks that optional packages are installed. Imports no torch."""

from importlib.util import find_spec


def require_packages(extra: str, *packages: str) -> None:
    """Checks that packages are installed.

    Args:
        extra: the extra of `pyproject.toml` that contains these packages.
        *packages: their names, the same for import and for pip.

    Raises:
        ImportError: if some are missing; the message names them and the commands that install them.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"this needs {', '.join(missing)}, not installed here: pip install {' '.join(missing)}, or in a "
            f"clone of elmo-hf the whole extra: pip install '.[{extra}]'"
        )
