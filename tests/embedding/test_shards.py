"""Shards: each is written once, by any number of interrupted runs; one file of any format is shards joined.

The corpus has three windows, of three, two and one sentences. Most tests run for a folder and for one file.
"""

import gzip
import io
import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from interrupts import Interrupt, at_call, count_rows, interrupted, power_cut
from vectors import SENTENCES, SUFFIXES, assert_all_close, embed_alone, embed_file, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding.processes import Alone
from elmo_hf.embedding.vector_files import Record, write_parquet

OUTPUTS = ["out/", "out.npz"]
each_output = pytest.mark.parametrize("output", OUTPUTS)
Run = Callable[..., int]


@pytest.fixture
def run(
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Embeds the corpus, or other documents, into `out/`, or another output."""
    monkeypatch.chdir(tmp_path)

    def embed_them(
        *sources: object,
        output: str = "out/",
        stream: Any = None,
        tokenizer: ElmoTokenizer = tiny_tokenizer,
        **options: Any,
    ) -> int:
        names = [str(source) for source in sources or [corpus]]
        options = {"window_characters": 59, "layers": "top"} | options
        return embed_file(mixed_model, tokenizer, stream or names, output, **options)

    return embed_them


class Waiting(Alone):
    """A process that does something when all shards are written, before they are joined."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.left = iter([lambda: None, action])

    def wait_for_everyone(self) -> None:
        next(self.left)()


def unjoined(run: Run, output: str, *sources: str) -> Path:
    """The folder of the shards of a run that ended before it joined them."""
    with pytest.raises(Interrupt):
        run(*sources, output=output, processes=Waiting(power_cut))
    return work_of(output)


def work_of(output: str) -> Path:
    return Path(output if output.endswith("/") else f"{output}.partial")


def contents(folder: str | Path) -> dict[str, bytes]:
    """Every file of a folder, or a file."""
    path = Path(folder)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def read_index() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out", "_index.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("layers", "dtype"), [("all", "float32"), ("pooled", "float16")])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shards_of_every_format_hold_the_numbers_of_the_single_file(
    suffix: str, layers: str, dtype: str, run: Run
) -> None:
    options = {"layers": layers, "dtype": dtype}
    assert run(output=f"one{suffix}", **options) == run(shard_format=suffix[1:], **options) == len(SENTENCES)
    parts = sorted(Path("out").glob("part-*"))
    assert [part.name for part in parts] == [f"part-0000{number}{suffix}" for number in range(3)]
    firsts = [line["number"] for line in read_index()]
    found = [array for part, first in zip(parts, firsts, strict=True) for array in read_vectors(part, first)]
    expected = read_vectors(Path(f"one{suffix}"))
    assert [(each.dtype, each.tobytes()) for each in found] == [(each.dtype, each.tobytes()) for each in expected]
    assert sorted(path.name for path in Path().iterdir()) == ["corpus.txt", f"one{suffix}", "out"]


def test_more_than_ten_sentences_are_joined_in_numeric_order(
    run: Run, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    lines = [f"word{index} " * (1 + index % 4) + "end" for index in range(11)]
    Path("lines.txt").write_text("\n".join(lines), encoding="utf-8")
    run("lines.txt", output="vectors.parquet", window_characters=1)
    table = pq.read_table("vectors.parquet")
    assert table["index"].to_pylist() == list(range(11))
    assert table["sentence"].to_pylist() == lines
    vectors = [np.array(rows, dtype=np.float32) for rows in table["vectors"].to_pylist()]
    assert_all_close(vectors, [embed_alone(mixed_model, tiny_tokenizer, line, "top") for line in lines])


def test_documents_of_a_pattern_and_a_folder_are_told_apart(run: Run) -> None:
    Path("in", "deep").mkdir(parents=True)
    Path("in", "b.txt").write_text("Yes\n\nThe ferry left the harbour at seven.\n")
    Path("in", "deep", "a.txt.gz").write_bytes(gzip.compress(b"No.\n"))
    Path("c1.jsonl").write_text('"One more."\n["and", "another"]\n')
    Path("c2.jsonl").symlink_to("c1.jsonl")  # the same document
    assert run("in", "c*.jsonl", "in/b.txt") == 6
    table = pq.read_table("out")  # names with an underscore are no data
    b, a, c = "in/b.txt", "in/deep/a.txt.gz", "c1.jsonl"
    assert table["document"].to_pylist() == [b, b, b, a, c, c]
    assert table["index"].to_pylist() == [0, 1, 2, 0, 0, 1]
    texts = ["Yes", "", "The ferry left the harbour at seven.", "No.", "One more.", "and another"]
    assert table["sentence"].to_pylist() == texts
    places = [[line[key] for key in ("row", "rows", "document", "index", "number")] for line in read_index()]
    assert places == [[0, 3, b, 0, 0], [3, 1, a, 0, 3], [4, 2, c, 0, 4]]
    assert run("in", "c*.jsonl", output="one.parquet") == 6
    one = pq.read_table("one.parquet")
    assert (one["index"].to_pylist(), one["sentence"].to_pylist()) == ([*range(6)], texts)


@each_output
@pytest.mark.parametrize("is_stream", [False, True], ids=["file", "stream"])
def test_an_interrupted_run_goes_on_and_touches_no_finished_shard(
    is_stream: bool, output: str, run: Run, corpus: Path, mixed_model: ElmoModel
) -> None:
    def embed(output: str) -> None:
        run(stream=io.BytesIO(corpus.read_bytes()) if is_stream else None, output=output)

    embed(f"whole-{output}")
    with interrupted(mixed_model, 2):
        embed(output)
    assert not Path(output, "_index.jsonl").exists()
    assert not Path("out.npz").exists()
    (first,) = work_of(output).glob("part-00000.*")
    before, counts = first.stat().st_mtime_ns, count_rows(mixed_model)
    embed(output)
    assert sum(counts) == 3
    assert output == "out.npz" or first.stat().st_mtime_ns == before
    assert contents(output) == contents(f"whole-{output}")


def test_a_finished_run_given_again_writes_nothing_and_removes_what_a_killed_process_left(
    run: Run, mixed_model: ElmoModel
) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}

    run()
    before, counts = times(), count_rows(mixed_model)
    for name in (".part-00000.parquet.new-17", "_index/.part-00000.txt.new-17"):
        Path("out", name).write_bytes(b"half")
    assert run() == len(SENTENCES)
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
        *product(["part-00001", "_index/part-00001"], [flip, truncate, zero, Path.unlink]),
        *product(["_index.jsonl"], [zero, Path.unlink]),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_what_is_damaged_is_made_again(
    name: str, damage: Callable[[Path], Any], output: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run(output=f"whole-{output}")
    folder = unjoined(run, output)
    run(output=output) if output == "out/" else None
    for path in folder.glob(f"{name}*"):
        damage(path)
    if (damage, name) == (flip, "_index/part-00001"):  # a digest of other sentences
        with pytest.raises(ValueError, match="the input changed"):
            run(output=output)
        return
    run(output=output)
    assert contents(output) == contents(f"whole-{output}")
    is_said = name != "_index.jsonl" and damage is not Path.unlink
    assert ["is damaged; it is computed again" in message for message in caplog.messages] == [True] * is_said


@pytest.mark.parametrize(
    ("output", "name"), [("out/", "_index/part-00002.txt"), ("out.npz", "part-00002.chunk")], ids=OUTPUTS
)
def test_what_is_damaged_at_the_last_moment_is_not_used(output: str, name: str, run: Run) -> None:
    with pytest.raises(ValueError, match="was damaged while the run went on"):
        run(output=output, processes=Waiting(lambda: (zero if output == "out/" else flip)(work_of(output) / name)))
    assert not Path("out.npz").exists()
    assert run(output=output) == len(SENTENCES)


CHANGES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "another first": lambda sentences: ["Another one.", *sentences[1:]],
    "another last": lambda sentences: [*sentences[:-1], "Another one."],
    "one less": lambda sentences: sentences[:-1],
    "one more": lambda sentences: [*sentences, "One more."],
    "emptied": lambda sentences: [],
    "words": lambda sentences: [sentences[0].split(), *sentences[1:]],
}


@each_output
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_input_is_refused(change: Callable[[list[Any]], list[Any]], output: str, run: Run) -> None:
    def write(sentences: list[Any]) -> None:
        Path("in.jsonl").write_text("".join(f"{json.dumps(sentence)}\n" for sentence in sentences))

    write(SENTENCES)
    folder = unjoined(run, output, "in.jsonl")
    whole = contents(folder)
    write(change(SENTENCES))
    with pytest.raises(ValueError, match=rf"^the input changed: {folder}/part-0000"):
        run("in.jsonl", output=output)
    assert contents(folder) == whole
    assert not Path("out.npz").exists()


@each_output
@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "rewritten"])
def test_an_input_that_changes_while_it_is_read_is_refused(
    replaces: bool, output: str, run: Run, corpus: Path, mixed_model: ElmoModel
) -> None:
    run(output=f"whole-{output}")
    content = corpus.read_bytes()

    def change_it() -> None:
        target = Path("new.txt") if replaces else corpus
        target.write_text("".join(f"{sentence}\n" for sentence in reversed(SENTENCES)), encoding="utf-8")
        target.rename(corpus)

    with at_call(mixed_model, 1, change_it), pytest.raises(ValueError, match="changed while it was being read"):
        run(output=output)
    assert not Path("out.npz").exists()
    corpus.write_bytes(content)
    if not replaces:  # a shard may be of both texts, which the next run would refuse
        shutil.rmtree(work_of(output))
    run(output=output)
    assert contents(output) == contents(f"whole-{output}")


def test_an_input_that_another_process_read_differently_is_refused(run: Run) -> None:
    def swap() -> None:
        shutil.copy("out/_index/part-00000.txt", "out/_index/part-00001.txt")

    with pytest.raises(ValueError, match=r"^the input changed"):
        run(processes=Waiting(swap))


def test_a_document_of_another_name_is_another_input_and_refused_before_the_work(
    run: Run, corpus: Path, mixed_model: ElmoModel
) -> None:
    run()
    for path in [*Path("out").glob("part-00002*"), *Path("out", "_index").glob("part-00002*")]:
        path.unlink()
    counts = count_rows(mixed_model)
    with pytest.raises(ValueError, match=r"part-00000\.parquet is of other sentences"):
        run(corpus.rename("renamed.txt"))
    assert counts == []


@each_output
@pytest.mark.parametrize("other", ["layers", "dtype", "split_into_words", "tokenizer", "model"])
def test_another_job_is_refused(other: str, output: str, run: Run, mixed_model: ElmoModel, tiny_folder: Path) -> None:
    folder = unjoined(run, output)
    whole = contents(folder)
    options: dict[str, Any] = {"layers": "mix", "dtype": "float16", "split_into_words": True}
    options["tokenizer"] = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    mixed_model.scalar_mixes[0].set_weights([0.3, 0.5, 0.2]) if other == "model" else None
    with pytest.raises(ValueError, match=rf'^{folder} holds shards of another job than  "{other}": '):
        run(output=output, **{name: value for name, value in options.items() if name == other})
    assert contents(folder) == whole


@each_output
def test_a_folder_of_other_files_and_that_of_a_second_run_are_left_alone(output: str, run: Run) -> None:
    with only_writer(Path(output)), pytest.raises(BlockingIOError):
        run(output=output)
    folder = work_of(output)
    folder.mkdir()
    (folder / "__init__.py").touch()
    with pytest.raises(FileExistsError, match=rf"^{folder} holds other files, such as __init__.py;"):
        run(output=output)
    assert [*contents(folder)] == ["__init__.py"]


def test_a_machine_that_does_not_see_the_folder_stops_before_the_work(run: Run, mixed_model: ElmoModel) -> None:
    second, counts = Alone(), count_rows(mixed_model)
    second.process_index, second.num_processes, second.is_main_process = 1, 2, False
    with pytest.raises(FileNotFoundError, match=r"out/_job\.json"):
        run(processes=second)
    assert counts == []


def test_what_is_not_utf8_is_written_with_a_question_mark(run: Run) -> None:
    record = Record(3, "A ferry.", {"vectors": np.ones((2, 4), dtype=np.float32)}, ("caf\udce9.txt", 0))
    write_parquet(Path("v.parquet"), iter([record]))
    (row,) = pq.read_table("v.parquet").to_pylist()
    assert (row["document"], row["index"], row["vectors"]) == ("caf?.txt", 0, [[1.0] * 4] * 2)
    Path("in.jsonl").write_text('"a \\ud800 b"\n')
    run("in.jsonl")
    assert pq.read_table("out")["sentence"].to_pylist() == ["a ? b"]
