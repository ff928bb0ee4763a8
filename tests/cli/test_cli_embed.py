"""`elmo-hf embed`: its options, and errors without a traceback."""

import inspect
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commands import assert_fails, run
from vectors import read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.cli.arguments import Splitter
from elmo_hf.cli.embedding import Dtype, Format, Layers
from elmo_hf.cli.embedding import embed as embed_command
from elmo_hf.embedding.shards import FORMATS
from elmo_hf.embedding.vector_files import WRITERS
from elmo_hf.embedding.window_vectors import BATCH_WORDS, DTYPES, LAYERS
from elmo_hf.tokenizer.word_splitter import WORD_SPLITTERS


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("The ferry left.\n\nIt isn't late.\n", encoding="utf-8")
    return path


@torch.no_grad()
def layers_of(folder: Path, sentence: str | list[str]) -> np.ndarray:
    """`(L+1, words, 2P)`, the vectors of one sentence without boundaries."""
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder).eval()
    inputs = tokenizer([sentence], is_split_into_words=isinstance(sentence, list), return_tensors="pt")
    return torch.stack(model(**inputs, output_hidden_states=True).hidden_states)[:, 0, 1:-1].numpy()


def test_embed_writes_a_file_of_vectors(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    result = run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5")
    assert result.exit_code == 0
    assert result.stdout == f"Wrote 3 sentences to {tmp_path / 'vectors.hdf5'}.\n"
    found = read_vectors(tmp_path / "vectors.hdf5")
    assert [vectors.shape for vectors in found] == [(3, 4, 16), (3, 0, 16), (3, 5, 16)]
    for vectors, sentence in zip(found, ("The ferry left.", "", "It isn't late."), strict=True):
        np.testing.assert_allclose(vectors, layers_of(tiny_folder, sentence), rtol=0, atol=1e-6)


def test_embed_reads_standard_input(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    text = corpus.read_text(encoding="utf-8") + "Größe 日本\n"
    corpus.write_text(text, encoding="utf-8")
    assert run("embed", tiny_folder, corpus, "-o", tmp_path / "file.hdf5").exit_code == 0
    result = run("embed", tiny_folder, "-", "-o", tmp_path / "stream.h5", stdin=text)
    assert result.exit_code == 0
    assert result.stdout == f"Wrote 4 sentences to {tmp_path / 'stream.h5'}.\n"
    assert (tmp_path / "stream.h5").read_bytes() == (tmp_path / "file.hdf5").read_bytes()


def test_embed_takes_its_other_options(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    options = ("--dtype", "float16", "--split-into-words", "--batch-words", 1, "--device", "cpu", "--layers", "top")
    assert run("embed", tiny_folder, corpus, "-o", tmp_path / "vectors.hdf5", *options).exit_code == 0
    found = read_vectors(tmp_path / "vectors.hdf5")
    assert [vectors.shape for vectors in found] == [(3, 16), (0, 16), (3, 16)]
    expected = layers_of(tiny_folder, ["It", "isn't", "late."])[-1]
    np.testing.assert_allclose(found[2], expected.astype(np.float16), rtol=0, atol=1e-3)
    assert found[2].dtype == np.float16


def test_choices_of_the_command_line_are_those_of_the_package() -> None:
    assert get_args(Layers) == tuple(LAYERS)
    assert get_args(Dtype) == tuple(DTYPES)
    assert get_args(Format) == tuple(FORMATS)
    assert {f".{each}" for each in FORMATS} <= {*WRITERS}
    assert {*get_args(Splitter)} == {*WORD_SPLITTERS}
    assert inspect.signature(embed_command).parameters["batch_words"].default == BATCH_WORDS


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_embed_writes_shards_of_several_inputs(tiny_folder: Path, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("Yes.\n", encoding="utf-8")
    options = ("--layers", "top", "--dtype", "int8", "--words", "ferry|late", "--format", "npz")
    for _ in range(2):  # the second time all is there
        result = run("embed", tiny_folder, corpus, "m*.txt", "-o", "vectors/", *options)
        assert (result.exit_code, result.stdout) == (0, "Wrote 4 sentences to vectors/.\n")
    assert sorted(path.name for path in (tmp_path / "vectors").iterdir()) == [
        "_index", "_index.jsonl", "_job.json", "part-00000.npz"
    ]  # fmt: skip
    found = np.load(tmp_path / "vectors" / "part-00000.npz")
    assert [found[f"{row}.positions"].tolist() for row in range(4)] == [[1], [], [3], []]
    expected = layers_of(tiny_folder, "The ferry left.")[-1, 1]
    np.testing.assert_allclose(
        found["0"][0] * found["0.scales"][0], expected, rtol=0, atol=np.abs(expected).max() / 250
    )


def test_embed_says_if_no_word_was_chosen(tiny_folder: Path, corpus: Path) -> None:
    command = ("embed", tiny_folder, corpus, "-o", "vectors/", "--words", "Ferry")
    assert "\nNote: --words Ferry chose no word" in run(*command).stdout
    assert run(*command).stdout == "Wrote 3 sentences to vectors/.\n"  # all is there


def test_embed_reads_a_column_of_a_dataset(tiny_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"line": ["The ferry left.", None, "Yes."]}), tmp_path / "data" / "train.parquet")
    command = ("embed", tiny_folder, "data", "-o", "vectors/", "--layers", "pooled", "--column", "line")
    assert_fails(run(*command, "--split", "dev"), 1, "data cannot be read as a dataset: ")
    assert run(*command).exit_code == 0
    (tmp_path / "a.csv").write_text("id,line\n1,The ferry left.\n2,Yes.\n")  # never looked for on the Hub
    assert (
        run("embed", tiny_folder, "a.csv", "-o", "a.npz", "--column", "line").stdout == "Wrote 2 sentences to a.npz.\n"
    )
    table = pq.read_table(tmp_path / "vectors")
    assert table["sentence"].to_pylist() == ["The ferry left.", "", "Yes."]
    assert table["index"].to_pylist() == [0, 1, 2]


def test_shards_alone_have_a_format(corpus: Path) -> None:
    assert_fails(run("embed", "tiny", corpus, "-o", "v.npz", "--format", "npz"), 2, "--format needs a folder of shards")
