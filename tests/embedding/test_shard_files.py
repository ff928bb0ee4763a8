"""What `elmo-hf check` finds in a folder of shards: every single change of its files has its name in the line."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from elmo_hf import ElmoModel
from elmo_hf.embedding.shard_files import SHARD_SUMS, compare_shards
from elmo_hf.embedding.shards import FORMATS
from elmo_hf.embedding.stores import Folder
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.interrupts import interrupted, unjoined

Change = Callable[[Path], object]
FIRST, SECOND, LAST = (f"part-0000{number}.parquet" for number in range(3))


def compare(folder: str | Path = "out") -> list[str]:
    return compare_shards(Folder(str(folder))).faults


def copy(source: str, target: str) -> Change:
    return lambda folder: shutil.copy(folder / source, folder / target)


def remove(*names: str) -> Change:
    return lambda folder: [path.unlink() for name in names for path in folder.glob(name)]


def swap(folder: Path, first: str, second: str) -> None:
    (folder / first).rename(folder / "x")
    (folder / second).rename(folder / first)
    (folder / "x").rename(folder / second)


def cut(name: str) -> Change:
    """Takes the last line of a text, or the last byte of another file."""

    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        is_text = name.startswith("_index")
        kept = b"".join(content.splitlines(keepends=True)[:-1]) if is_text else content[:-1]
        (folder / name).write_bytes(kept)

    return change


def written(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def bit(name: str) -> Change:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return change


def entry(number: int) -> str:
    return f"_index/part-0000{number}.txt"


def twins(folder: Path) -> None:
    swap(folder, FIRST, SECOND)
    swap(folder, entry(0), entry(1))


NOT_FINISHED = "_index.jsonl, which is written when all shards are there, is missing"
# By what happened to a folder: the change, and what the line says of it.
CHANGES: dict[str, tuple[Change, str]] = {
    "all shards lost": (remove("part-*"), f"{LAST} is missing"),
    "the last shard lost": (remove(LAST), f"{LAST} is missing"),
    "the last shard lost with its entry": (remove(LAST, entry(2)), f"{LAST} is missing"),
    "no entries": (lambda folder: shutil.rmtree(folder / "_index"), f"{entry(0)} is missing"),
    "one entry lost": (remove(entry(1)), f"{entry(1)} is missing"),
    "an entry of another shard": (copy(entry(1), entry(0)), f"{entry(0)} is changed"),
    "an empty entry": (written(entry(1), b""), f"{entry(1)} is changed"),
    "a shard twice": (copy(SECOND, FIRST), f"{FIRST} is changed"),
    "two shards swapped": (lambda folder: swap(folder, FIRST, SECOND), f"{SECOND} is changed"),
    "two shards and their entries swapped": (twins, f"{SECOND} is changed"),
    "a shard cut": (cut(SECOND), f"{SECOND} is changed"),
    "an empty shard": (written(SECOND, b""), f"{SECOND} is changed"),
    "a bit of a shard": (bit(SECOND), f"{SECOND} is changed"),
    "a shard renamed": (lambda folder: (folder / LAST).rename(folder / "part-3.parquet"), "part-3.parquet is not"),
    "a shard behind the last": (copy(FIRST, "part-00003.parquet"), "part-00003.parquet is not in _index.jsonl"),
    "a shard of another name": (copy(FIRST, "mine.parquet"), "mine.parquet is not in _index.jsonl"),
    "an entry behind the last": (copy(entry(0), entry(3)), f"{entry(3)} is not in _index.jsonl"),
    "not finished": (remove("_index.jsonl", SHARD_SUMS), NOT_FINISHED),
    "no index": (remove("_index.jsonl"), NOT_FINISHED),
    "an empty index": (written("_index.jsonl", b""), "_index.jsonl is damaged or names no shard"),
    "an index of bytes": (written("_index.jsonl", b"\xff"), "_index.jsonl is damaged or names no shard"),
    "an index without its last line": (cut("_index.jsonl"), f"{LAST} is not in _index.jsonl"),
    "a bit of the index": (bit("_index.jsonl"), "_index.jsonl is"),
    "no job": (remove("_job.json"), "_job.json is missing"),
    "another job": (written("_job.json", b"{}"), "_job.json is changed"),
    "an empty list": (written(SHARD_SUMS, b""), f"{SHARD_SUMS} does not list _job.json"),
    "a list that was cut": (cut(SHARD_SUMS), f"{SHARD_SUMS} does not list {entry(2)}"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the first test fills."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture
def shards(embed: Callable[..., int], whole: Path) -> Path:
    """A finished folder of shards."""
    if not any(whole.iterdir()):
        embed(f"{whole}/")
    shutil.copytree(whole, "out")
    assert compare() == []
    return Path("out")


@pytest.mark.parametrize("case", CHANGES)
def test_a_single_change_is_named(case: str, shards: Path) -> None:
    change, fault = CHANGES[case]
    change(shards)
    assert any(line.startswith(fault) for line in compare())


def test_the_command_says_how_many_files_are_whole_or_what_is_not_in_one_line(shards: Path) -> None:
    # Three shards, three entries, job and index.
    printed = "Checked 8 files of out/: nothing changed since it was written.\n"
    assert output_of("check", "out/") == printed
    (shards / LAST).unlink()
    (shards / entry(0)).unlink()
    assert_fails(run("check", "out"), 1, f"out is not as it was written: {LAST} is missing; {entry(0)} is missing.")


def test_files_of_the_user_that_no_reader_takes_for_vectors_are_no_fault(shards: Path) -> None:
    for name in ("README.md", ".DS_Store", "_SUCCESS", "_old/part.parquet"):
        (shards / name).parent.mkdir(exist_ok=True)
        (shards / name).touch()
    assert compare() == []


def test_a_folder_of_an_earlier_version_is_compared_with_its_index_and_told_apart(
    shards: Path, embed: Callable[..., int]
) -> None:
    (shards / SHARD_SUMS).unlink()
    comparison = compare_shards(Folder("out"))
    assert (comparison.faults, len(comparison.notes)) == ([], 1)
    assert "_job.json and the documents in _index.jsonl were not compared" in comparison.notes[0]
    for name in (entry(0), FIRST):
        content = (shards / name).read_bytes()
        (shards / name).write_bytes(content[:-2])
        assert len(compare()) == 2 if name == FIRST else 1  # a shard, and its size in the entry
        (shards / name).write_bytes(content)
    embed("out/")  # the same command completes it
    assert (shards / SHARD_SUMS).is_file()
    assert compare_shards(Folder("out")).notes == []


@pytest.mark.parametrize("output", ["out/", "out.npz"])
def test_work_that_is_not_finished_is_no_finished_folder(
    output: str, embed: Callable[..., int], mixed_model: ElmoModel
) -> None:
    if output == "out/":
        with interrupted(mixed_model, 2):
            embed(output)
        folder = Path("out")
    else:
        folder = unjoined(embed, output)
    (fault,) = compare(folder)
    assert fault.startswith(NOT_FINISHED)


@pytest.mark.parametrize("shard_format", FORMATS)
def test_shards_of_each_format_are_compared_on_a_disk_and_in_a_store(
    shard_format: str, embed: Callable[..., int], tmp_path: Path
) -> None:
    embed("out/", shard_format=shard_format)
    store: Any = fsspec.filesystem("memory")
    store.put("out", "/copied", recursive=True)
    try:
        assert (compare(), compare("memory://copied")) == ([], [])
        name = f"part-00001.{shard_format}"
        content = store.cat_file(f"/copied/{name}")
        store.pipe(f"/copied/{name}", content[:-1] + bytes([content[-1] ^ 1]))  # of the same size
        assert compare("memory://copied") == [f"{name} is changed"]
        store.rm(f"/copied/{name}")
        assert compare("memory://copied") == [f"{name} is missing"]
        assert_fails(run("check", "memory://copied"), 1, f"{name} is missing")
        assert_fails(run("check", "memory://nothing"), 1, "memory://nothing has no shards")
    finally:
        store.rm("/copied", recursive=True)


def test_the_list_is_what_sha256sum_checks(shards: Path) -> None:
    names = [line.split("  ")[1] for line in (shards / SHARD_SUMS).read_text().splitlines()]
    assert names == ["../_index.jsonl", "../_job.json", *(f"part-0000{number}.txt" for number in range(3))]
    command = ["sha256sum", "-c", "SHA256SUMS"]
    checked = subprocess.run(command, cwd=shards / "_index", capture_output=True, text=True, check=True)
    assert checked.stdout.count(": OK\n") == len(names)
