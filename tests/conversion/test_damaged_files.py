"""Truncated files and flipped bits in every format: a `ConversionError`, or the file is read."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from archives import (
    archive_files,
    golden_state,
    manylangs_files,
    nlpl_files,
    state_bytes,
    write_files,
    write_tar,
    write_zip,
)

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.formats import recognise
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.sources import open_source

CASE = "one_layer_n261_batch1"  # its files are read fastest
MANY, TRAINED = manylangs_files(), archive_files(CASE)
# Checksums cover everything in these except a few irrelevant bytes, such as dates.
CHECKSUMMED = ("zip", "tar.gz", "th of the newer form")
# For each format, the files of a folder and which of them is damaged, or those of an archive and how it is written.
FORMATS: dict[str, tuple[dict[str, bytes], str | Callable[..., Path]]] = {
    "hdf5": (nlpl_files(CASE), "model.hdf5"),
    "zip": (nlpl_files(CASE), write_zip),
    "tar.gz": (TRAINED, write_tar),
    "th": (TRAINED, "weights.th"),
    "th of the newer form": (TRAINED | {"weights.th": state_bytes(golden_state(CASE), as_zip=True)}, "weights.th"),
    **{name: (MANY, name) for name in ("encoder.pkl", "char.dic", "config.json")},
}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_file_is_refused_or_read(kind: str, temporary: Path, tmp_path: Path) -> None:
    files, damaged = FORMATS[kind]
    source = write_files(tmp_path / "source", files) if isinstance(damaged, str) else damaged(tmp_path / kind, files)
    path = source / damaged if isinstance(damaged, str) else source
    content = path.read_bytes()

    @cache
    def read(changed: bytes) -> dict[str, bytes] | None:
        """The tensors, or None after a `ConversionError`; any other error fails the test."""
        path.write_bytes(changed)
        try:
            with open_source(source) as opened:
                tensors = recognise(opened).read(opened, Given(word_splitter="whitespace")).tensors
        except ConversionError:
            return None
        return {name: tensor.tobytes() for name, tensor in tensors.items()}

    original = read(content)
    assert original is not None
    for eighth in range(8):
        # A lexicon may lose its last lines between two of them.
        assert read(content[: len(content) * eighth // 8]) is None or kind.endswith(".dic")
    assert all(read(content[:-lost]) in (None, original) for lost in (1, 2, 9, 40)) or kind.endswith(".dic")
    places = sorted({number * (len(content) - 1) // 59 for number in range(60)})
    found = [
        read(content[:place] + bytes([content[place] ^ 1 << number % 8]) + content[place + 1 :])
        for number, place in enumerate(places)
    ]
    if kind in CHECKSUMMED:
        assert all(tensors in (None, original) for tensors in found)
        assert found.count(None) >= 0.9 * len(places)
