"""The table of the sources of the training text, `sources.tsv`."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).with_name("sources.tsv")
FIELDS = ("source", "repository", "commit", "files", "form", "kind", "years", "basis")


@dataclass(frozen=True)
class Source:
    """A line of the table."""

    source: str
    repository: str  # https://github.com/OWNER/NAME
    commit: str
    files: str  # a regular expression for the whole path
    form: str  # the form for `read_paragraphs`
    kind: str
    years: str  # when the text was written, such as 2007-2010
    basis: str  # why it is in the public domain

    @property
    def folder(self) -> str:
        """OWNER/NAME."""
        return "/".join(self.repository.split("/")[-2:])

    @property
    def is_recent(self) -> bool:
        """Whether all of it was written after 1990."""
        return int(self.years[:4]) > 1990


def read_sources(path: Path) -> list[Source]:
    """Reads the table.

    Raises:
        ValueError: if a line is wrong; the message names it.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sources = []
    for number, row in enumerate(rows, 2):
        if tuple(row) != FIELDS or not all(row.values()):
            raise ValueError(
                f"{path}, line {number}: expected the columns {', '.join(FIELDS)}, all filled, found {row}"
            )
        checks = {
            "source": r"[a-z0-9-]+",  # a file name
            "repository": r"https://github\.com/[\w-]+/(?!\.+$)[\w.-]+",
            "commit": r"[0-9a-f]{40}",
            "years": r"\d{4}-\d{4}",
        }
        for name, pattern in checks.items():
            if not re.fullmatch(pattern, row[name]):
                raise ValueError(f"{path}, line {number}: {name} must match {pattern}, found {row[name]!r}")
        sources.append(Source(**row))
    if len({source.source for source in sources}) < len(sources):
        raise ValueError(f"{path}: a source occurs twice")
    return sources
