"""Two processes embed a corpus together, bit for bit as one does, also after one of them was killed."""

import shutil
from pathlib import Path

import pytest
import torch

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.processes import MPI_SIZES, Alone, launched
from tests.helpers.embedding_ranks import WINDOW_CHARACTERS
from tests.helpers.interrupts import contents
from tests.helpers.launching import fork_two
from tests.helpers.vectors import SENTENCES, TEXT, embed_file

COPIES = 4
BOTH = {"killed": "killed_shards", "killed.hdf5.partial": "killed"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """One process writes `alone`, two write the outputs of `embedding_ranks.py`, and one finishes what two began."""
    folder = tmp_path_factory.mktemp("embedding")
    (folder / "corpus.txt").write_text(TEXT * COPIES, encoding="utf-8")
    (folder / "model").symlink_to(tiny_folder)
    for killed, function in BOTH.items():
        with pytest.raises(AssertionError, match=r"^exit code -?[1-9]"):
            fork_two("embedding_ranks", folder, function)
        # The second process finished its first window, number 1, and died at its second, number 3.
        entries = {path.name for path in (folder / killed).glob("_index/*")}
        assert ("part-00001.txt" in entries, "part-00003.txt" in entries) == (True, False)
        assert not (folder / killed / "_index.jsonl").exists()
        for name in ("resumed", "finished"):
            shutil.copytree(folder / killed, folder / killed.replace("killed", name))
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the launched processes
    options = {"batch_words": 20, "window_characters": WINDOW_CHARACTERS}
    for name in ("alone.hdf5", "finished.hdf5", "alone/", "finished/"):
        embed_file(model, tokenizer, [f"{folder}/corpus.txt"], f"{folder}/{name}", **options)
    torch.set_num_threads(num_threads)
    output = fork_two("embedding_ranks", folder, "whole")
    for name in ("whole.hdf5", "resumed.hdf5", "whole/", "resumed/"):
        count = f"{len(SENTENCES) * COPIES} sentences ({SENTENCES.count('') * COPIES} of them blank)"
        assert output.count(f"Wrote {count} to {folder}/{name}.") == 1
    return folder


@pytest.mark.same_rounding
@pytest.mark.parametrize(
    "name", ["whole", "resumed", "finished", "stream.hdf5", "whole.hdf5", "resumed.hdf5", "finished.hdf5"]
)
def test_two_processes_write_the_same_shards_or_file_as_one(name: str, folder: Path) -> None:
    alone, together = contents(folder / f"alone{Path(name).suffix}"), contents(folder / name)
    assert together == alone
    assert len(alone) > 10 or name.endswith(".hdf5")
    assert not (folder / f"{name}.partial").exists()


@pytest.mark.parametrize(
    "environment", [{}, {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}, {"WORLD_SIZE": "4"}], ids=["none", "one", "a cluster's"]
)
def test_without_a_launcher_there_is_one_process(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "LOCAL_RANK", *MPI_SIZES):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert isinstance(launched(), Alone)
