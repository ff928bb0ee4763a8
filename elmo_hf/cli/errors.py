"""What commands print, and how they end when something is wrong or when they are stopped."""

import logging
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import typer
from huggingface_hub.errors import StrictDataclassError
from typer.core import TyperCommand

from ..folder.one_line import one_line
from ..share.foreign_text import printable

# What a shell reports for a command that Ctrl-C ended: 128 and the number of the signal.
STOPPED = 130
# What is raised where the user's input, files, machine or installation are not what a command needs.
REFUSALS = (ImportError, OSError, StrictDataclassError, ValueError)


class RefusingCommand(TyperCommand):
    """A command that prints each of `REFUSALS` as one line, and ends with the code 1."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses what no path or name can be, such as the value of a shell's variable that is not set."""
        for argument in args:
            if re.fullmatch("(--[^=]*=)?", argument):
                raise typer.BadParameter("an argument is empty.")
            if any("\ud800" <= each <= "\udfff" for each in argument):
                fail(ValueError(f"the name {argument!r} is not UTF-8; give the file or folder another."))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read the output needs no more of it; click ends the command
            raise
        except StrictDataclassError as error:
            fail(ValueError(one_line(error)))
        except REFUSALS as error:
            fail(error)


def say(message: str, *, is_error: bool = False) -> None:
    """Prints a message, which may quote names that a terminal cannot show or would obey."""
    typer.echo("\n".join(map(printable, message.split("\n"))), err=is_error)


def counted(number: int, noun: str) -> str:
    """`1 word`, `1,000 words`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def fail(error: Exception) -> NoReturn:
    """Prints the error and ends the command."""
    say(f"Error: {error}", is_error=True)
    raise typer.Exit(1)


def quiet_imports() -> None:
    """Silences what torchao and torch log when transformers imports torchao, whether a command needs it or not."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


def when_stopped(sentence: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command that Ctrl-C stops print a sentence and end with the code 130.

    An exception that knows more says it with attributes `sentence` (None: nothing) and `exit_code`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def stoppable(*args: Any, **kwargs: Any) -> None:
            try:
                command(*args, **kwargs)
            except KeyboardInterrupt as stop:
                said = getattr(stop, "sentence", sentence)
                if said is not None:
                    say(f"\n{said}", is_error=True)  # a progress bar may have left its line open
                raise typer.Exit(getattr(stop, "exit_code", STOPPED)) from None

        return stoppable

    return decorate
