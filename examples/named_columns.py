"""`--column NAME=COLUMN`: which columns of a user's own data a recipe reads."""

from collections.abc import Collection, Iterable

from data_errors import DataError

# The columns that a model reads.
TEXT_COLUMNS = ("words", "text", "text_pair", "question", "context")


def parse_columns(columns: Iterable[str], names: Collection[str]) -> dict[str, str]:
    """`NAME=COLUMN` as a dict from name to column.

    Args:
        columns: what a user gave.
        names: the names that the recipe knows.

    Raises:
        DataError: if one of the columns has another form or another name, or if a name is given twice.
    """
    pairs = [column.partition("=") for column in columns]
    for name, sign, column in pairs:
        if name not in names or not sign or not column:
            raise DataError(
                f"a column is given as NAME=COLUMN, where NAME is one of {', '.join(sorted(names))}; "
                f"found {name + sign + column!r}."
            )
    chosen = [name for name, _, _ in pairs]
    twice = [name for name in chosen if chosen.count(name) > 1]
    if twice:
        raise DataError(f"the column of {twice[0]} is given twice; give each NAME once.")
    return {name: column for name, _, column in pairs}
