"""Shards: each is written once, by any number of interrupted runs; one file of any format is shards joined.

The corpus has three windows, of three, two and one sentences. Most tests run for a folder and for one file.
"""

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from interrupts import Interrupt, count_rows, fail_at_call
from vectors import SENTENCES, SUFFIXES, assert_all_close, embed_alone, embed_file, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding import shards, stores, vector_files
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.processes import Processes
from elmo_hf.embedding.shards import embed_documents
from elmo_hf.embedding.vector_files import Record, write_parquet
from elmo_hf.embedding.window_vectors import Selection
from elmo_hf.text.sentences import storable

FIRST, SECOND = "part-00000.parquet", "part-00001.parquet"
OUTPUTS = ["out/", "out.npz"]
each_output = pytest.mark.parametrize("output", OUTPUTS)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shards, "CHUNK_CHARACTERS", 59)
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 59)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path) -> Callable[..., int]:
    """Embeds the corpus, or other documents, into `out/`, or another output."""

    def embed_them(*sources: object, output: str = "out/", stream: Any = None, **options: Any) -> int:
        documents = Documents.find([str(source) for source in sources or [corpus]], output, stream=stream)
        kept = {name: options.pop(name) for name in ("layers", "dtype") if name in options}
        return embed_documents(
            mixed_model, tiny_tokenizer, documents, output, Selection(**{"layers": "top"} | kept), **options
        )

    return embed_them


def contents(folder: str | Path) -> dict[str, bytes]:
    """Every file of a folder, or a file."""
    path = Path(folder)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def read_index(folder: str = "out") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "_index.jsonl").read_text().splitlines()]


def work_of(output: str) -> Path:
    """The folder of the shards."""
    return Path(output if output.endswith("/") else f"{output}.partial")


@pytest.mark.parametrize(
    ("suffix", "options"),
    [*((suffix, {}) for suffix in SUFFIXES), (".parquet", {"layers": "pooled", "dtype": "float16"})],
    ids=[*SUFFIXES, "pooled"],
)
def test_shards_of_every_format_hold_the_numbers_of_the_single_file(
    suffix: str, options: dict[str, Any], run: Callable[..., int], corpus: Path
) -> None:
    options = {"layers": "all"} | options
    assert run(output=f"one{suffix}", **options) == run(shard_format=suffix[1:], **options) == len(SENTENCES)
    parts = sorted(Path("out").glob("part-*"))
    assert [part.name for part in parts] == [f"part-0000{number}{suffix}" for number in range(3)]
    firsts = [line["number"] for line in read_index()]
    found = [array for part, first in zip(parts, firsts, strict=True) for array in read_vectors(part, first)]
    expected = read_vectors(Path(f"one{suffix}"))
    assert [(each.dtype, each.tobytes()) for each in found] == [(each.dtype, each.tobytes()) for each in expected]
    assert sorted(path.name for path in Path().iterdir()) == ["corpus.txt", f"one{suffix}", "out"]


@pytest.mark.parametrize("characters", [1, 1000], ids=["many windows", "one window"])
def test_more_than_ten_sentences_are_joined_in_numeric_order(
    characters: int,
    run: Callable[..., int],
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shards, "CHUNK_CHARACTERS", characters)
    lines = [f"word{index} " * (1 + index % 4) + "end" for index in range(23)]
    Path("lines.txt").write_text("\n".join(lines), encoding="utf-8")
    run("lines.txt", output="vectors.parquet")
    table = pq.read_table("vectors.parquet")
    assert table["index"].to_pylist() == list(range(23))
    assert table["sentence"].to_pylist() == lines
    vectors = [np.array(rows, dtype=np.float32) for rows in table["vectors"].to_pylist()]
    assert_all_close(vectors, [embed_alone(mixed_model, tiny_tokenizer, line, "top") for line in lines])


def test_documents_of_a_pattern_and_a_folder_are_told_apart(run: Callable[..., int]) -> None:
    Path("in", "deep").mkdir(parents=True)
    Path("in", "b.txt").write_text("Yes\n\nThe ferry left the harbour at seven.\n")
    Path("in", "deep", "a.txt.gz").write_bytes(gzip.compress(b"No.\n"))
    Path("in", ".hidden").write_bytes(b"\xff")
    Path("in", "_index").mkdir()
    Path("in", "_index", "b.txt").write_text("nothing\n")
    Path("c1.jsonl").write_text('"One more."\n["and", "another"]\n')
    assert run("in", "c*.jsonl", "in/b.txt") == 6
    table = pq.read_table("out")  # names with an underscore are no data
    b, a, c = "in/b.txt", "in/deep/a.txt.gz", "c1.jsonl"
    assert table.column_names == ["document", "index", "sentence", "vectors"]
    assert table["document"].to_pylist() == [b, b, b, a, c, c]
    assert table["index"].to_pylist() == [0, 1, 2, 0, 0, 1]
    texts = ["Yes", "", "The ferry left the harbour at seven.", "No.", "One more.", "and another"]
    assert table["sentence"].to_pylist() == texts
    index = read_index()
    assert [line.pop("checksum") != "" for line in index] == [True] * 3
    assert index == [
        {"shard": FIRST, "row": 0, "rows": 3, "document": b, "index": 0, "number": 0},
        {"shard": FIRST, "row": 3, "rows": 1, "document": a, "index": 0, "number": 3},
        {"shard": FIRST, "row": 4, "rows": 2, "document": c, "index": 0, "number": 4},
    ]
    assert run("in", "c*.jsonl", output="one.parquet") == 6
    one = pq.read_table("one.parquet")
    assert (one["index"].to_pylist(), one["sentence"].to_pylist()) == ([*range(6)], texts)


@each_output
def test_an_output_inside_of_the_input_is_not_read(output: str, run: Callable[..., int]) -> None:
    Path("in").mkdir()
    Path("in", "a.txt").write_text("Yes\n")
    for _ in range(2):
        assert run("in", "in/**", output=f"in/{output}") == 1
        if output == "out.npz":
            Path("in", output).unlink()


@each_output
def test_standard_input_is_one_document(output: str, run: Callable[..., int], corpus: Path) -> None:
    assert run("-", stream=io.BytesIO(corpus.read_bytes()), output=output) == 6
    assert run(output=f"file-{output}") == 6
    if output == "out.npz":
        assert contents(output) == contents(f"file-{output}")
    else:
        tables = [pq.read_table(name) for name in (output, f"file-{output}")]
        assert tables[0]["document"].to_pylist() == ["-"] * 6
        assert tables[0].drop_columns("document").equals(tables[1].drop_columns("document"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_input_makes_an_output_without_entries(suffix: str, run: Callable[..., int]) -> None:
    Path("empty.txt").touch()
    assert run("empty.txt", output=f"v{suffix}") == run("empty.txt", shard_format=suffix[1:]) == 0
    assert contents("out").pop("_index.jsonl") == b""
    assert pq.read_table("v.parquet").num_rows == 0 if suffix == ".parquet" else read_vectors(Path(f"v{suffix}")) == []


class Second(Processes):
    """The second of two processes."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.count = 1, 2

    def on_first(self, function: Any) -> Any:
        return None


@each_output
def test_a_machine_that_does_not_see_the_folder_says_so(output: str, run: Callable[..., int]) -> None:
    with pytest.raises(ValueError, match=rf"^process 1 does not see {work_of(output)}/_job\.json"):
        run(processes=Second(), output=output)


@each_output
@pytest.mark.parametrize(
    ("owner", "name", "call", "computed"),
    [
        (shards, "embed_window", 2, 3),
        (stores.Folder, "new", 4, 3),  # the job, a shard, its entry, the second shard
        (stores.Folder, "new", 5, 3),  # its entry: the shard has its name and is made again
        (shards._Shards, "finish", 1, 0),
    ],
    ids=["computing", "shard", "entry", "end"],
)
def test_an_interrupted_run_goes_on_and_touches_no_finished_shard(
    owner: Any,
    name: str,
    call: int,
    computed: int,
    output: str,
    run: Callable[..., int],
    mixed_model: ElmoModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(output=f"whole-{output}")
    with monkeypatch.context() as patch:
        fail_at_call(patch, owner, name, call)
        with pytest.raises(Interrupt):
            run(output=output)
    assert not Path(output, "_index.jsonl").exists()
    assert not Path("out.npz").exists()
    (first,) = work_of(output).glob("part-00000.*")
    before = first.stat().st_mtime_ns
    counts = count_rows(mixed_model, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "publish_last", lambda written, file: written.rename(file))  # leaves the folder
        run(output=output, batch_words=1)  # other batches do not matter
    assert sum(counts) == computed
    assert first.stat().st_mtime_ns == before
    assert sorted(contents(output)) == sorted(contents(f"whole-{output}"))
    for found, whole in zip(
        sorted(Path().glob("out*/part*.parquet")), sorted(Path().glob("whole*/part*")), strict=False
    ):
        first_number = int(pq.read_table(whole)["index"][0].as_py())
        assert_all_close(read_vectors(found, first_number), read_vectors(whole, first_number))


@each_output
def test_an_interrupted_stream_goes_on_when_it_comes_again(
    output: str, run: Callable[..., int], corpus: Path, mixed_model: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = corpus.read_bytes()
    with monkeypatch.context() as patch:
        fail_at_call(patch, shards, "embed_window", 2)
        with pytest.raises(Interrupt):
            run("-", stream=io.BytesIO(content), output=output)
    with pytest.raises(ValueError, match="of other sentences"):
        run("-", stream=io.BytesIO(b"Another sentence.\n" * 9), output=output)
    counts = count_rows(mixed_model, monkeypatch)
    run("-", stream=io.BytesIO(content), output=output)
    assert sum(counts) == 3


def test_a_finished_run_given_again_writes_nothing(
    run: Callable[..., int], mixed_model: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}

    run()
    before, counts = times(), count_rows(mixed_model, monkeypatch)
    assert run() == len(SENTENCES)
    assert (times(), counts) == (before, [])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.fixture
def unjoined(run: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Gives the shards of a finished folder, or of one file that they were not joined in."""

    def make(output: str) -> Path:
        with monkeypatch.context() as patch:
            if output == "out.npz":
                fail_at_call(patch, shards._Shards, "finish", 1)
            try:
                run(output=output)
            except Interrupt:
                assert output == "out.npz"
        return work_of(output)

    return make


@each_output
@pytest.mark.parametrize("damage", [flip, truncate, zero, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["part-00001", "_index/part-00001", "_job", "_index.jsonl"])
def test_what_is_damaged_is_made_again(
    damage: Callable[[Path], Any],
    name: str,
    output: str,
    run: Callable[..., int],
    unjoined: Callable[[str], Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run(output=f"whole-{output}")
    folder = unjoined(output)
    for path in folder.glob(f"{name}*"):
        damage(path)
    run(output=output)
    assert contents(output) == contents(f"whole-{output}")
    is_said = name == "part-00001" or (name == "_index/part-00001" and damage is not Path.unlink)
    assert ["is damaged; it is computed again" in message for message in caplog.messages] == [True] * is_said


@pytest.mark.parametrize(
    ("output", "name"), [("out/", "_index/part-00002.json"), ("out.npz", "part-00002.chunk")], ids=OUTPUTS
)
def test_what_is_damaged_at_the_last_moment_is_not_used(
    output: str, name: str, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = shards._Shards.finish

    def damage_and_finish(*arguments: Any) -> None:
        flip(work_of(output) / name)
        finish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shards._Shards, "finish", damage_and_finish)
        with pytest.raises(ValueError, match=rf"{name} was damaged while the run went on"):
            run(output=output)
    assert not Path("out.npz").exists()
    assert run(output=output) == len(SENTENCES)


def test_what_a_killed_process_left_half_written_is_removed(run: Callable[..., int]) -> None:
    run()
    whole = contents("out")
    for name in (f".{FIRST}.new-17", "_index/.part-00000.json.new-17"):
        Path("out", name).write_bytes(b"half")
    run()
    assert contents("out") == whole


CHANGES: dict[str, Callable[[list[str]], list[str]]] = {
    "another first": lambda sentences: ["Another one.", *sentences[1:]],
    "another last": lambda sentences: [*sentences[:-1], "Another one."],
    "one less": lambda sentences: sentences[:-1],
    "one more": lambda sentences: [*sentences, "One more."],
    "emptied": lambda sentences: [],
}


@each_output
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_input_is_refused(
    change: Callable[[list[str]], list[str]],
    output: str,
    run: Callable[..., int],
    unjoined: Callable[[str], Path],
    corpus: Path,
) -> None:
    folder = unjoined(output)
    whole = contents(folder)
    corpus.write_text("".join(f"{sentence}\n" for sentence in change(SENTENCES)), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^the input changed: {folder}/part-0000"):
        run(output=output)
    assert contents(folder) == whole
    assert not Path("out.npz").exists()


@each_output
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "rewritten"])
def test_an_input_that_changes_while_it_is_read_is_refused(
    replaces: bool,
    change: Callable[[list[str]], list[str]],
    output: str,
    run: Callable[..., int],
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(output=f"whole-{output}")
    content, embed_window = corpus.read_bytes(), shards.embed_window

    def change_and_embed(*arguments: Any) -> Iterator[Any]:
        target = Path("new.txt") if replaces else corpus
        target.write_text("".join(f"{sentence}\n" for sentence in change(SENTENCES)), encoding="utf-8")
        target.rename(corpus)
        return embed_window(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "embed_window", change_and_embed)
        with pytest.raises(ValueError, match=rf"^{corpus} changed while it was being read"):
            run(output=output)
    assert not Path("out.npz").exists()
    corpus.write_bytes(content)
    if not replaces:  # a shard may be of both texts, which the next run would refuse
        shutil.rmtree(work_of(output))
    run(output=output)
    assert contents(output) == contents(f"whole-{output}")


def test_an_input_that_another_process_read_differently_is_refused(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = shards._Shards._digest
    monkeypatch.setattr(shards._Shards, "_digest", lambda self, window: digest(self, window._replace(sentences=[])))
    write = shards._Shards.write
    monkeypatch.setattr(shards._Shards, "write", lambda *args: monkeypatch.undo() or write(*args))
    with pytest.raises(ValueError, match=r"^the input changed"):
        run(output=str(Path("out").absolute()) + "/")


def test_a_shard_behind_a_gap_is_beyond_a_shorter_input_too(run: Callable[..., int], corpus: Path) -> None:
    run()
    rows = read_index()[0]["rows"]
    for name in (SECOND, "_index/part-00001.json", "_index.jsonl"):
        Path("out", name).unlink()
    corpus.write_text("".join(f"{sentence}\n" for sentence in SENTENCES[:rows]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^the input changed: out/part-00002\.parquet"):
        run()


def test_a_document_of_another_name_is_another_input_and_refused_before_the_work(
    run: Callable[..., int], corpus: Path, mixed_model: ElmoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    for path in [*Path("out").glob("part-00002*"), *Path("out", "_index").glob("part-00002*")]:
        path.unlink()
    counts = count_rows(mixed_model, monkeypatch)
    with pytest.raises(ValueError, match=r"part-00000\.parquet is of other sentences"):
        run(corpus.rename("renamed.txt"))
    assert counts == []


@each_output
@pytest.mark.parametrize(
    ("options", "other"),
    [({"layers": "mix"}, "layers"), ({"dtype": "float16", "layers": "mix"}, "layers and dtype"), ({}, "model")],
    ids=["layers", "layers and dtype", "model"],
)
def test_another_job_is_refused(
    options: dict[str, Any],
    other: str,
    output: str,
    run: Callable[..., int],
    unjoined: Callable[[str], Path],
    mixed_model: ElmoModel,
) -> None:
    folder = unjoined(output)
    whole = contents(folder)
    if other == "model":
        mixed_model.scalar_mixes[0].set_weights([0.3, 0.5, 0.2])
    with pytest.raises(ValueError, match=rf"^{folder} holds shards of another {other};"):
        run(output=output, **options)
    assert contents(folder) == whole


def test_another_tokenizer_or_splitting_is_another_job(
    run: Callable[..., int], mixed_model: ElmoModel, tiny_folder: Path, tiny_tokenizer: ElmoTokenizer, corpus: Path
) -> None:
    run()
    other = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    with pytest.raises(ValueError, match=r"of another tokenizer;"):
        embed_file(mixed_model, other, corpus, "out/", layers="top")
    with pytest.raises(ValueError, match=r"of another split_into_words;"):
        embed_file(mixed_model, tiny_tokenizer, corpus, "out/", layers="top", split_into_words=True)


@pytest.mark.parametrize("name", ["thesis.tex", "__init__.py"])
@each_output
def test_a_folder_of_other_files_is_left_alone(output: str, name: str, run: Callable[..., int]) -> None:
    folder = work_of(output)
    folder.mkdir()
    (folder / name).touch()
    with pytest.raises(FileExistsError, match=rf"^{folder} holds other files, such as {name};"):
        run(output=output)
    assert [*contents(folder)] == [name]


@each_output
def test_a_second_run_with_the_same_output_is_refused(output: str, run: Callable[..., int]) -> None:
    with only_writer(Path(output)), pytest.raises(BlockingIOError, match=r"is being written by process \d+"):
        run(output=output)


def test_a_file_of_safetensors_has_a_limit(run: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "MOST_TENSORS", len(SENTENCES))
    assert run(output="v.safetensors") == len(SENTENCES)
    with pytest.raises(ValueError, match=r"at most 6 arrays, .* found 12"):
        run(output="w.safetensors", dtype="int8")


def test_a_shard_has_about_as_many_bytes_for_every_model_and_kind(
    mixed_model: ElmoModel, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 12 * 4 * mixed_model.config.hidden_size)
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 1000)
    for options, characters in (({}, 72), ({"dtype": "float16"}, 144), ({"layers": "all"}, 24)):
        run(output=f"out{characters}/", **options)
        job = json.loads(Path(f"out{characters}", "_job.json").read_text().splitlines()[1])
        assert job["shard_characters"] == characters


def test_a_file_given_twice_is_one_document() -> None:
    Path("a.txt").write_text("A ferry .\n", encoding="utf-8")
    Path("b.txt").symlink_to("a.txt")
    assert Documents.find(["b.txt", "a.txt", "*.txt"], "out/").names == ["b.txt"]


def test_a_document_whose_name_is_not_utf8_is_written(tmp_path: Path) -> None:
    record = Record(3, "A ferry.", {"vectors": np.ones((2, 4), dtype=np.float32)}, ("caf\udce9.txt", 0))
    write_parquet(tmp_path / "v.parquet", iter([record]))
    (row,) = pq.read_table(tmp_path / "v.parquet").to_pylist()
    assert (row["document"], row["index"], row["vectors"]) == (storable("caf\udce9.txt"), 0, [[1.0] * 4] * 2)


def test_the_input_is_opened_once(run: Callable[..., int], corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_file = stores.InputFile.open
    monkeypatch.setattr(stores.InputFile, "open", lambda self, mode: opened.append(str(self)) or open_file(self, mode))
    for output in OUTPUTS:
        run(output=output)
    assert opened == [str(corpus)] * 2
