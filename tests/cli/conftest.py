"""A newcomer's folder, and the run that tests of the commands of language models look at."""

from pathlib import Path

import pytest

from tests.helpers.pretraining_runs import files_of, pretrain, write_files


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("newcomer"))


@pytest.fixture(scope="session")
def pretrained(work: Path) -> tuple[Path, str]:
    """Twenty steps, the eighth the best, scored and saved every eight, in `lm`; and what the command printed."""
    steps = ("--max-steps", 20, "--checkpoint-steps", 8, "--logging-steps", 4)
    return work / "lm", pretrain(work, work / "lm", *files_of(work), "--held-out", work / "unexpected.txt", *steps)
