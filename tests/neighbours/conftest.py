"""Folders of a small model, one for each value of `pooling`."""

from pathlib import Path

import pytest
from neighbours import save_mixed


@pytest.fixture(scope="session")
def folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_mixed(tiny_folder, tmp_path_factory.mktemp("neighbours") / "mean")


@pytest.fixture(scope="session")
def max_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_mixed(tiny_folder, tmp_path_factory.mktemp("neighbours") / "max", pooling="max")


@pytest.fixture(params=["mean", "max"])
def each_folder(request: pytest.FixtureRequest) -> Path:
    """A folder for each value of `pooling`."""
    return request.getfixturevalue("folder" if request.param == "mean" else "max_folder")
