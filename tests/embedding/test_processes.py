"""Two processes embed a corpus together, bit for bit as one does, also after one of them was killed."""

import builtins
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from embedding_ranks import WINDOW_CHARACTERS
from launching import fork_two, launch
from vectors import SENTENCES, assert_all_close, embed_alone, embed_file, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import shards
from elmo_hf.embedding.processes import MPI_SIZES, Processes

COPIES = 4
BOTH = {"killed": "killed_shards", "killed.hdf5.partial": "killed"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """One process writes `alone`, two write the outputs of `embedding_ranks.py`, and one finishes what two began."""
    folder = tmp_path_factory.mktemp("embedding")
    corpus = folder / "corpus.txt"
    corpus.write_text("".join(f"{sentence}\n" for sentence in SENTENCES * COPIES), encoding="utf-8")
    (folder / "bad.jsonl").write_text('"fine"\n17\n')
    (folder / "model").symlink_to(tiny_folder)
    for killed, function in BOTH.items():
        with pytest.raises(AssertionError, match=r"^exit code -?[1-9]"):
            fork_two("embedding_ranks", folder, function)
        for name in ("resumed", "finished"):
            shutil.copytree(folder / killed, folder / killed.replace("killed", name))
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the launched processes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "CHUNK_CHARACTERS", WINDOW_CHARACTERS)
        patch.setattr(shards, "SHARD_CHARACTERS", WINDOW_CHARACTERS)
        for name in ("alone.hdf5", "finished.hdf5", "alone/", "finished/"):
            embed_file(model, tokenizer, corpus, f"{folder}/{name}", batch_words=20)
    torch.set_num_threads(num_threads)
    code, output = launch("embedding_ranks.py", folder, stdin=corpus)
    (folder / "output").write_text(output)
    assert code == 0, output[-5000:]
    return folder


def test_one_process_alone_writes_the_vectors_of_each_sentence_in_order(
    folder: Path, tiny_folder: Path, tiny_tokenizer: ElmoTokenizer
) -> None:
    model = ElmoModel.from_pretrained(tiny_folder)
    expected = [embed_alone(model, tiny_tokenizer, sentence, "all") for sentence in SENTENCES]
    assert_all_close(read_vectors(folder / "alone.hdf5"), expected * COPIES)


@pytest.mark.parametrize("name", ["whole", "stream", "resumed", "finished"])
def test_two_processes_write_the_same_file_as_one(name: str, folder: Path) -> None:
    assert (folder / f"{name}.hdf5").read_bytes() == (folder / "alone.hdf5").read_bytes()
    assert not (folder / f"{name}.hdf5.partial").exists()


@pytest.mark.parametrize("name", ["whole", "resumed", "finished"])
def test_two_processes_write_the_same_shards_as_one(name: str, folder: Path) -> None:
    alone, together = (
        {path.name: path.read_bytes() for path in (folder / each).rglob("*") if path.is_file()}
        for each in ("alone", name)
    )
    assert len(alone) > 10
    assert together == alone


@pytest.mark.parametrize("name", BOTH)
def test_a_killed_process_leaves_whole_shards_of_both(name: str, folder: Path) -> None:
    entries = {path.name for path in (folder / name / "_index").glob("part-*.json")}
    # The second process finished its first window, number 1, and died at its second, number 3.
    assert "part-00001.json" in entries
    assert "part-00003.json" not in entries
    assert not (folder / name / "_index.jsonl").exists()


def test_the_first_process_alone_speaks_and_all_name_errors(folder: Path) -> None:
    output = (folder / "output").read_text()
    for name in ("whole.hdf5", "resumed.hdf5", "whole/", "resumed/"):
        assert output.count(f"Wrote {len(SENTENCES) * COPIES} sentences to {folder}/{name}.") == 1
    for error in ("whole.hdf5 exists already", "bad.jsonl, line 2"):
        assert error in output
    for rank in (0, 1):
        assert output.count(f"process {rank} ended with 1") == 2
    assert not (folder / "bad.hdf5.partial").exists()


@pytest.mark.parametrize(
    "environment", [{}, {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}, {"WORLD_SIZE": "4"}], ids=["none", "one", "a cluster's"]
)
def test_without_a_launcher_there_is_one_process_and_no_accelerate(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module = builtins.__import__

    def refusing(name: str, *arguments: Any) -> Any:
        assert not name.startswith("accelerate")
        return import_module(name, *arguments)

    for name in ("WORLD_SIZE", "LOCAL_RANK", *MPI_SIZES):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(builtins, "__import__", refusing)
    alone = Processes.launched()
    assert (alone.index, alone.count, alone.is_first) == (0, 1, True)
    called: list[int] = []
    alone.on_first(lambda: called.append(17))
    assert called == [17]
    alone.wait()


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_several_processes_without_accelerate_name_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"^this needs accelerate"):
        Processes.launched()
