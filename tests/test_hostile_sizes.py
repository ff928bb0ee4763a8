"""Small files that ask for much memory or time: a clear error within 1 GiB and 20 seconds, and nothing written."""

import resource
from pathlib import Path

import pytest
from checkpoints import BASE
from faults.runs import run
from hostile_checkpoints import HOSTILE_CHECKPOINTS

BYTES, SECONDS = 1 << 30, 20


def limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS,) * 2)


@pytest.mark.parametrize("name", HOSTILE_CHECKPOINTS)
def test_hostile_files_are_refused_within_the_limits(name: str, tmp_path: Path) -> None:
    make, word = HOSTILE_CHECKPOINTS[name]
    (tmp_path / "source").mkdir()
    source = make(tmp_path / "source")
    (tmp_path / "work").mkdir()
    options = ["--options", str(BASE / "options.json")] if source.suffix == ".th" else []
    outcome = run(["convert", str(source), "DEST", *options], tmp_path / "work", limit)
    assert outcome.is_refused, outcome
    assert word in outcome.output
    assert not list((tmp_path / "work").iterdir())
