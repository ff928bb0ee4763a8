"""How a command ends when something is wrong."""

from importlib.util import find_spec
from typing import NoReturn

import typer


def fail(error: Exception) -> NoReturn:
    """Prints the error and ends the command."""
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(1)


def need(*packages: str) -> None:
    """Ends the command if packages are not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        fail(ImportError(f"this needs {', '.join(missing)}, not installed here: pip install 'elmo-hf[train]'"))
