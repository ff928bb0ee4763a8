"""Reading hdf5 files: what h5py reads, for every way of storing that is read, and clear errors for the others."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkpoints import read_datasets

from elmo_hf.conversion.hdf5 import read_hdf5

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
