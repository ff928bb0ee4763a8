"""Checks of arguments that need no model; a light module, so that the command line refuses them at once."""

import re
from glob import has_magic
from pathlib import Path

from ..files import remove_leftovers
from .stores import is_url

SUFFIXES = (".hdf5", ".h5", ".safetensors", ".npz", ".parquet")
# What a folder of shards may be made of.
FORMATS = ("parquet", "safetensors", "npz", "hdf5")
DTYPES = ("float32", "float16", "bfloat16", "int8")
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


def is_folder(output: str) -> bool:
    """Whether an output is a folder of shards: it ends with a slash, is one already, or is in a store."""
    return output.endswith("/") or Path(output).is_dir() or (is_url(output) and Path(output).suffix not in SUFFIXES)


def refuse_inside(output: str, sources: list[str]) -> None:
    """Raises ValueError if an output lies in a folder that is read, whose files it would be next time."""
    for source in sources:
        if Path(source).is_dir() and Path(output).resolve().is_relative_to(Path(source).resolve()):
            raise ValueError(f"{output} lies in {source}, which is read; choose another place.")


def check_one_file(
    output: str, sources: list[str], shard_format: str | None, column: str | None, is_ray: bool = False
) -> None:
    """Checks that one file of vectors can be written.

    Raises:
        ValueError: if it cannot, saying that a folder can.
    """
    if is_url(output):
        raise ValueError(f"a store takes a folder of shards, not one file; give `-o {output.rpartition('.')[0]}/`.")
    check_suffix(Path(output))
    if is_ray:
        raise ValueError(f"Ray writes a folder of shards, not one file; give `-o {Path(output).with_suffix('')}/`.")
    (source, *others) = sources
    is_pattern = has_magic(source) and not Path(source).is_file()
    if others or is_url(source) or is_pattern or Path(source).is_dir() or column is not None:
        name = Path(output).with_suffix("")
        raise ValueError(f"one file of vectors takes one file of sentences; for more, give a folder: `-o {name}/`.")
    if shard_format is not None:
        raise ValueError(f"the format of one file is its suffix, here {Path(output).suffix}; leave --format out.")


def check_dtype(suffix: str, dtype: str) -> None:
    """Raises ValueError if files of a suffix, or NumPy's arrays if that is empty, have no numbers of a type."""
    if dtype == "bfloat16" and not suffix:
        raise ValueError("NumPy arrays hold no bfloat16; choose float16.")
    if dtype == "bfloat16" and suffix != ".safetensors":
        raise ValueError(f"{suffix} files hold no bfloat16; choose float16, or safetensors.")


def check_kept(layers: str, is_choosing_words: bool) -> None:
    """Raises ValueError if words are chosen, and `layers` has no vector for each word."""
    if layers == "pooled" and is_choosing_words:
        raise ValueError("`pooled` has one vector a sentence, so no words can be chosen; leave --words out.")


def check_words(source: str) -> None:
    """Checks what `ChosenWords` reads.

    Raises:
        FileNotFoundError: if it looks like the name of a file, and there is none.
        ValueError: if it is neither a file nor a regular expression.
    """
    if Path(source).is_file():
        return
    if "/" in source or source.endswith((".txt", ".tsv", ".csv")):
        raise FileNotFoundError(f"there is no file {source}.")
    try:
        re.compile(source)
    except re.error as error:
        raise ValueError(f"{source!r} is neither a file of words nor a regular expression: {error}.") from error


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
