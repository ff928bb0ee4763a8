"""Shards: documents, runs that go on, each shard written once; and what embedding refuses."""

import gzip
import io
import json
import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from elmo_hf import ElmoModel, ElmoTokenizer, tiny_model
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding import Embedder, shards, vector_files
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.processes import Alone
from elmo_hf.embedding.vector_files import Record
from elmo_hf.embedding.window_vectors import Selection
from tests.helpers.interrupts import (
    Interrupt,
    Waiting,
    at_call,
    contents,
    count_rows,
    interrupted,
    power_cut,
    unjoined,
    work_of,
)
from tests.helpers.vectors import SENTENCES, TEXT, read_vectors

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


@each_output
@pytest.mark.parametrize(("lost", "shards_are"), [(1, "2 finished shards are"), (2, "1 finished shard is"), (3, None)])
def test_a_run_that_goes_on_notes_the_shards_that_an_earlier_one_finished(
    lost: int, shards_are: str | None, output: str, embed: Embed, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unjoined(embed, output, show_progress=True)
    assert caplog.messages == []
    for number in range(lost):  # a run may end between a shard and its entry
        (folder / "_index" / f"part-0000{number}.txt").unlink()
    embed(output, show_progress=True)
    notes = []
    if shards_are is not None:
        notes.append(f"Note: {shards_are} in {folder} already; only the others are computed.")
    assert caplog.messages == notes


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def misspell(path: Path) -> None:
    """The digest in an entry becomes none."""
    path.write_text("g" + path.read_text()[1:])


def end_with_vertical_tab(path: Path) -> None:
    """Another bit makes this of the end of a line; it is a blank, too."""
    path.write_bytes(path.read_bytes().removesuffix(b"\n") + b"\v")


def put_other_digest(path: Path) -> None:
    """The digest in an entry becomes that of other sentences."""
    text = path.read_text()
    path.write_text(("0" if text[0] != "0" else "1") + text[1:])


@each_output
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *product(["part-00001.*"], [flip, truncate, zero, Path.unlink]),
        *product(["_index/part-00001.txt"], [misspell, truncate, zero, end_with_vertical_tab, Path.unlink]),
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
    embed(output)
    assert contents(output) == contents(f"whole-{output}")
    is_said = name != "_index.jsonl" and damage is not Path.unlink
    assert ["is damaged; it is computed again" in message for message in caplog.messages] == [True] * is_said


@each_output
def test_an_entry_of_other_sentences_is_named_and_its_removal_is_enough(output: str, embed: Embed) -> None:
    embed(f"whole-{output}")
    folder = unjoined(embed, output)
    entry = folder / "_index" / "part-00001.txt"
    put_other_digest(entry)
    written_before = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    with pytest.raises(ValueError, match=f"the input changed: .* If it did not, delete {entry}: only its shard"):
        embed(output)
    entry.unlink()
    embed(output)
    assert contents(output) == contents(f"whole-{output}")
    if output == "out/":
        changed = [path.name for path, time in written_before.items() if path.stat().st_mtime_ns != time]
        assert changed == ["part-00001.parquet"]


@each_output
@pytest.mark.parametrize("name", ["part-00001.{}", "_index/part-00001.txt"])
def test_the_copy_of_a_shard_or_an_entry_is_named_and_its_removal_is_enough(
    name: str, output: str, embed: Embed
) -> None:
    embed(f"whole-{output}")
    folder = unjoined(embed, output)
    path = folder / name.format("parquet" if output == "out/" else "chunk")
    copy = path.with_name(path.name.replace("1", "8"))
    copy.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=f"{copy} is beyond its last shard; or the file is a copy"):
        embed(output)
    copy.unlink()
    embed(output)
    assert contents(output) == contents(f"whole-{output}")


def test_the_shards_of_a_file_that_was_joined_are_removed_and_others_stay(
    embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shards, "leftover", lambda path: power_cut())  # when the file has its name
        with pytest.raises(Interrupt):
            embed("out.npz")
    assert Path("out.npz.partial").is_dir()
    whole = Path("out.npz").read_bytes()
    Path("out.npz").rename("mine.npz")
    Path("out.npz").write_bytes(whole)  # a copy that somebody made
    with pytest.raises(FileExistsError):
        embed("out.npz")
    assert Path("out.npz.partial").is_dir()
    Path("mine.npz").rename("out.npz")
    with pytest.raises(FileExistsError):
        embed("out.npz")
    assert [path.name for path in Path().glob("*out.npz*")] == ["out.npz"]
    assert Path("out.npz").read_bytes() == whole


def test_a_removal_of_joined_shards_that_was_broken_off_goes_on(embed: Embed, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree

    def remove_until_last(path: Path) -> None:
        if path.name == "out.npz.partial":
            raise Interrupt
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "leftover", lambda path: power_cut())  # when the file has its name
        with pytest.raises(Interrupt):
            embed("out.npz")
    with monkeypatch.context() as patch:
        patch.setattr(shards.shutil, "rmtree", remove_until_last)
        with pytest.raises(Interrupt):
            embed("out.npz")
    assert [path.name for path in Path("out.npz.partial").iterdir()] == [shards.JOINED]
    with pytest.raises(FileExistsError):
        embed("out.npz")
    assert [path.name for path in Path().glob("*out.npz*")] == ["out.npz"]


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


def many_arrays() -> None:
    one = np.zeros(1, dtype=np.int8)
    record = Record(0, "", {"vectors": one, "scales": one}, ("", 0))
    vector_files.write_safetensors(Path("v"), iter([record] * 3), most=1)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no such layers": (lambda: Selection("second").check(), ValueError, "'second'"),
    "a negative number": (lambda: Selection("-1").check(), ValueError, "'-1'"),
    "a negative int": (lambda: Embedder(layers=-1), ValueError, "'-1'"),
    "no layer of this number": (lambda: Selection("3").check_number(tiny_model()), ValueError, "0 to 2"),
    "no such dtype": (lambda: Selection(dtype="int4").check(), ValueError, "'int4'"),
    "words of pooled": (lambda: Selection("pooled", words=ChosenWords("a")).check(), ValueError, "with `words`"),
    "bfloat16 in NumPy": (lambda: Embedder(dtype="bfloat16"), ValueError, "NumPy"),
    "bfloat16 in hdf5": (lambda: Selection(dtype="bfloat16").check(".hdf5"), ValueError, ".hdf5"),
    "no file of words": (lambda: ChosenWords("words.txt"), FileNotFoundError, "words.txt"),
    "a folder of words": (lambda: ChosenWords("."), ValueError, ". is a folder, but the words to keep are a file"),
    "no pattern": (lambda: ChosenWords("(bank"), ValueError, "'(bank'"),
    "no column": (lambda: Embedder()({"body": ["a"]}), KeyError, "text"),
    "not a text": (lambda: Embedder()({"text": ["a", 17]}), ValueError, "found 17"),
    "a header that is too long": (many_arrays, ValueError, "at most 1 arrays"),
}


@pytest.mark.parametrize(("call", "kind", "named"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused(
    call: Callable[[], Any], kind: type[Exception], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        call()
    assert named in str(caught.value)


def test_vectors_that_are_nan_are_refused_with_the_first_sentence(
    embed: Embed, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    inputs = tiny_tokenizer([["Übung"]], is_split_into_words=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        mixed_model.token_encoder.embedding.weight[inputs[0, 1, 1]] = torch.nan  # a byte of sentence 3 alone
    for dtype in ("float32", "int8"):
        for output in ("out.npz", "out/"):
            with pytest.raises(ValueError, match="NaN for sentence 3, counted from 0"):
                embed(f"{dtype}-{output}", dtype=dtype)
    embed("v.npz", allow_nan=True, layers="top")
    assert [np.isnan(each).any() for each in read_vectors("v.npz")] == [n == 3 for n in range(6)]


SENTENCES_CHANGED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "another first": lambda sentences: ["Another one.", *sentences[1:]],
    "another last": lambda sentences: [*sentences[:-1], "Another one."],
    "one less": lambda sentences: sentences[:-1],
    "one more": lambda sentences: [*sentences, "One more."],
    "emptied": lambda sentences: [],
    "words of a string": lambda sentences: [sentences[0].split(), *sentences[1:]],
}
OF_THE_JOB = ["layers", "dtype", "words", "split_into_words", "tokenizer", "model"]


@each_output
@pytest.mark.parametrize("change", [*SENTENCES_CHANGED, "another name", *OF_THE_JOB])
def test_a_run_does_not_go_on_with_other_sentences_or_another_job(
    change: str, output: str, embed: Embed, mixed_model: ElmoModel, tiny_folder: Path
) -> None:
    def write(name: str, sentences: list[Any]) -> str:
        Path(name).write_text("".join(f"{json.dumps(sentence)}\n" for sentence in sentences))
        return name

    folder = unjoined(embed, output, write("in.jsonl", SENTENCES), layers="top", words=ChosenWords("Yes"))
    if change in ("another first", "another name", *OF_THE_JOB):  # found before the missing shard is computed
        for path in folder.rglob("part-00002*"):
            path.unlink()
    whole, counts = contents(folder), count_rows(mixed_model)
    name = "other.jsonl" if change == "another name" else "in.jsonl"
    write(name, SENTENCES_CHANGED.get(change, list)(SENTENCES))
    Path("words.txt").write_text("Yes")  # a list is not the same as a pattern
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    options: dict[str, Any] = {"layers": "mix", "dtype": "float16", "words": ChosenWords("words.txt")}
    options |= {"split_into_words": True, "tokenizer": tokenizer}
    given = {"layers": "top", "words": ChosenWords("Yes")} | {key: options[key] for key in options if key == change}
    if change == "model":
        mixed_model.scalar_mixes[0].set_weights([0.3, 0.5, 0.2])
    said = f"the input changed: {folder}/part-0000"
    if change in OF_THE_JOB:
        said = f'{folder} holds shards of another job than "{change}": '
    with pytest.raises(ValueError, match=f"^{said}"):
        embed(output, name, **given)
    assert (contents(folder), counts) == (whole, [])
    assert not Path("out.npz").exists()


@each_output
@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "rewritten"])
def test_an_input_that_changes_while_it_is_read_is_refused(
    replaces: bool, output: str, embed: Embed, mixed_model: ElmoModel
) -> None:
    def change_it() -> None:
        target = Path("new.txt" if replaces else "corpus.txt")
        target.write_text("".join(f"{sentence}\n" for sentence in reversed(SENTENCES)), encoding="utf-8")
        target.rename("corpus.txt")

    with at_call(mixed_model, 1, change_it), pytest.raises(ValueError, match="changed while it was being read"):
        embed(output)
    assert not Path("out.npz").exists()
    assert not Path("out", "_index.jsonl").exists()


@each_output
def test_a_folder_of_other_files_and_that_of_a_second_run_are_left_alone(output: str, embed: Embed) -> None:
    with only_writer(Path(output)), pytest.raises(BlockingIOError):
        embed(output)
    folder = work_of(output)
    folder.mkdir()
    (folder / "__init__.py").touch()
    with pytest.raises(FileExistsError, match=rf"^{folder} holds other files, such as __init__.py;"):
        embed(output)
    assert [*contents(folder)] == ["__init__.py"]


def test_a_dataset_without_its_library_is_refused_when_documents_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"^org/films is no file, so it is read as a dataset: "):
        Documents.find(["org/films"], "", column="text")


def test_only_the_main_process_locks_a_file_to_check_it(tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    with only_writer(output):
        shards.check_output(str(output), Selection(), "parquet", is_main_process=False)
        with pytest.raises(BlockingIOError):
            shards.check_output(str(output), Selection(), "parquet", is_main_process=True)
    output.touch()
    for is_main_process in (True, False):
        with pytest.raises(FileExistsError):
            shards.check_output(str(output), Selection(), "parquet", is_main_process)


@each_output
def test_shards_without_their_job_are_left_alone_and_the_missing_file_is_named(output: str, embed: Embed) -> None:
    folder = unjoined(embed, output)
    (folder / "_job.json").unlink()
    before = contents(folder)
    with pytest.raises(FileExistsError, match=rf"^{folder} holds files of shards, such as .*, but not _job\.json, "):
        embed(output)
    assert contents(folder) == before
    shutil.rmtree(folder)
    embed(output)


def test_a_machine_that_does_not_see_the_folder_stops_before_the_work(embed: Embed, mixed_model: ElmoModel) -> None:
    second, counts = Alone(), count_rows(mixed_model)
    second.process_index, second.num_processes, second.is_main_process = 1, 2, False
    with pytest.raises(FileNotFoundError, match=r"out/_job\.json"):
        embed("out/", processes=second)
    assert counts == []
