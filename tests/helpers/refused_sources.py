"""Tables of inputs that a conversion refuses: makers of SOURCEs, and the test of a row.

A maker writes a SOURCE into an empty folder and returns it, alone or with what is given beside it. The sentence of the
error is not pinned.
"""

import json
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers.archives import archive_files, nlpl_files, write_files, write_tar, write_zip
from tests.helpers.checkpoints import BASE, base_checkpoint

Made = Path | tuple[Path, NamedFiles]
Maker = Callable[[Path], Made]
Files = dict[str, bytes]
# By the name of an input: its maker, and what the error must name.
Rows = dict[str, tuple[Any, ...]]

CASE, BYTES = BASE.name, 1 << 30
TRAINED, NLPL = archive_files(BASE.name), nlpl_files(BASE.name)
OPTIONS, ARRAYS = base_checkpoint()
ONES, UNPACKED = torch.ones(2), "when it is unpacked"
ABSENT = object()


def changed(whole: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Files or arrays by name with changes, of which None removes one."""
    return {name: data for name, data in (whole | changes).items() if data is not None}


def files(changes: Mapping[str, bytes | None], whole: Mapping[str, bytes] = {}, given: str = "") -> Maker:
    """A folder of files with changes; the SOURCE is the folder, or the file `given`."""

    def make(folder: Path) -> Made:
        write_files(folder, changed(whole, changes))
        return (folder / given, NamedFiles(BASE / "options.json")) if given else folder

    return make


def options(path: str, value: Any, whole: Any = OPTIONS) -> bytes:
    """Options with one value replaced or removed."""
    whole = json.loads(json.dumps(whole))
    *parents, key = path.split(".")
    place = whole
    for parent in parents:
        place = place[parent]
    place[key] = value
    if value is ABSENT:
        del place[key]
    return json.dumps(whole).encode()


def packed(
    changes: Mapping[Any, bytes | None], whole: Files = TRAINED, write: Callable[[Path, Files], Path] = write_tar
) -> Maker:
    """The archive of files with changes, a trained model's or others."""
    return lambda folder: write(folder / f"model.{'zip' if write is write_zip else 'tar.gz'}", changed(whole, changes))


def each_row(formats: Mapping[str, Rows]) -> pytest.MarkDecorator:
    """A test of every row, by the name of its format and its own."""
    rows = {f"{begin}, {name}": row for begin, rows in formats.items() for name, row in rows.items()}
    return pytest.mark.parametrize("row", rows.values(), ids=rows)


def assert_refused(row: tuple[Any, ...], folder: Path) -> None:
    """The error has the names, and nothing is written.

    This process cannot take a gibibyte more, so a file that declares more must be refused before it is unpacked.
    """
    make, *names = row
    (folder / "source").mkdir()
    made = make(folder / "source")
    source, given = made if isinstance(made, tuple) else (made, NamedFiles())
    before = sorted(folder.rglob("*"))
    pages, limits = int(Path("/proc/self/statm").read_text().split()[0]), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, limits[1]))
    try:
        with pytest.raises(ConversionError) as caught:
            convert_source(source, folder / "DEST", given)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    for name in names:
        assert name in str(caught.value)
    assert str(caught.value).isprintable() or "\n  " in str(caught.value)
    assert "weights_only=False" not in str(caught.value)
    assert sorted(folder.rglob("*")) == before
