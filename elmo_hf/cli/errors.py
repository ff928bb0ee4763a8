"""What commands print, and how they end when something is wrong or when they are stopped."""

import logging
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer
from huggingface_hub.errors import StrictDataclassError
from typer.core import TyperArgument, TyperCommand

from ..folder.saved_json import one_line
from ..text.escapes import printable

# What a shell reports for a command that Ctrl-C ended: 128 and the number of the signal.
STOPPED = 130
# What is raised where the user's input, files, machine or installation are not what a command needs.
REFUSALS = (ImportError, OSError, ValueError)


class Command(TyperCommand):
    """A command that turns what a user can mend into one line, and ends with the code 1."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`MODEL INPUT -o OUT [OPTIONS]`: the arguments and the required options by their plain names."""
        arguments = [str(each.metavar) for each in self.params if isinstance(each, TyperArgument)]
        required = [each for each in self.params if not isinstance(each, TyperArgument) and each.required]
        return [*arguments, *(f"{each.opts[-1]} {each.metavar}" for each in required), "[OPTIONS]"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses what no path or name can be, such as the value of a shell's variable that is not set."""
        for argument in args:
            if re.fullmatch("(--[^=]*=)?", argument) or any("\ud800" <= each <= "\udfff" for each in argument):
                raise typer.BadParameter(f"the argument {argument!r} is empty or not UTF-8.")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            line = line_of(error)
            if line is None:
                raise
            say(f"Error: {line}", is_error=True)
            raise typer.Exit(1) from None


def line_of(error: Exception) -> str | None:
    """An error that a user can mend as one line; None for others, which are mistakes of this package.

    None also if whoever read the output needs no more of it: click ends the command then.
    """
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "this machine has not enough memory for it; a file may be damaged."
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported here
        advice = "Give a smaller --batch-words or --rows, or set CUDA_VISIBLE_DEVICES= to hide the GPU."
        return f"{str(error).partition('. ')[0]}. {advice}"
    if isinstance(error, StrictDataclassError):
        return one_line(error)
    return str(error) if isinstance(error, REFUSALS) and not isinstance(error, BrokenPipeError) else None


def refuse_alone(needed: str, is_given: bool, **options: object) -> None:
    """Refuses options, by their names, that do nothing without the one that is needed."""
    for name, value in options.items():
        if value and not is_given:
            raise typer.BadParameter(f"--{name.replace('_', '-')} needs {needed}.")


def say(message: str, *, is_error: bool = False) -> None:
    """Prints a message, which may quote names that a terminal cannot show or would obey."""
    typer.echo("\n".join(map(printable, message.split("\n"))), err=is_error)


def counted(number: int, noun: str) -> str:
    """`1 word`, `1,000 words`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
