"""Documents and shards in stores: `memory://` here, and S3 where a server of its own can be had."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from elmo_hf import ElmoModel
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.stores import Folder
from tests.helpers.interrupts import count_rows, interrupted
from tests.helpers.vectors import SENTENCES

LINES = gzip.compress("".join(f"{json.dumps(sentence)}\n" for sentence in SENTENCES).encode())


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
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
    yield store
    thread.stop()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(params=["memory", "disk", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """A file system with the sentences in `in/a.jsonl.gz`, and the address of its root."""
    files, root = fsspec.filesystem("file", auto_mkdir=True), tmp_path.as_uri()
    if request.param != "disk":
        files = request.getfixturevalue(request.param)
        root = {"memory": "memory:/", "bucket": "s3://bucket"}[request.param]
    files.pipe(f"{root}/in/a.jsonl.gz", LINES)
    return files, root


def test_a_store_is_read_and_written_by_runs_that_go_on_and_make_again_what_lost_bytes(
    store: tuple[Any, str], mixed_model: ElmoModel, embed: Callable[..., int]
) -> None:
    files, root = store
    job = f"{root}/out/", f"{root}/in/"
    with interrupted(mixed_model, 3):
        embed(*job)
    shards = [f"part-0000{number}.parquet" for number in range(3)]
    entries = [f"_index/part-0000{number}.txt" for number in range(2)]
    assert sorted(Folder(f"{root}/out").sizes()) == [*entries, "_job.json", *shards[:2]]
    counts = count_rows(mixed_model)
    assert embed(*job) == len(SENTENCES)
    assert sum(counts) == 1
    second = f"{root}/out/{shards[1]}"
    whole = files.cat_file(second)
    files.pipe(second, whole[:-1])
    embed(*job)
    assert sum(counts) == 3
    assert files.cat_file(second) == whole
    lines = [json.loads(line) for line in files.cat_file(f"{root}/out/_index.jsonl").splitlines()]
    found = [(line["shard"], line["index"], line["rows"]) for line in lines]
    assert found == list(zip(shards, (0, 3, 5), (3, 2, 1), strict=True))
    assert all(re.fullmatch(rf"{root}/+in/a\.jsonl\.gz", line["document"]) for line in lines)


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


def test_the_root_of_a_store_is_a_folder_of_the_store(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    memory.pipe("/a.txt", b"Yes\n")
    folder = Folder("memory://")
    with folder.new("b.txt") as path:
        path.write_bytes(b"No\n")
    assert folder.sizes() == {"a.txt": 4, "b.txt": 3}
    assert folder.read(["b.txt"]) == [memory.cat_file("/b.txt")] == [b"No\n"]
    assert not any(tmp_path.iterdir())


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
    memory: Any, mixed_model: ElmoModel, embed: Callable[..., int]
) -> None:
    fsspec.register_implementation("listed", ListedStore, clobber=True)
    folder = Folder("listed://out")
    for names in (["part-0"], ["part-0", "part-1"]):
        memory.pipe(f"/out/{names[-1]}", b"x")
        assert folder.sizes() == dict.fromkeys(names, 1)
    memory.pipe("/in/a.jsonl.gz", LINES)
    sentences = Documents(["listed://in/a.jsonl.gz"]).read()
    assert next(sentences)[1] == SENTENCES[0]
    memory.pipe("/in/a.jsonl.gz", b"Another one.\n")
    with pytest.raises(ValueError, match=r"^listed://in/a\.jsonl\.gz changed while it was being read"):
        list(sentences)
    memory.pipe("/in/b.jsonl.gz", gzip.compress(b'"Yes"\n17\n'))
    with pytest.raises(ValueError, match=r"^memory://in/b\.jsonl\.gz, line 2: must be a string"):
        list(Documents(["memory://in/b.jsonl.gz"]).read())
    counts = count_rows(mixed_model)
    with pytest.raises(PermissionError, match="Access Denied"):
        embed("listed://new/", "corpus.txt")
    assert counts == []


def test_a_store_is_asked_once_whether_a_file_of_which_a_column_is_read_exists(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/in/a.csv", b"text,other\nYes,1\n")
    asked = []
    is_file = MemoryFileSystem.isfile

    def watched(self: Any, path: str) -> bool:
        asked.append(path)
        return is_file(self, path)

    monkeypatch.setattr(MemoryFileSystem, "isfile", watched)
    documents = Documents.find(["memory://in/a.csv"], "", column="text")
    assert [sentence for _, sentence in documents.read()] == ["Yes"]
    assert asked.count("/in/a.csv") == 1


def test_the_place_of_a_sentence_names_no_password(memory: Any) -> None:
    memory.pipe("/me:secret@host/a@b.txt", b"Yes\n")
    documents = Documents(["memory://me:secret@host/a@b.txt"])
    assert [line for line, _ in documents.read()] == [("memory://host/a@b.txt", 0)]


def test_a_file_that_another_process_wrote_is_read_though_the_names_were_listed_before(bucket: Any) -> None:
    s3fs = pytest.importorskip("s3fs")
    bucket.pipe("bucket/listed/_index/a.txt", b"a")
    folder = Folder("s3://bucket/listed")
    assert folder.sizes() == {"_index/a.txt": 1}
    s3fs.S3FileSystem(skip_instance_cache=True).pipe("bucket/listed/_index/b.txt", b"b")
    assert folder.read(["_index/a.txt", "_index/b.txt"]) == [b"a", b"b"]


def test_the_lists_of_names_are_forgotten_before_files_are_read(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    folder = Folder("memory://out")
    memory.pipe("/out/a.txt", b"a")
    monkeypatch.setattr(MemoryFileSystem, "invalidate_cache", lambda *_: calls.append("forget"))
    assert folder.read(["a.txt"]) == [b"a"]
    assert calls == ["forget"]


def test_a_refused_upload_names_the_file_and_leaves_no_part_of_it(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)
    folder = Folder("memory://out")
    with (
        pytest.raises(PermissionError, match=r"^memory:/+out/a\.txt cannot be uploaded \(Access Denied\); "),
        folder.new("a.txt") as path,
    ):
        path.write_text("Yes")
    assert folder.sizes() == {}
