"""A newcomer's folder, and the run that every test of the commands of language models looks at."""

from pathlib import Path

import pytest
from newcomer import pretrain_whole, write_files
from typer.testing import Result


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("newcomer"))


@pytest.fixture(scope="module")
def pretrained(work: Path) -> tuple[Path, Result]:
    return pretrain_whole(work)
