"""Packages that only some work needs, and how to install them; a light module."""

from importlib.util import find_spec


def require(extra: str, *packages: str) -> None:
    """Checks that packages are installed.

    Args:
        extra: the extra of `pyproject.toml` that has them.
        *packages: their names, the same for import and for pip.

    Raises:
        ImportError: naming those that are missing, with a command that installs them from an index and in a clone.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"this needs {', '.join(missing)}, not installed here: pip install {' '.join(missing)}, or the whole "
            f"extra: pip install 'elmo-hf[{extra}]' (in a clone, '.[{extra}]')"
        )
