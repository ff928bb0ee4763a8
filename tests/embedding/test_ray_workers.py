"""`--engine ray`: the shards of one process, though a worker is lost; a worker that dies thrice is named."""

import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm import tqdm
from typer.testing import CliRunner
from vectors import SENTENCES

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.cli import app
from elmo_hf.embedding import ray_workers, shards
from elmo_hf.embedding.inputs import Documents
from elmo_hf.embedding.processes import Processes
from elmo_hf.embedding.ray_workers import RayWorkers
from elmo_hf.embedding.shards import embed_documents

COPIES = 40


@pytest.fixture(scope="module")
def two_workers() -> Iterator[None]:
    """A cluster of two processor cores on this machine."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


@pytest.fixture
def run(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Embeds a corpus of 120 windows into a folder; gives the contents of its files."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the workers
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 59)
    (tmp_path / "in.txt").write_text("".join(f"{each}\n" for each in SENTENCES) * COPIES, encoding="utf-8")

    def embed_it(name: str, processes: Processes) -> dict[str, bytes]:
        folder, documents = tmp_path / name, Documents.find([str(tmp_path / "in.txt")])
        found = embed_documents(mixed_model, tiny_tokenizer, documents, f"{folder}/", layers="mix", processes=processes)
        assert found == len(SENTENCES) * COPIES
        return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    yield embed_it
    torch.set_num_threads(num_threads)


def workers() -> list[int]:
    """The processes of `_Worker`, which Ray names so."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists() and path.read_bytes().startswith(b"ray::_Worker")
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="finds Ray's processes in /proc")
def test_the_shards_of_a_lost_worker_are_computed_again(
    two_workers: None, run: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        while not list((tmp_path / "ray").glob("part-00002*")):
            time.sleep(0.01)
        killed.extend(workers()[:1])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_one)
    thread.start()
    found = run("ray", RayWorkers("cpu"))
    thread.join()
    assert len(killed) == 1
    assert found == run("alone", Processes())


def test_a_worker_that_dies_three_times_is_named(two_workers: None) -> None:
    class Deadly:
        def begin(self, process: str, device: str) -> None:
            assert (process, device) == (f"a worker on {os.uname().nodename}", "cpu")

        def __call__(self, number: int) -> int:
            if number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return 10

    message = (
        r"^a worker of Ray died 3 times, the last time at shard 1: .*worker process has died.* Finished shards stay; "
    )
    with tqdm(disable=True) as bar, pytest.raises(ValueError, match=message):
        RayWorkers().map(Deadly(), ((number,) for number in range(2)), bar)


def test_other_errors_of_ray_name_the_shard(two_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def give_up(done: Any) -> None:
        raise ray.exceptions.OutOfMemoryError("Task was killed due to the node\nrunning low on memory.")

    monkeypatch.setattr(ray, "get", give_up)
    message = r"^Ray gave shard 3 up: .*Task was killed due to the node running low on memory\. Finished shards stay\.$"
    with pytest.raises(ValueError, match=message):
        ray_workers._result(None, 3)


def test_workers_that_are_done_make_room_for_those_that_wait(two_workers: None) -> None:
    import ray

    @ray.remote(num_cpus=1)
    class Other:
        def is_there(self) -> bool:
            return True

    class Counting:
        def begin(self, process: str, device: str) -> None:
            pass

        def __call__(self, number: int) -> int:
            return 10

    other = Other.remote()  # another job takes one of two cores
    assert ray.get(other.is_there.remote())
    bar = tqdm(disable=True)
    arguments = [(number,) for number in range(3)]
    thread = threading.Thread(target=lambda: RayWorkers("cpu").map(Counting(), arguments, bar), daemon=True)
    thread.start()
    thread.join(60)
    ray.kill(other)
    assert not thread.is_alive()


def test_errors_of_workers_are_those_of_the_function(two_workers: None) -> None:
    class Failing:
        def begin(self, process: str, device: str) -> None:
            pass

        def __call__(self, number: int) -> int:
            raise FileNotFoundError("there is no file x.")

    with tqdm(disable=True) as bar, pytest.raises(FileNotFoundError, match=r"^there is no file x\.$"):
        RayWorkers().map(Failing(), [(0,)], bar)


def test_a_cluster_without_gpus_says_so(two_workers: None) -> None:
    with tqdm(disable=True) as bar, pytest.raises(ValueError, match=r"^Ray's cluster has no GPU\.$"):
        RayWorkers("cuda").map(len, [], bar)


def test_a_machine_that_does_not_see_the_folder_is_named(
    two_workers: None, run: Callable[..., dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = shards._Shards.look

    def move_and_look(self: Any, process: str) -> None:
        look(self, process)
        (tmp_path / "out" / "_job.json").rename(tmp_path / "elsewhere")

    monkeypatch.setattr(shards._Shards, "look", move_and_look)
    message = (
        rf"^a worker on {os.uname().nodename} does not see {tmp_path}/out/_job\.json, which the first process wrote"
    )
    with pytest.raises(ValueError, match=message):
        run("out", RayWorkers())


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^with Ray, the device must be cpu or cuda, found 'cuda:1'\.$"):
        RayWorkers("cuda:1")


def test_the_command_needs_ray_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.txt").write_text("Yes\n")
    command = ["embed", "tiny", str(tmp_path / "in.txt"), "--engine", "ray", "-o"]
    one_file = CliRunner().invoke(app, [*command, str(tmp_path / "out.npz")])
    message = f"neither stores nor Ray write it; give a folder: `-o {tmp_path}/out/`."
    assert message in one_file.output.replace("\n", " ")
    find = importlib.util.find_spec
    monkeypatch.setattr("elmo_hf.extras.find_spec", lambda name: None if name == "ray" else find(name))
    result = CliRunner().invoke(app, [*command, f"{tmp_path}/out/"])
    assert result.exit_code == 1
    assert re.search(r"^Error: this needs ray, .* the whole extra: pip install '\.\[ray\]'", result.output)
    assert not (tmp_path / "out").exists()


def test_the_command_writes_shards(two_workers: None, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Yes\n")
    command = ["embed", "tiny", str(tmp_path / "in.txt"), "--engine", "ray", "-o", f"{tmp_path}/out/"]
    result = CliRunner().invoke(app, command)
    assert f"Wrote 1 sentence to {tmp_path}/out/." in result.output.replace("\n", " ")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "_index",
        "_index.jsonl",
        "_job.json",
        "part-00000.parquet",
    }
