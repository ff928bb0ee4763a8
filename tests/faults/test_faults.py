"""A command that was killed, met an error of the disk or found no room leaves nothing wrong and nothing half."""

import errno
import random
import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from .jobs import JOBS, Job, content, prepare
from .runs import Outcome, Run, at_change, die, fail, limit_files

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="forks cannot use CUDA: set CUDA_VISIBLE_DEVICES=")
SEED = 2018
MOMENTS = 2


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(params=[name for name in JOBS if name != "export"])
def job(request: pytest.FixtureRequest, root: Path) -> Job:
    return prepared(root, request.param)


prepared = cache(prepare)


def assert_whole(job: Job, folder: Path, outcome: Outcome) -> None:
    assert job.is_whole(folder), (sorted(path.name for path in folder.iterdir()), outcome.output[-3000:])


@pytest.mark.parametrize("fault", [die, fail])
def test_after_a_fault_the_same_command_gives_the_same_result(
    fault: Callable[[], None], job: Job, tmp_path: Path
) -> None:
    for moment in (*random.Random(SEED).sample(range(1, job.changes), MOMENTS), job.changes):
        folder = tmp_path / str(moment)
        first = Run(job.command, folder, at_change(fault, moment)).finish()
        was_complete = content(folder / job.result) == job.content
        assert first.code == -signal.SIGKILL or first.is_refused or (first.code == 0 and was_complete), first.output
        assert was_complete or moment < job.changes  # the last one removes the lock
        again = Run(job.command, folder).finish()
        assert again.code == 0 or (was_complete and again.is_refused), (moment, again.output[-3000:])
        assert_whole(job, folder, again)


def test_without_room_a_command_says_so_and_later_gives_the_same_result(job: Job, tmp_path: Path) -> None:
    for limit in (1, job.largest // 2):
        folder = tmp_path / str(limit)
        outcome = Run(job.command, folder, limit_files(limit)).finish()
        assert outcome.is_refused, outcome.output[-3000:]
        printed = outcome.output.replace("write out", f"write {folder}/out")
        assert f"Error: there is no room to write {tmp_path}/" in printed
        assert not (folder / job.result).is_file()
        again = Run(job.command, folder).finish()
        assert again.code == 0, again.output[-3000:]
        assert_whole(job, folder, again)


def test_of_two_equal_commands_at_once_one_writes(job: Job, tmp_path: Path) -> None:
    runs = [Run(job.command, tmp_path) for _ in range(2)]
    outcomes = [each.finish() for each in runs]
    assert all(outcome.code == 0 or outcome.is_refused for outcome in outcomes), outcomes
    assert any(outcome.code == 0 for outcome in outcomes), outcomes
    assert_whole(job, tmp_path, outcomes[0])


def test_where_nothing_may_be_written_a_command_says_so(job: Job, tmp_path: Path) -> None:
    outcome = Run(job.command, tmp_path, at_change(partial(fail, errno.EACCES))).finish()
    assert outcome.is_refused, outcome.output[-3000:]
    assert "Permission denied" in outcome.output
    assert list(tmp_path.iterdir()) == []
