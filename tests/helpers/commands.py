"""Commands of `elmo-hf` run in this process."""

import re

from typer.testing import CliRunner, Result

from elmo_hf.cli import app


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def output_of(*arguments: object, stdin: str | bytes | None = None) -> str:
    """What a command prints that ends well."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def assert_fails(result: Result, code: int, text: str) -> None:
    """The program ends with the code and the text on standard error, as a message and not as a traceback."""
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code
    # Usage errors are wrapped to the width of the terminal.
    assert text in " ".join(result.stderr.split())
    assert re.search(r"^Error: ", result.stderr, re.MULTILINE)
    assert "Traceback" not in result.output
