"""What commands print, and how they end when something is wrong, or when they are stopped."""

from typing import Any

import typer
from huggingface_hub.errors import StrictDataclassError
from typer.core import TyperCommand

from ..folder.saved_json import one_line
from ..text.escapes import printable

# What is raised where the user's input, files, machine or installation are not what a command needs.
MENDABLE = (ImportError, OSError, StrictDataclassError, ValueError)
# What Ctrl-C gives: a line, and the exit code that shells report for it.
STOPPED = ("Stopped. Nothing incomplete is left; the same command starts again, or goes on from what is complete.", 130)


class Command(TyperCommand):
    """A command that ends with one line, and no traceback, if the user can mend what is wrong, or stopped it."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            line, code = stop.args or STOPPED  # `pretrain` knows more
            line = line and f"\n{line}"  # a progress bar may have left its line open
        except Exception as error:
            reason = line_of(error)
            if reason is None:
                raise
            line, code = f"Error: {reason}", 1
        if line:
            say(line, is_error=True)
        ctx.exit(code)


def line_of(error: Exception) -> str | None:
    """An error that a user can mend as one line; None for others, which are mistakes of this package.

    None also if whoever read the output needs no more of it: click ends the command then.
    """
    is_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's, not imported
    if is_memory or "can't allocate memory" in str(error):
        return "there is not enough memory. Give a smaller --batch-words or --rows; or a file is damaged."
    return one_line(error) if isinstance(error, MENDABLE) and not isinstance(error, BrokenPipeError) else None


def check_usage(is_right: bool, message: str) -> None:
    """Ends the command with an error of usage, unless it is used rightly."""
    if not is_right:
        raise typer.BadParameter(message)


def refuse_alone(needed: str, is_given: bool, **options: object) -> None:
    """Refuses options, by their names, that do nothing without the one that is needed."""
    for name, value in options.items():
        check_usage(is_given or not value, f"--{name.replace('_', '-')} needs {needed}.")


def say(message: str, *, is_error: bool = False) -> None:
    """Prints a message, which may quote names that a terminal cannot show or would obey."""
    typer.echo("\n".join(map(printable, message.split("\n"))), err=is_error)


def counted(number: int, noun: str) -> str:
    """`1 word`, `1,000 words`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
