"""Documents and shards in stores: `memory://` here, and S3 where a server of its own can be had."""

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from interrupts import count_rows, interrupted
from vectors import SENTENCES, embed_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.stores import Folder

TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES)


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    store.pipe("/in/a.txt", TEXT.encode())
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server on this machine, with a bucket."""
    s3fs, server = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    thread = server.ThreadedMotoServer(port=0, verbose=False)
    thread.start()
    host, port = thread.get_host_and_port()
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    with suppress(FileExistsError):  # moto keeps what an earlier server of this process had
        store.mkdir("bucket")
    store.pipe("bucket/in/a.txt", TEXT.encode())
    yield store
    thread.stop()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(params=["memory", "disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """A file system with the text `in/a.txt`, and the address of its root."""
    if request.param == "disk":
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.txt").write_text(TEXT)
        return fsspec.filesystem("file"), tmp_path.as_uri()
    if request.param == "memory":
        return request.getfixturevalue("memory"), "memory:/"
    return request.getfixturevalue("bucket"), "s3://bucket"


def test_a_store_is_read_and_written_by_runs_that_go_on_and_make_again_what_lost_bytes(
    store: tuple[Any, str], mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    files, root = store

    def run() -> int:
        options = {"layers": "top", "window_characters": 59}
        return embed_file(mixed_model, tiny_tokenizer, [f"{root}/in/"], f"{root}/out/", **options)

    with interrupted(mixed_model, 3):
        run()
    shards = [f"part-0000{number}.parquet" for number in range(3)]
    entries = [f"_index/part-0000{number}.txt" for number in range(2)]
    assert sorted(Folder(f"{root}/out").sizes()) == [*entries, "_job.json", *shards[:2]]
    counts = count_rows(mixed_model)
    assert run() == len(SENTENCES)
    assert sum(counts) == 1
    second = f"{root}/out/{shards[1]}"
    whole = files.cat_file(second)
    files.pipe(second, whole[:-1])
    run()
    assert sum(counts) == 3
    assert files.cat_file(second) == whole
    lines = [json.loads(line) for line in files.cat_file(f"{root}/out/_index.jsonl").splitlines()]
    found = [(line["shard"], line["index"], line["rows"]) for line in lines]
    assert found == list(zip(shards, (0, 3, 5), (3, 2, 1), strict=True))
    assert all(re.fullmatch(rf"{root}/+in/a\.txt", line["document"]) for line in lines)


@pytest.mark.parametrize("root", ["memory://", "", "PATH/"])
def test_files_of_patterns_and_folders_are_named_as_they_were_given(
    root: str, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = root.replace("PATH", str(tmp_path))
    for name in ("in/a.txt", "in/b.txt", "in/deep/c.txt", "in/_index/d.txt", "in/.e.txt", "in/.git/f.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("Yes\n")
        memory.pipe(f"/{name}", b"Yes\n")
    a, b, c = (f"{root}in/{name}" for name in ("a.txt", "b.txt", "deep/c.txt"))

    def found(*sources: str, output: str = "out/") -> list[str]:
        names = Documents.find([f"{root}{name}" for name in sources], f"{root}{output}").names
        return [name.replace(":///", "://") for name in names]

    assert found("in/") == found("in") == [a, b, c]
    assert found("in/*.txt") == [a, b]
    assert found("*/b.txt", "in/a.txt", "in/b.txt") == [b, a]
    assert found("in", output="in//deep") == [a, b]
    assert found("in", output="in/b.txt") == [a, c]
    assert {*found("in/**")} > {a, b, c}  # a pattern takes names with an underscore
    for name in ("in/*.gz", "none"):
        with pytest.raises(FileNotFoundError, match=f"^there is no file {re.escape(root + name)};"):
            found(name)


def test_a_stored_file_is_read_as_its_name_says(memory: Any) -> None:
    memory.pipe("/in/z.jsonl.gz", gzip.compress(b'["a", "b"]\n17\n'))
    sentences = Documents(["memory://in/z.jsonl.gz"]).read()
    assert next(sentences)[1] == ["a", "b"]
    with pytest.raises(ValueError, match=r"^memory://in/z\.jsonl\.gz, line 2: must be a string"):
        next(sentences)


def test_files_of_a_folder_are_listed_when_they_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Folder("out/")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # as Ray's workers
    with folder.new("part-1") as shard, folder.new("_index/part-1.txt") as entry:
        shard.write_bytes(b"x")
        entry.write_bytes(b"xy")
        assert folder.sizes() == {}  # they may be gone before their sizes are asked for
    assert folder.sizes() == {"part-1": 1, "_index/part-1.txt": 2}
    assert (tmp_path / "out" / "part-1").read_bytes() == b"x"
    with pytest.raises(FileNotFoundError), folder.new("part-2") as path:
        path.with_name("elsewhere").rename(path)
    assert len([*(tmp_path / "out").rglob("*")]) == 3


class ListedStore(MemoryFileSystem):
    """`listed://`, which keeps what it knows of files until it is told that it may have changed, as clients of S3 do.

    Nothing can be written there.
    """

    known: dict[str, Any] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("listed://", "memory://"))

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        return self.known.setdefault(f"find {path}", super().find(path, *args, **kwargs))

    def ukey(self, path: str) -> str:
        return self.known.setdefault(f"ukey {path}", super().ukey(path))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.known.clear()

    def put_file(self, *args: Any, **kwargs: Any) -> None:
        raise PermissionError("Access Denied")


def test_what_another_process_wrote_is_seen_and_a_store_that_refuses_is_named_before_the_work(
    memory: Any, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    fsspec.register_implementation("listed", ListedStore, clobber=True)
    folder = Folder("listed://out")
    for names in (["part-0"], ["part-0", "part-1"]):
        memory.pipe(f"/out/{names[-1]}", b"x")
        assert folder.sizes() == dict.fromkeys(names, 1)
    sentences = Documents(["listed://in/a.txt"]).read()
    assert next(sentences)[1] == SENTENCES[0]
    memory.pipe("/in/a.txt", b"Another one.\n")
    with pytest.raises(ValueError, match=r"^listed://in/a\.txt changed while it was being read"):
        list(sentences)
    counts = count_rows(mixed_model)
    with pytest.raises(PermissionError, match="Access Denied"):
        embed_file(mixed_model, tiny_tokenizer, ["memory://in/a.txt"], "listed://new/")
    assert counts == []
