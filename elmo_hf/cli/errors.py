"""Prints the messages of commands, and turns errors and Ctrl-C into one line and an exit code."""

import logging
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import typer
from huggingface_hub.errors import StrictDataclassError
from typer.core import TyperCommand, TyperOption

from ..folder.model_names import DownloadStoppedError, NotConvertedError, UnknownNameError
from ..folder.saved_json import one_line
from ..folder.store_errors import line_of_store
from ..text.escapes import printable
from ..text.first_look import Count
from ..text.formats import FORMATS
from ..text.notes import logger

# The errors that a user can correct: in the input, the files, the machine or the installation.
MENDABLE = (ImportError, OSError, StrictDataclassError, ValueError)
USAGE_ERROR: Any = typer.BadParameter.__base__  # typer has its own copy of click, or an old one click itself
# The options that set how much is computed at a time; a command has one of them or none.
BATCH_OPTIONS = ("--batch-words", "--rows")
# An argument of the library with its value, as its errors and notes advise it.
ADVISED_ARGUMENT = re.compile(r"`(\w+)='([^'`]*)'`")
# The settings of commands: the options that print the help.
CONTEXT = {"help_option_names": ["-h", "--help"]}
# The result of Ctrl-C: a line, and the exit code that shells report for it.
STOPPED = ("Stopped. Nothing incomplete is left; the same command starts again, or goes on from complete parts.", 130)


class SingleValues(TyperCommand):
    """A command that refuses an option with one value if it is given more than once, and has `-h` beside `--help`."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Takes the arguments of the class above."""
        super().__init__(*args, **settings)
        self.context_settings = {**CONTEXT, **self.context_settings}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, and counts how often each option was given."""
        _, _, occurrences = self.make_parser(ctx).parse_args(args=[*args])
        rest = super().parse_args(ctx, args)
        for parameter, count in Counter(occurrences).items():
            takes_one = isinstance(parameter, TyperOption) and not parameter.multiple and not parameter.is_flag
            if takes_one and count > 1:
                message = f"{parameter.opts[0]} was given {count} times, but takes one value: give it once."
                raise USAGE_ERROR(message, ctx)
        return rest


class Command(SingleValues):
    """A command that ends with one line instead of a traceback if the user can correct the error, or stopped it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, and keeps them in `ctx.obj`."""
        ctx.obj = [*args]
        try:
            return super().parse_args(ctx, args)
        except USAGE_ERROR as error:
            error.message += hint(ctx.obj) + hint_of_format(ctx.obj)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        options = [option for parameter in self.params for option in parameter.opts]
        is_dry_run = ctx.params.get("dry_run", False)
        try:
            with notes_in_options(options, is_dry_run):
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            line, code = end_of_stopped(stop, STOPPED)
            if line:
                line = f"\n{line}"  # a progress bar may have left its line open
        except Exception as error:
            reason = line_of(error, options, is_dry_run)
            if reason is None:
                raise
            line = f"Error: {reason}{hint(ctx.obj)}"
            code = 1
        if line:
            say(line, is_error=True)
        ctx.exit(code)


def end_of_stopped(stop: KeyboardInterrupt, default: tuple[str, int]) -> tuple[str, int]:
    """The line and the exit code of a command that Ctrl-C stopped; the line is empty where another process prints it.

    Args:
        stop: the error, which has both if `pretrain` raised it.
        default: both, if nothing more is known.
    """
    if isinstance(stop, DownloadStoppedError):
        return f"Stopped. {stop}; the same command downloads it again.", STOPPED[1]
    if stop.args:
        line, code = stop.args
        return line, code
    return default


def hint(args: list[str]) -> str:
    """A hint to use quotes, if the shell split the name of an existing file at its blanks; "" otherwise.

    That is so if two to eight neighbouring arguments, joined by blanks, are the name.
    """
    for start in range(len(args) - 1):
        for count in range(2, 9):
            name = " ".join(args[start : start + count])
            if os.path.exists(name):
                return f" Put the name with a blank in quotes: '{name}'."
    return ""


def hint_of_format(args: list[str]) -> str:
    """A hint at `--input-format`, if `--format`, which is that of the output, was given the format of an input."""
    for option, value in pairwise(args):
        if option == "--format" and value in FORMATS:
            return " Say what the input is with --input-format."
    return ""


def line_of(error: Exception, options: Sequence[str] = (), is_dry_run: bool = False) -> str | None:
    """The line for an error that a user can correct; None for others, which are errors in this package.

    It is also None if the reader of the output has closed it; click ends the command then.

    Args:
        error: what the command raised.
        options: the command's options, because advice may name only these.
        is_dry_run: whether the command shows how its input is read, so that no advice to do so is needed.
    """
    # What reads a file calls every error in it damage; the cause tells whether memory was short.
    is_memory = _is_of_memory(error) or _is_of_memory(error.__cause__)
    if is_memory or "can't allocate memory" in str(error):
        line = "there is not enough memory, or a file is damaged."
        for option in BATCH_OPTIONS:
            if option in options:
                line += f" Give a smaller {option}."
        return line
    if isinstance(error, NotConvertedError):
        return f"{one_line(error)} Or run `elmo-hf convert {shlex.quote(error.source)} NEW`, and give the folder NEW."
    if isinstance(error, UnknownNameError):
        line = one_line(error)
        is_argument = "--model" not in options
        if error.is_file and is_argument:
            line += " If this file is what the model reads, name the model first and the file after it."
        return f"{line} `elmo-hf models` lists the short names."
    line_of_library = line_of_store(error)
    if line_of_library is not None:
        return line_of_library
    if isinstance(error, MENDABLE) and not isinstance(error, BrokenPipeError):
        return in_options(one_line(error), options, is_dry_run)
    return None


def in_options(message: str, options: Sequence[str], is_dry_run: bool = False) -> str:
    """A message of the library in the words of a command: `--column NAME` in place of `column='NAME'`.

    Arguments stay as they are if the command has no such option. `is_dry_run` is as in `line_of`.
    """

    def option_of(advised: re.Match[str]) -> str:
        option = "--" + advised[1].replace("_", "-")
        return f"`{option} {advised[2]}`" if option in options else advised[0]

    message = ADVISED_ARGUMENT.sub(option_of, message)
    if "`--encoding " in message and not is_dry_run:
        message += " `elmo-hf embed MODEL FILE --encoding NAME --dry-run` shows how it is read."
    return message


@contextmanager
def notes_in_options(options: Sequence[str], is_dry_run: bool = False) -> Iterator[None]:
    """While the block runs, notes of the readers are in the words of a command with these options.

    Of the notes on an argument, which hold for each of its files, only the first is printed. `is_dry_run` is as in
    `line_of`.
    """
    noted_arguments: set[str] = set()

    def put_into_options(record: logging.LogRecord) -> bool:
        argument = getattr(record, "argument", "")
        if argument in noted_arguments:
            return False
        if argument:
            noted_arguments.add(argument)
        record.msg = in_options(record.getMessage(), options, is_dry_run)
        record.args = ()
        return True

    logger.addFilter(put_into_options)
    try:
        yield
    finally:
        logger.removeFilter(put_into_options)


def _is_of_memory(error: BaseException | None) -> bool:
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's, not imported


def check_usage(is_right: bool, message: str) -> None:
    """Ends the command with an error of usage unless `is_right`."""
    if not is_right:
        raise typer.BadParameter(message)


def refuse_alone(needed: str, is_given: bool, **options: object) -> None:
    """Refuses options, given by their names, that have no effect without the option `needed`."""
    for name, value in options.items():
        check_usage(is_given or not value, f"--{name.replace('_', '-')} needs {needed}.")


def say(message: str, *, is_error: bool = False) -> None:
    """Prints a message; characters that a terminal cannot show or would interpret are escaped."""
    typer.echo("\n".join(map(printable, message.split("\n"))), err=is_error)


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Prints rows of cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counted_sentences(count: Count) -> str:
    """`8 sentences`, `8 sentences (1 of them blank)`, `8 proteins (1 of them without residues)`."""
    are_proteins = count.proteins > 0 and count.proteins == count.sentences
    if are_proteins:
        empty = f" ({count.blank:,} of them without residues)" if count.blank else ""
        return counted(count.proteins, "protein") + empty
    blank = f" ({count.blank:,} of them blank)" if count.blank else ""
    return counted(count.sentences, "sentence") + blank


def counted(number: int, noun: str) -> str:
    """`1 word`, `1,000 words`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
