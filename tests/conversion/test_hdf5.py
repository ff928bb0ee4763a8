"""Reading hdf5 files: what h5py reads, for every way of storing that is read, and clear errors for the others."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkpoints import read_datasets

from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.hdf5 import hdf5_names, read_hdf5

TABLE = np.arange(35, dtype=np.float32).reshape(5, 7) / 3
STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks": {"chunks": (2, 3)},
    "gzip": {"chunks": (2, 3), "compression": "gzip"},
    "gzip with all filters": {"chunks": (2, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "one chunk": {"chunks": (5, 7), "compression": "gzip", "maxshape": (None, None)},
}


@pytest.mark.parametrize("settings", STORED.values(), ids=STORED)
def test_arrays_are_what_h5py_reads(settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w", libver="latest" if "maxshape" in settings else "earliest") as file:
        file.create_dataset("a/b/table", data=TABLE, **settings)
        file.create_dataset("number", data=3)
        file.create_dataset("empty", data=np.zeros((0, 3)))
        file["again"] = file["a"]
        file["a/loop"] = file["/"]
        file["soft"] = h5py.SoftLink("/number")
    found, expected = read_hdf5(path), read_datasets(path)
    names = {"number", "empty"} | {name for name in found if name.endswith("/table")}
    assert len(found) == 3
    assert found.keys() == names
    for name in names:
        np.testing.assert_array_equal(found[name], expected.get(name, TABLE))
        assert found[name].dtype == expected.get(name, TABLE).dtype
    assert hdf5_names(path) == {"a", "again", "empty", "number", "soft"}


def wrong_chunk(content: bytes) -> Callable[[h5py.File], None]:
    def write(file: h5py.File) -> None:
        table = file.create_dataset("table", data=TABLE, chunks=(5, 7), compression="gzip")
        table.id.write_direct_chunk((0, 0), content)

    return write


FAULTY: dict[str, tuple[Callable[[h5py.File], object], str]] = {
    "lzf": (
        lambda file: file.create_dataset("table", data=TABLE, compression="lzf"),
        "`table` must be stored plain or packed by gzip; run `h5repack -f NONE` on the file.",
    ),
    "scaled": (lambda file: file.create_dataset("table", data=TABLE, scaleoffset=4), "must be stored plain or packed"),
    "lost chunks": (
        lambda file: file.create_dataset("table", (3, 3), np.float32, chunks=(2, 2)).__setitem__((0, 0), 1),
        "`table` has 1 of its 4 chunks; the file was not written to its end.",
    ),
    "short chunk": (
        wrong_chunk(zlib.compress(bytes(136))),
        "`table` has a chunk that does not unpack to its 140 bytes",
    ),
    "long chunk": (wrong_chunk(zlib.compress(bytes(141))), "`table` has a chunk that does not unpack to its 140 bytes"),
    "no chunk": (wrong_chunk(b"text"), "x.hdf5 cannot be read, it may be truncated: Error -3 while decompressing data"),
    "no shape": (lambda file: file.create_dataset("table", data=h5py.Empty("f")), "`/table` has no shape."),
}


@pytest.mark.parametrize(("write", "message"), FAULTY.values(), ids=FAULTY)
def test_other_ways_of_storing_are_refused(write: Callable[[h5py.File], object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        write(file)
    with pytest.raises(ConversionError) as caught:
        read_hdf5(path)
    assert message in str(caught.value)
