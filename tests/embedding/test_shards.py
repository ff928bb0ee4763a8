"""Shards: their documents, and runs that go on. Each shard is written once, by any number of interrupted runs."""

import gzip
import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from interrupts import Waiting, contents, count_rows, interrupted, unjoined, work_of
from vectors import SENTENCES, TEXT

from elmo_hf import ElmoModel
from elmo_hf.embedding.chosen_words import ChosenWords

Embed = Callable[..., int]
each_output = pytest.mark.parametrize("output", ["out/", "out.npz"])


def test_documents_of_a_pattern_and_a_folder_are_told_apart(embed: Embed) -> None:
    Path("in", "deep").mkdir(parents=True)
    Path("in", "b.txt").write_text("Yes\n\nThe ferry left the harbour at seven.\n")
    Path("in", "deep", "a.txt.gz").write_bytes(gzip.compress(b"No.\n"))
    Path("c1.jsonl").write_text('"One more."\n["and", "another"]\n')
    Path("c2.jsonl").symlink_to("c1.jsonl")  # the same document
    assert embed("out/", "in", "c*.jsonl", "in/b.txt") == 6
    table = pq.read_table("out")  # names with an underscore are no data
    b, a, c = "in/b.txt", "in/deep/a.txt.gz", "c1.jsonl"
    assert table["document"].to_pylist() == [b, b, b, a, c, c]
    assert table["index"].to_pylist() == [0, 1, 2, 0, 0, 1]
    texts = ["Yes", "", "The ferry left the harbour at seven.", "No.", "One more.", "and another"]
    assert table["sentence"].to_pylist() == texts
    index = [json.loads(line) for line in Path("out", "_index.jsonl").read_text().splitlines()]
    places = [[line[key] for key in ("row", "rows", "document", "index", "number")] for line in index]
    assert places == [[0, 3, b, 0, 0], [3, 1, a, 0, 3], [4, 2, c, 0, 4]]
    assert embed("one.parquet", "in", "c*.jsonl", window_characters=1) == 6
    assert pq.read_table("one.parquet").drop(["vectors"]) == table.drop(["vectors"])


@pytest.mark.parametrize("output", ["out/", "out.parquet"])
def test_what_is_not_utf8_is_written_with_a_question_mark(output: str, embed: Embed) -> None:
    Path("caf\udce9.jsonl").write_text('"a \\ud800 b"\n')
    embed(output, "caf\udce9.jsonl", words=ChosenWords("[^b]"))
    (row,) = pq.read_table(output).to_pylist()
    assert (row["document"], row["index"], row["sentence"]) == ("caf?.jsonl", 0, "a ? b")
    assert (row["positions"], row["chosen_words"]) == ([0, 1], ["a", "?"])


@each_output
@pytest.mark.parametrize("is_stream", [False, True], ids=["file", "stream"])
def test_an_interrupted_run_goes_on_and_touches_no_finished_shard(
    is_stream: bool, output: str, embed: Embed, mixed_model: ElmoModel
) -> None:
    def run(output: str) -> None:
        embed(output, stream=io.BytesIO(TEXT.encode()) if is_stream else None)

    run(f"whole-{output}")
    with interrupted(mixed_model, 2):
        run(output)
    assert not Path(output, "_index.jsonl").exists()
    assert not Path("out.npz").exists()
    (first,) = work_of(output).glob("part-00000.*")
    before, counts = first.stat().st_mtime_ns, count_rows(mixed_model)
    run(output)
    assert sum(counts) == 3
    assert output == "out.npz" or first.stat().st_mtime_ns == before
    assert contents(output) == contents(f"whole-{output}")


def test_a_finished_run_given_again_writes_nothing_and_removes_what_a_killed_process_left(
    embed: Embed, mixed_model: ElmoModel
) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}

    embed("out/")
    before, counts = times(), count_rows(mixed_model)
    for name in (".part-00000.parquet.new-17", "_index/.part-00000.txt.new-17"):
        Path("out", name).write_bytes(b"half")
    assert embed("out/") == len(SENTENCES)
    assert (times(), counts) == (before, [])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@each_output
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *product(["part-00001.*", "_index/part-00001.txt"], [flip, truncate, zero, Path.unlink]),
        *product(["_index.jsonl"], [zero, Path.unlink]),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_what_is_damaged_is_made_again(
    name: str, damage: Callable[[Path], Any], output: str, embed: Embed, caplog: pytest.LogCaptureFixture
) -> None:
    embed(f"whole-{output}")
    folder = unjoined(embed, output)
    if output == "out/":
        embed(output)
    for path in folder.glob(name):
        damage(path)
    if (damage, name) == (flip, "_index/part-00001.txt"):  # a digest of other sentences
        with pytest.raises(ValueError, match="the input changed"):
            embed(output)
        return
    embed(output)
    assert contents(output) == contents(f"whole-{output}")
    is_said = name != "_index.jsonl" and damage is not Path.unlink
    assert ["is damaged; it is computed again" in message for message in caplog.messages] == [True] * is_said


def take_other_sentences(path: Path) -> None:
    path.write_bytes(path.with_name("part-00000.txt").read_bytes())


@pytest.mark.parametrize(
    ("output", "name", "damage", "message"),
    [
        ("out/", "_index/part-00002.txt", zero, "was damaged while the run went on"),
        ("out.npz", "part-00002.chunk", flip, "was damaged while the run went on"),
        ("out/", "_index/part-00001.txt", take_other_sentences, "^the input changed"),  # for another process
    ],
)
def test_what_changes_at_the_last_moment_is_not_used(
    output: str, name: str, damage: Callable[[Path], Any], message: str, embed: Embed
) -> None:
    with pytest.raises(ValueError, match=message):
        embed(output, processes=Waiting(lambda: damage(work_of(output) / name)))
    assert not Path("out.npz").exists()
    assert not Path("out", "_index.jsonl").exists()
