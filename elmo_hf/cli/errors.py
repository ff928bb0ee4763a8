"""What commands print, and how they end when something is wrong."""

from importlib.util import find_spec
from typing import NoReturn

import typer

from ..share.foreign_text import printable


def say(message: str, *, is_error: bool = False) -> None:
    """Prints a message, which may quote names that a terminal cannot show or would obey."""
    typer.echo("\n".join(map(printable, message.split("\n"))), err=is_error)


def fail(error: Exception) -> NoReturn:
    """Prints the error and ends the command."""
    say(f"Error: {error}", is_error=True)
    raise typer.Exit(1)


def need(*packages: str) -> None:
    """Ends the command if packages are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        fail(ImportError(f"this needs {', '.join(missing)}, not installed here: pip install 'elmo-hf[train]'"))
