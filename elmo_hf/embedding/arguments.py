"""Checks of arguments that need no model; a light module, so that the command line refuses them at once."""

import os
import re
from glob import has_magic
from pathlib import Path

from ..files import check_new_file
from .stores import INDEX, JOB, is_url

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
    """Raises ValueError if an output lies where the next run would read its files."""
    files = [f"{_place(output)}/{name}" for name in (INDEX, JOB, *(f"part-00000.{suffix}" for suffix in FORMATS))]
    for source in sources:
        pattern = re.escape(f"{_place(source)}/") + ".*"
        if has_magic(source) and not Path(source).exists():
            from fsspec.utils import glob_translate

            pattern = glob_translate(_place(source))
        elif Path(source).is_file():
            continue
        if any(re.fullmatch(pattern, file, re.DOTALL) for file in files):
            raise ValueError(f"{output} lies in {source}, which is read; choose another place.")


def _place(name: str) -> str:
    """A file or folder, its name without links and doubled slashes."""
    return re.sub("/+", "/", name).rstrip("/") if is_url(name) else os.path.realpath(name)


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
    if os.path.isfile(source):  # unlike `Path.is_file`, it takes a string that is too long for a name
        return
    if "/" in source or source.endswith((".txt", ".tsv", ".csv")):
        raise FileNotFoundError(f"there is no file {source}.")
    try:
        re.compile(source)
    except re.error as error:
        raise ValueError(f"{source!r} is neither a file of words nor a regular expression: {error}.") from error


def check_paths(source: Path | None, output: Path) -> None:
    """Checks that the input exists and the output can be made, as `check_new_file` does.

    Args:
        source: None for a stream.
        output: the new file.

    Raises:
        FileExistsError: if `output` exists.
        FileNotFoundError: if there is no file `source`, or no folder for `output`.
    """
    check_new_file(output)
    if source is not None and not source.is_file():
        raise FileNotFoundError(f"there is no file {source}.")


def check_readable(source: Path) -> None:
    """Raises FileNotFoundError if there is no such file, pipe or device."""
    if not source.exists() or source.is_dir():
        raise FileNotFoundError(f"there is no file {source}.")


def check_table(path: Path) -> None:
    """Checks that a new table of surprisals can be made, as `check_new_file` does, and its suffix.

    Raises:
        FileExistsError: if the file exists.
        FileNotFoundError: if there is no folder for it.
        ValueError: if the suffix is not in `TABLE_SUFFIXES`.
    """
    if path.suffix not in TABLE_SUFFIXES:
        raise ValueError(f"{path} must end in {' or '.join(TABLE_SUFFIXES)}.")
    check_new_file(path)
