"""The notes of a command that wrote proteins under other names than their headers have."""

from typing import TYPE_CHECKING

from .errors import counted, say

if TYPE_CHECKING:
    from ..embedding.protein_names import ProteinNames


def note_names(names: "ProteinNames") -> None:
    """Prints to standard error how many names were not as in the headers, with an example of each kind."""
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
