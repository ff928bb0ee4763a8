"""Truncated files and flipped bits in every format: a `ConversionError`, or the file is read."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
from elmo_hf.conversion.readers import manylangs
from elmo_hf.conversion.readers.torch_files import read_state_dict
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.sources import open_source

CASE = "base_2l_relu"
SMALL = "one_layer_n261_batch1"  # its files are read fastest
pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture(autouse=True)
def _whole_state_dicts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ELMoForManyLangs has two state dicts; a test damages at most one of them."""
    read: dict[bytes, dict[str, np.ndarray]] = {}

    def read_once(path: Path) -> dict[str, np.ndarray]:
        content = path.read_bytes()
        if content not in read:
            read[content] = read_state_dict(path)
        return read[content]

    monkeypatch.setattr(manylangs, "read_state_dict", read_once)


def in_folder(files: dict[str, bytes]) -> Callable[[Path, str, bytes], Path]:
    """A folder in which one file is damaged."""

    def put(work: Path, name: str, content: bytes) -> Path:
        whole = {} if (work / "source").exists() else files
        return write_files(work / "source", whole | {name: content})

    return put


def alone(work: Path, name: str, content: bytes) -> Path:
    return write_files(work, {name: content}) / name


def packed(write: Callable[[Path, dict[str, bytes]], Path], files: dict[str, bytes], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write(Path(folder) / name, files).read_bytes()


def every_format() -> dict[str, tuple[Callable[[Path, str, bytes], Path], str, bytes]]:
    """For each format: a function that writes it, the name of the damaged file, and its whole content."""
    nlpl, many = nlpl_files(CASE), manylangs_files()
    small_nlpl, small_trained = nlpl_files(SMALL), archive_files(SMALL)
    lean, small_lean = (
        {name: content for name, content in trained.items() if not name.startswith("vocabulary")}
        for trained in (archive_files(CASE), small_trained)
    )
    formats = {
        "hdf5": (in_folder(small_nlpl), "model.hdf5", small_nlpl["model.hdf5"]),
        "zip": (alone, "model.zip", packed(write_zip, nlpl, "model.zip")),
        "many.zip": (alone, "many.zip", packed(write_zip, many, "many.zip")),
        "tar.gz": (alone, "model.tar.gz", packed(write_tar, lean, "model.tar.gz")),
        "th": (in_folder(small_lean), "weights.th", small_trained["weights.th"]),
        "th of the newer form": (in_folder(lean), "weights.th", state_bytes(golden_state(CASE), as_zip=True)),
    }
    for name in many:
        if name != "sentences.json":
            formats[name] = (in_folder(many), name, many[name])
    return formats


FORMATS = every_format()
# Their checksums cover everything except a few irrelevant bytes, such as dates.
CHECKSUMMED = {"zip", "many.zip", "tar.gz", "th of the newer form"}


def read(source: Path) -> dict[str, bytes] | None:
    """The tensors, or None after a `ConversionError`; any other error fails the test."""
    try:
        with open_source(source) as opened:
            tensors = recognise(opened).read(opened, Given(word_splitter="whitespace")).tensors
    except ConversionError:
        return None
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize(("put", "name", "content"), FORMATS.values(), ids=FORMATS)
def test_a_truncated_file_is_refused(
    put: Callable[[Path, str, bytes], Path], name: str, content: bytes, tmp_path: Path
) -> None:
    original = read(put(tmp_path, name, content))
    assert original is not None
    for eighth in range(8):
        source = put(tmp_path, name, content[: len(content) * eighth // 8])
        # A lexicon may lose its last lines between two of them.
        assert read(source) is None or name.endswith(".dic")
    for lost in (1, 2, 9, 40):
        found = read(put(tmp_path, name, content[:-lost]))
        assert found is None or found == original


@pytest.mark.parametrize(("kind", "form"), FORMATS.items(), ids=FORMATS)
def test_a_file_with_a_flipped_bit_is_refused_or_read_without_another_error(
    kind: str, form: Any, tmp_path: Path
) -> None:
    put, name, content = form
    original = read(put(tmp_path, name, content))
    places = sorted({number * (len(content) - 1) // 119 for number in range(120)})
    found = []
    for number, place in enumerate(places):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (number % 8)
        found.append(read(put(tmp_path, name, bytes(damaged))))
    if kind in CHECKSUMMED:
        assert all(tensors in (None, original) for tensors in found)
        assert found.count(None) > 0.9 * len(places)
