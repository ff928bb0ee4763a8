"""Checks of arguments that need no model; a light module, so that the command line refuses them at once."""

from pathlib import Path

from ..files import remove_leftovers

SUFFIXES = (".hdf5", ".h5", ".safetensors", ".npz", ".parquet")
TABLE_SUFFIXES = (".tsv", ".parquet")
# The most positions of a batch, padding included.
BATCH_WORDS = 2048


def check_suffix(output: Path) -> None:
    """Checks the name of a file of vectors.

    Raises:
        ValueError: if the suffix is not in `SUFFIXES`.
    """
    if output.suffix.lower() not in SUFFIXES:
        raise ValueError(f"the output's suffix must be one of {', '.join(SUFFIXES)}, found {output.name!r}.")


def check_paths(source: Path | None, output: Path) -> None:
    """Checks that the input exists and the output does not; removes what a killed run left beside a complete output.

    Args:
        source: None for a stream.
        output: the new file.

    Raises:
        FileExistsError: if `output` exists.
        FileNotFoundError: if there is no file `source`.
    """
    _refuse_existing(output)
    if source is not None and not source.is_file():
        raise FileNotFoundError(f"there is no file {source}.")


def check_table(path: Path) -> None:
    """Checks the name of a new table of surprisals; removes what a killed run left beside a complete one.

    Raises:
        FileExistsError: if the file exists.
        ValueError: if the suffix is not in `TABLE_SUFFIXES`, or the folder is missing.
    """
    if path.suffix not in TABLE_SUFFIXES:
        raise ValueError(f"{path} must end in {' or '.join(TABLE_SUFFIXES)}.")
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}.")
    _refuse_existing(path)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        remove_leftovers(path)
        raise FileExistsError(f"{path} exists already; remove it or choose another name.")
