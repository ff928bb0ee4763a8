"""The notes and errors of a command that reads proteins, about their names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import counted, say

if TYPE_CHECKING:
    from ..embedding.protein_names import ProteinNames

# How many characters of a name a note shows.
MOST_NAME = 60


@contextmanager
def naming_header_options() -> Iterator[None]:
    """Adds the command's options to an error about a part of a header."""
    from ..embedding.protein_names import HeaderPartError

    try:
        yield
    except HeaderPartError as error:
        error.args = (f"{error} `--id` chooses the part, and `--split-char` the separator.",)
        raise


def note_names(names: "ProteinNames") -> None:
    """Prints to standard error how many names were not as in the headers, and which proteins had no residues."""
    if names.num_empty:
        others = names.num_empty - len(names.empty)
        rest = f" and {others:,} more" if others > 0 else ""
        say(
            f"Note: {counted(names.num_empty, 'protein')} had no residues, so no vectors; a vector of the whole "
            f"protein is zero: {', '.join(name[:MOST_NAME] for name in names.empty)}{rest}.",
            is_error=True,
        )
    if names.num_repeated:
        say(
            f"Note: {counted(names.num_repeated, 'protein')} had the name of an earlier one; names were made unique, "
            f"such as {names.repeated!r}.",
            is_error=True,
        )
    if names.num_unnamed:
        say(f"Note: {counted(names.num_unnamed, 'protein')} had no name and was named 'unnamed'.", is_error=True)
    if names.num_changed:
        say(
            f"Note: {counted(names.num_changed, 'protein')} had a name that means something else in files of vectors "
            f"or in folders, such as {names.changed!r}; `_` replaces its slashes, or is added at its end.",
            is_error=True,
        )


def note_not_in_hdf5(names: "ProteinNames") -> None:
    """Prints to standard error that hdf5 does not find proteins by some names, if there are such names."""
    if names.num_not_in_hdf5:
        name = names.not_in_hdf5[:MOST_NAME]
        say(
            f"Note: {counted(names.num_not_in_hdf5, 'protein')} had a name that is a number or a path, such as "
            f"{name!r}. hdf5 has proteins under their numbers, counted from 0, so `file[{name!r}]` may be another "
            "protein, or none; `sentence_to_index` has the number of each name. In .npz each name finds its own "
            "protein.",
            is_error=True,
        )
