"""A command that was killed, found no room, met a second one or may not write leaves nothing wrong and nothing half."""

import random
import signal
from pathlib import Path

import pytest

from .conftest import Undisturbed, assert_is_result
from .jobs import JOBS, content
from .runs import Run, deny_changes, die_at_change, limit_files, run

SEED = 2018
MOMENTS = 3


@pytest.mark.parametrize("name", JOBS)
def test_after_a_kill_the_same_command_gives_the_same_result(
    name: str, inputs: Path, undisturbed: dict[str, Undisturbed], tmp_path: Path
) -> None:
    job, expected = JOBS[name], undisturbed[name].content
    for moment in random.Random(SEED).sample(range(1, undisturbed[name].changes + 1), MOMENTS):
        folder = tmp_path / str(moment)
        folder.mkdir()
        killed = run(job.command(inputs), folder, die_at_change(moment))
        assert killed.code == -signal.SIGKILL, killed.output[-3000:]
        was_complete = (folder / job.result).exists() and content(folder / job.result) == expected
        again = run(job.command(inputs), folder)
        assert again.code == 0 or (was_complete and again.is_refused), (moment, again.output[-3000:])
        assert_is_result(folder, job.result, expected, again)


@pytest.mark.parametrize("name", JOBS)
def test_without_room_a_command_says_so_and_later_gives_the_same_result(
    name: str, inputs: Path, undisturbed: dict[str, Undisturbed], tmp_path: Path
) -> None:
    job, expected = JOBS[name], undisturbed[name]
    for limit in (1, expected.largest // 2):
        folder = tmp_path / str(limit)
        folder.mkdir()
        outcome = run(job.command(inputs), folder, limit_files(limit))
        assert outcome.is_refused, outcome.output[-3000:]
        assert f"Error: there is no room to write {folder}/" in outcome.output.replace(
            "write out", f"write {folder}/out"
        )
        assert not (folder / job.result).is_file()
        again = run(job.command(inputs), folder)
        assert again.code == 0, again.output[-3000:]
        assert_is_result(folder, job.result, expected.content, again)


@pytest.mark.parametrize("name", JOBS)
def test_of_two_equal_commands_at_once_one_writes(
    name: str, inputs: Path, undisturbed: dict[str, Undisturbed], tmp_path: Path
) -> None:
    job, folder = JOBS[name], tmp_path / "both"
    folder.mkdir()
    runs = [Run(job.command(inputs), folder) for _ in range(2)]
    outcomes = [each.finish() for each in runs]
    assert all(outcome.code == 0 or outcome.is_refused for outcome in outcomes), outcomes
    assert any(outcome.code == 0 for outcome in outcomes), outcomes
    assert_is_result(folder, job.result, undisturbed[name].content, outcomes[0])


@pytest.mark.parametrize("name", JOBS)
def test_where_nothing_may_be_written_a_command_says_so(name: str, inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    outcome = run(JOBS[name].command(inputs), folder, deny_changes)
    assert outcome.is_refused, outcome.output[-3000:]
    assert "Permission denied" in outcome.output
    assert list(folder.iterdir()) == []
