"""Which files a run reads and may write; a light module, so that the command line refuses wrong ones at once."""

import re
from glob import glob, has_magic
from pathlib import Path

from ..sentences import CONLLU_SUFFIX, JSON_SUFFIXES

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def corpus_files(source: str) -> list[str]:
    """The files of a corpus: the file itself, or those that match a pattern; empty for a dataset.

    Args:
        source: a file, a pattern, a folder with a dataset, or the name of a Hub dataset.

    Raises:
        ValueError: if a pattern matches nothing, or `source` is neither a file nor a dataset's name.
    """
    paths = [source] if Path(source).is_file() or not has_magic(source) else sorted(glob(source, recursive=True))
    if not paths:
        raise ValueError(f"{source} matches no file.")
    if Path(paths[0]).is_file():
        return paths
    is_name = HUB_NAME.fullmatch(source) and not source.endswith((".txt", ".gz", CONLLU_SUFFIX, *JSON_SUFFIXES))
    if not is_name and not Path(source).is_dir():
        raise ValueError(f"there is no file {source}.")
    return []


def refuse_finished(folder: Path) -> None:
    """Raises ValueError if a folder holds a finished model, or is a file."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file; choose a folder.")
    if (folder / "config.json").exists():
        raise ValueError(f"{folder} holds a finished model; choose another folder.")
