"""A newcomer's folder, and the run that every test of the commands of language models looks at."""

from pathlib import Path

import pytest
from commands import run
from newcomer import SMALL, write_files
from typer.testing import Result


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("newcomer"))


@pytest.fixture(scope="module")
def pretrained(work: Path) -> tuple[Path, Result]:
    """Twenty steps, scored and saved every eight, in the folder `lm`."""
    files = {"--vocabulary": "words.txt", "--config": "config.json", "--held-out": "held-out.txt"}
    options = [each for name, file in files.items() for each in (name, work / file)]
    steps = ("--max-steps", 20, "--checkpoint-steps", 8, "--logging-steps", 4)
    result = run("pretrain", work / "corpus.txt", "-o", work / "lm", *options, *steps, *SMALL)
    assert result.exit_code == 0, result.output
    return work / "lm", result
