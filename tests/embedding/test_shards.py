"""Folders of shards: the numbers of the single file, each shard written once, by any number of interrupted runs."""

import errno
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from interrupts import Interrupt, count_rows, fail_at_call
from vectors import SENTENCES, SUFFIXES, assert_all_close, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding import embed, shards, stores
from elmo_hf.embedding.embed import embed_file
from elmo_hf.embedding.inputs import Documents
from elmo_hf.embedding.processes import Processes
from elmo_hf.embedding.shards import embed_documents
from elmo_hf.embedding.vector_files import Record, write_parquet
from elmo_hf.sentences import storable

FIRST, SECOND = "part-00000.parquet", "part-00001.parquet"


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus has three windows, of three, two and one sentences."""
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", 59)
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 59)


@pytest.fixture(scope="module")
def mixed_model(tiny_folder: Path) -> ElmoModel:
    """Loaded once, as no test here changes it."""
    return ElmoModel.from_pretrained(tiny_folder)


@pytest.fixture
def run(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path) -> Callable[..., int]:
    """Embeds the corpus, or other documents, into the folder `out`, or another."""

    def embed_them(*sources: object, folder: str = str(tmp_path / "out"), **options: Any) -> int:
        documents = Documents.find([str(source) for source in sources or [corpus]])
        return embed_documents(mixed_model, tiny_tokenizer, documents, folder, **{"layers": "top"} | options)

    return embed_them


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def read_index(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "_index.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("suffix", "options"),
    [*((suffix, {}) for suffix in SUFFIXES), (".parquet", {"layers": "pooled", "dtype": "float16"})],
    ids=[*SUFFIXES, "pooled"],
)
def test_shards_of_every_format_hold_the_numbers_of_the_single_file(
    suffix: str,
    options: dict[str, Any],
    run: Callable[..., int],
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
) -> None:
    options = {"layers": "all"} | options
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / f"one{suffix}", **options)
    assert run(shard_format=suffix[1:], **options) == len(SENTENCES)
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert [part.name for part in parts] == [f"part-0000{number}{suffix}" for number in range(3)]
    firsts = [line["number"] for line in read_index(tmp_path / "out")]
    found = [array for part, first in zip(parts, firsts, strict=True) for array in read_vectors(part, first)]
    expected = read_vectors(tmp_path / f"one{suffix}")
    assert [(each.dtype, each.tobytes()) for each in found] == [(each.dtype, each.tobytes()) for each in expected]


def test_documents_of_a_pattern_and_a_folder_are_told_apart(run: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "b.txt").write_text("Yes\n\nThe ferry left the harbour at seven.\n")
    (tmp_path / "in" / "deep" / "a.txt.gz").write_bytes(gzip.compress(b"No.\n"))
    (tmp_path / "in" / ".hidden").write_bytes(b"\xff")
    (tmp_path / "in" / "_index").mkdir()
    (tmp_path / "in" / "_index" / "b.txt").write_text("nothing\n")
    (tmp_path / "c1.jsonl").write_text('"One more."\n["and", "another"]\n')
    assert run(tmp_path / "in", tmp_path / "c*.jsonl") == 6
    table = pq.read_table(tmp_path / "out")  # names with an underscore are no data
    b, a, c = (str(tmp_path / name) for name in ("in/b.txt", "in/deep/a.txt.gz", "c1.jsonl"))
    assert table.column_names == ["document", "index", "sentence", "vectors"]
    assert table["document"].to_pylist() == [b, b, b, a, c, c]
    assert table["index"].to_pylist() == [0, 1, 2, 0, 0, 1]
    texts = ["Yes", "", "The ferry left the harbour at seven.", "No.", "One more.", "and another"]
    assert table["sentence"].to_pylist() == texts
    index = read_index(tmp_path / "out")
    assert [line.pop("checksum") != "" for line in index] == [True] * 3
    assert index == [
        {"shard": FIRST, "row": 0, "rows": 3, "document": b, "index": 0, "number": 0},
        {"shard": FIRST, "row": 3, "rows": 1, "document": a, "index": 0, "number": 3},
        {"shard": FIRST, "row": 4, "rows": 2, "document": c, "index": 0, "number": 4},
    ]


def test_standard_input_is_read_once(
    run: Callable[..., int], mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    documents = Documents(["-"], stream=io.BytesIO(corpus.read_bytes()))
    assert embed_documents(mixed_model, tiny_tokenizer, documents, str(tmp_path / "stdin"), layers="top") == 6
    run()
    tables = [pq.read_table(tmp_path / name) for name in ("stdin", "out")]
    assert tables[0]["document"].to_pylist() == ["-"] * 6
    assert tables[0].drop_columns("document").equals(tables[1].drop_columns("document"))


class Second(Processes):
    """The second of two processes."""

    def __init__(self) -> None:
        super().__init__()
        self.index, self.count = 1, 2

    def on_first(self, function: Any) -> Any:
        return None


def test_standard_input_has_one_reader(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    documents = Documents(["-"], stream=io.BytesIO())
    message = r"^several processes cannot share standard input; write it to a file, and give that\.$"
    with pytest.raises(ValueError, match=message):
        embed_documents(mixed_model, tiny_tokenizer, documents, str(tmp_path / "out"), processes=Second())


def test_a_machine_that_does_not_see_the_folder_says_so(run: Callable[..., int], tmp_path: Path) -> None:
    message = rf"^process 1 does not see {tmp_path}/out/_job\.json, which the first process wrote; the machines must "
    with pytest.raises(ValueError, match=message):
        run(processes=Second())


@pytest.mark.parametrize(
    ("owner", "name", "call", "computed"),
    [
        (shards, "embed_window", 2, 3),
        (stores.Folder, "new", 4, 3),  # the job, a shard, its entry, the second shard
        (stores.Folder, "new", 5, 3),  # its entry: the shard has its name and is made again
        (stores.Folder, "new", 8, 0),  # the index of all
    ],
    ids=["computing", "shard", "entry", "index"],
)
def test_an_interrupted_run_goes_on_and_touches_no_finished_shard(
    owner: Any,
    name: str,
    call: int,
    computed: int,
    run: Callable[..., int],
    mixed_model: ElmoModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(folder=str(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        fail_at_call(patch, owner, name, call)
        with pytest.raises(Interrupt):
            run()
    assert "_index.jsonl" not in contents(tmp_path / "out")
    before = (tmp_path / "out" / FIRST).stat().st_mtime_ns
    counts = count_rows(mixed_model, monkeypatch)
    run()
    assert sum(counts) == computed
    assert (tmp_path / "out" / FIRST).stat().st_mtime_ns == before
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_finished_run_given_again_writes_nothing(
    run: Callable[..., int], mixed_model: ElmoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    before, counts = times(tmp_path / "out"), count_rows(mixed_model, monkeypatch)
    assert run() == len(SENTENCES)
    assert (times(tmp_path / "out"), counts) == (before, [])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (flip, SECOND),
        (truncate, SECOND),
        (Path.unlink, SECOND),
        (flip, "_index/part-00001.json"),
        (Path.unlink, "_index/part-00001.json"),
        (truncate, "_job.json"),
        (flip, "_index.jsonl"),
    ],
)
def test_what_is_damaged_is_made_again(
    damage: Callable[[Path], Any],
    name: str,
    run: Callable[..., int],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run()
    whole = contents(tmp_path / "out")
    damage(tmp_path / "out" / name)
    run()
    assert contents(tmp_path / "out") == whole
    is_said = name == SECOND or (name.startswith("_index/") and damage is not Path.unlink)
    assert caplog.messages == [f"{tmp_path}/out/{SECOND} is damaged; it is computed again."] * is_said


def test_a_shard_that_may_not_be_read_is_named(
    run: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    whole = contents(tmp_path / "out")
    read = shards.checksum_of

    def refuse(path: Path) -> str:
        if path.name == SECOND:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "checksum_of", refuse)
        with pytest.raises(PermissionError, match=rf"Permission denied: '{tmp_path}/out/{SECOND}'$"):
            run()
    assert contents(tmp_path / "out") == whole


def test_an_entry_that_is_damaged_at_the_last_moment_is_not_used(
    run: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = shards._Shards.finish

    def damage_and_finish(*arguments: Any) -> None:
        flip(tmp_path / "out" / "_index" / "part-00002.json")
        finish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(shards._Shards, "finish", damage_and_finish)
        message = (
            f"^{tmp_path}/out/_index/part-00002.json was damaged while the run went on; give the same command again"
        )
        with pytest.raises(ValueError, match=message):
            run()
    run()
    assert len(read_index(tmp_path / "out")) == 3


def test_what_a_killed_process_left_half_written_is_removed(run: Callable[..., int], tmp_path: Path) -> None:
    run()
    whole = contents(tmp_path / "out")
    for name in (f".{FIRST}.new-17", "_index/.part-00000.json.new-17"):
        (tmp_path / "out" / name).write_bytes(b"half")
    run()
    assert contents(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["Another one.", *SENTENCES[1:]], "part-00000.parquet is of other sentences: the input changed. Make it what"),
        (SENTENCES[:-1], "part-00002.parquet is beyond the end of the input, which changed. Make it what it was, or"),
        ([*SENTENCES, "More."], "part-00002.parquet is of other sentences: the input changed. Make it what it was"),
    ],
    ids=["another first", "one less", "one more"],
)
def test_a_changed_input_is_refused(
    sentences: list[str], message: str, run: Callable[..., int], corpus: Path, tmp_path: Path
) -> None:
    run()
    whole = contents(tmp_path / "out")
    corpus.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path}/out/{message}')}"):
        run()
    assert contents(tmp_path / "out") == whole


def test_a_shard_behind_a_gap_is_beyond_a_shorter_input_too(
    run: Callable[..., int], corpus: Path, tmp_path: Path
) -> None:
    run()
    rows = read_index(tmp_path / "out")[0]["rows"]
    for name in ("part-00001.parquet", "_index/part-00001.json", "_index.jsonl"):
        (tmp_path / "out" / name).unlink()
    corpus.write_text("".join(f"{sentence}\n" for sentence in SENTENCES[:rows]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"out/part-00002\.parquet is beyond the end of the input"):
        run()


def test_a_document_of_another_name_is_another_input(run: Callable[..., int], corpus: Path, tmp_path: Path) -> None:
    run()
    with pytest.raises(ValueError, match=r"part-00000\.parquet is of other sentences"):
        run(corpus.rename(tmp_path / "renamed.txt"))


@pytest.mark.parametrize(
    ("options", "other"),
    [({"layers": "mix"}, "layers"), ({"shard_format": "npz", "dtype": "float16"}, "dtype and format")],
    ids=["layers", "dtype and format"],
)
def test_another_job_is_refused(options: dict[str, Any], other: str, run: Callable[..., int], tmp_path: Path) -> None:
    run()
    whole = contents(tmp_path / "out")
    message = f"{tmp_path}/out holds shards of another {other}; give another folder, or delete that one to start anew."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(**options)
    assert contents(tmp_path / "out") == whole


@pytest.mark.parametrize("name", ["thesis.tex", "__init__.py"])
def test_a_folder_of_other_files_is_left_alone(name: str, run: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).touch()
    message = f"{tmp_path}/out holds other files, such as {name}; give a new folder."
    with pytest.raises(FileExistsError, match=f"^{re.escape(message)}$"):
        run()
    assert [*contents(tmp_path / "out")] == [name]


def test_a_second_run_with_the_same_folder_is_refused(run: Callable[..., int], tmp_path: Path) -> None:
    with only_writer(tmp_path / "out"), pytest.raises(BlockingIOError, match="out is being written by another process"):
        run()


def test_an_unknown_format_is_named(run: Callable[..., int]) -> None:
    message = r"^`shard_format` must be one of parquet, safetensors, npz, hdf5, found 'csv'\.$"
    with pytest.raises(ValueError, match=message):
        run(shard_format="csv")


def test_a_shard_has_about_as_many_bytes_for_every_model_and_kind(
    mixed_model: ElmoModel, run: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 12 * 4 * mixed_model.config.hidden_size)
    monkeypatch.setattr(shards, "SHARD_CHARACTERS", 1000)
    for options, characters in (({}, 72), ({"dtype": "float16"}, 144), ({"layers": "all"}, 24)):
        folder = tmp_path / f"out{characters}"
        run(folder=str(folder), **options)
        assert json.loads((folder / "_job.json").read_text().splitlines()[1])["shard_characters"] == characters


def test_an_empty_input_makes_a_folder_with_an_empty_index(run: Callable[..., int], tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    assert run(tmp_path / "empty.txt") == 0
    assert contents(tmp_path / "out").pop("_index.jsonl") == b""


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        (["none.txt"], FileNotFoundError, "there is no file PLACE/none.txt."),
        (["none-*.txt"], ValueError, "PLACE/none-*.txt matches no file."),
        (["empty"], ValueError, "the folder PLACE/empty holds no file."),
        (["corpus.txt", "corpus.*"], ValueError, "PLACE/corpus.txt is given twice."),
        (["corpus.txt", "-"], ValueError, "standard input (-) must be the only input."),
    ],
    ids=["file", "pattern", "folder", "twice", "stdin"],
)
def test_an_input_that_is_not_there_is_named(
    sources: list[str], error: type[Exception], message: str, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(error, match=f"^{re.escape(message.replace('PLACE', str(tmp_path)))}$"):
        Documents.find([source if source == "-" else str(tmp_path / source) for source in sources])


def test_size_of_the_batches_does_not_matter(run: Callable[..., int], tmp_path: Path) -> None:
    run()
    run(folder=str(tmp_path / "ones"), batch_words=1)
    for name, first in ((FIRST, 0), (SECOND, 3)):
        assert_all_close(read_vectors(tmp_path / "ones" / name, first), read_vectors(tmp_path / "out" / name, first))


def test_a_file_given_by_a_link_too_is_given_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A ferry .\n", encoding="utf-8")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a\.txt is given twice\.$"):
        Documents.find([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])


def test_a_document_whose_name_is_not_utf8_is_written(tmp_path: Path) -> None:
    record = Record(3, "A ferry.", {"vectors": np.ones((2, 4), dtype=np.float32)}, ("caf\udce9.txt", 0))
    write_parquet(tmp_path / "v.parquet", iter([record]))
    (row,) = pq.read_table(tmp_path / "v.parquet").to_pylist()
    assert (row["document"], row["index"], row["vectors"]) == (storable("caf\udce9.txt"), 0, [[1.0] * 4] * 2)
