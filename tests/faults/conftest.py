"""What the tests of faults share: inputs, and each command's result when nothing goes wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from elmo_hf.share import export

from .jobs import JOBS, content, make_inputs
from .runs import Outcome, count_changes_into, run


class Undisturbed(NamedTuple):
    """A command's result, how many changes it makes to its folder, and the size of its largest file."""

    content: dict[str, str]
    changes: int
    largest: int


@pytest.fixture(scope="package")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="package", autouse=True)
def _traced_once(inputs: Path) -> Iterator[None]:
    """Traces the exported model here, once, and does not run the file: both take long and write nothing.

    Not for longer than these tests: others of the same process export for themselves.
    """
    program = export._program(export.NamedTensors(export.load_for_export(inputs / "model"), has_state=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_program", lambda module: program)
        patch.setattr(export, "_runner", lambda path: None)
        yield


@pytest.fixture(scope="package")
def undisturbed(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    results = {}
    for name, job in JOBS.items():
        folder = tmp_path_factory.mktemp("undisturbed")
        count = folder.with_name(f"{folder.name}.count")
        outcome = run(job.command(inputs), folder, count_changes_into(count))
        assert outcome.code == 0, outcome.output[-3000:]
        assert [path.name for path in folder.iterdir()] == [job.result]
        largest = max(path.stat().st_size for path in [folder / job.result, *(folder / job.result).rglob("*")])
        results[name] = Undisturbed(content(folder / job.result), count.stat().st_size, largest)
    return results


def assert_is_result(folder: Path, result: str, expected: dict[str, str], outcome: Outcome) -> None:
    """The folder holds the result and nothing else."""
    assert sorted(path.name for path in folder.iterdir()) == [result], outcome.output[-3000:]
    assert content(folder / result) == expected
