"""`--engine ray`: the shards of one process, though a worker is lost; either kind of run continues the other's."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo_hf import ElmoModel
from tests.helpers.commands import assert_fails, output_of
from tests.helpers.commands import run as run_command
from tests.helpers.interrupts import contents, count_rows
from tests.helpers.vectors import SENTENCES, TEXT

ray = pytest.importorskip("ray")

from elmo_hf.embedding.ray_data import in_workers, line_of_worker  # noqa: E402

COPIES = 40


@pytest.fixture(scope="module", autouse=True)
def _two_workers() -> Iterator[None]:
    """A cluster of two processor cores on this machine."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


@pytest.fixture
def run(embed: Callable[..., int]) -> Iterator[Callable[..., dict[str, bytes]]]:
    """Embeds a corpus of 120 windows; gives the contents of the files."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the workers
    Path("corpus.txt").write_text(TEXT * COPIES, encoding="utf-8")

    def run_it(output: str, **options: Any) -> dict[str, bytes]:
        assert embed(output, layers="mix", **options) == len(SENTENCES) * COPIES
        return contents(output)

    yield run_it
    torch.set_num_threads(num_threads)


def workers() -> list[int]:
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists() and path.read_bytes().startswith(b"ray::MapWorker")
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="finds Ray's processes in /proc")
def test_the_shards_of_a_lost_worker_are_computed_again(run: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        while not [*(tmp_path / "ray").glob("part-0002*")] or len(workers()) < 2:
            time.sleep(0.01)
        killed.extend(workers()[:1])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    found = run("ray/", make_shards=partial(in_workers, device="cpu"))
    thread.join(1)
    assert len(killed) == 1
    assert found == run("alone/")


def test_runs_with_and_without_ray_continue_each_other(
    run: Callable[..., dict[str, bytes]], mixed_model: ElmoModel, tmp_path: Path
) -> None:
    whole = run("out/")
    for pattern in ("part-000[0-4]*", "part-000[6-9]*"):
        for path in (tmp_path / "out").glob(pattern):
            path.unlink()
        counts = count_rows(mixed_model)
        assert run("out/", make_shards=in_workers) == whole
        assert run("out/") == whole
        assert counts == []


def test_a_device_that_the_cluster_lacks_is_named(run: Callable[..., dict[str, bytes]]) -> None:
    with pytest.raises(ValueError, match=r"^with Ray, .* found 'cuda'"):
        run("out/", make_shards=partial(in_workers, device="cuda"))


def test_the_command_ends_with_a_line_where_a_worker_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Yes\n")
    command = ("embed", "tiny", tmp_path / "in.txt", "--engine", "ray", "-o", f"{tmp_path}/out/")
    assert output_of(*command) == f"Wrote 1 sentence to {tmp_path}/out/.\n"
    (tmp_path / "out" / "part-00000.parquet").unlink()
    shutil.rmtree(tmp_path / "out" / "_index")
    (tmp_path / "out" / "_index").touch()
    assert_fails(run_command(*command), 1, "_index")


def test_an_error_of_the_library_of_a_store_is_one_line_from_a_worker_too() -> None:
    error = type("ClientError", (Exception,), {"__module__": "botocore.exceptions"})("Slow\nDown")
    assert str(line_of_worker(error)).startswith(
        "a store does not answer as it should (Slow Down); look at its address"
    )
    assert line_of_worker(OSError()) == "OSError"
    assert line_of_worker(RuntimeError("a mistake")) is None
