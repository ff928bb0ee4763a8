"""`elmo-hf embed`: its options, and errors without a traceback."""

import inspect
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import assert_fails, output_of, run
from vectors import assert_all_close, embed_alone, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.cli.arguments import Splitter
from elmo_hf.cli.embedding import Dtype, Format, Layers
from elmo_hf.cli.embedding import embed as embed_command
from elmo_hf.embedding.shards import FORMATS
from elmo_hf.embedding.vector_files import WRITERS
from elmo_hf.embedding.window_vectors import BATCH_WORDS, DTYPES, LAYERS
from elmo_hf.tokenizer.word_splitter import WORD_SPLITTERS

SENTENCES = ["The ferry left.", "", "It isn't late.", "Größe 日本"]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")


@pytest.mark.parametrize("source", ["text.txt", "-"])
def test_embed_writes_a_file_of_vectors(source: str, tiny_folder: Path) -> None:
    printed = output_of("embed", tiny_folder, source, "-o", "v.h5", stdin=TEXT)
    assert printed == "Wrote 4 sentences to v.h5.\n"
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    assert_all_close(read_vectors("v.h5"), embed_alone(model, tokenizer, SENTENCES, "all"))


def test_choices_of_the_command_line_are_those_of_the_package() -> None:
    assert get_args(Layers) == tuple(LAYERS)
    assert get_args(Dtype) == tuple(DTYPES)
    assert get_args(Format) == tuple(FORMATS)
    assert {f".{each}" for each in FORMATS} <= {*WRITERS}
    assert {*get_args(Splitter)} == {*WORD_SPLITTERS}
    assert inspect.signature(embed_command).parameters["batch_words"].default == BATCH_WORDS


def test_embed_writes_shards_of_several_inputs_with_all_options(tiny_folder: Path) -> None:
    Path("more.txt").write_text("Yes.\n")
    options = ("--layers", "top", "--dtype", "int8", "--words", "ferry|isn't", "--batch-words", 1, "--device", "cpu")
    for _ in range(2):  # the second time all is there
        command = ("embed", tiny_folder, "text.txt", "m*.txt", "-o", "vectors/", "--format", "npz", *options)
        assert output_of(*command, "--split-into-words") == "Wrote 5 sentences to vectors/.\n"
    found = np.load("vectors/part-00000.npz")
    assert [found[f"{row}.positions"].tolist() for row in range(5)] == [[1], [], [1], [], []]
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    (expected,) = embed_alone(model, tokenizer, [["It", "isn't", "late."]], "top")
    np.testing.assert_allclose(
        found["2"][0] * found["2.scales"][0], expected[1], rtol=0, atol=np.abs(expected[1]).max() / 250
    )
    assert_fails(run("embed", "tiny", "text.txt", "-o", "v.npz", "--format", "npz"), 2, "--format needs a folder")


def test_embed_says_if_no_word_was_chosen(tiny_folder: Path) -> None:
    command = ("embed", tiny_folder, "text.txt", "-o", "vectors/", "--words", "Ferry")
    assert "\nNote: --words Ferry chose no word" in output_of(*command)
    assert output_of(*command) == "Wrote 4 sentences to vectors/.\n"  # all is there


def test_embed_reads_a_column_of_a_dataset(tiny_folder: Path) -> None:
    pytest.importorskip("datasets")
    Path("data").mkdir()
    pq.write_table(pa.table({"line": ["The ferry left.", None, "Yes."]}), "data/train.parquet")
    command = ("embed", tiny_folder, "data", "-o", "vectors/", "--layers", "pooled", "--column", "line")
    assert_fails(run(*command, "--split", "dev"), 1, "data cannot be read as a dataset: ")
    output_of(*command)
    table = pq.read_table("vectors")
    assert table["sentence"].to_pylist() == ["The ferry left.", "", "Yes."]
    assert table["index"].to_pylist() == [0, 1, 2]
    Path("a.csv").write_text("id,line\n1,The ferry left.\n2,Yes.\n")  # never looked for on the Hub
    printed = output_of("embed", tiny_folder, "a.csv", "-o", "a.npz", "--column", "line")
    assert printed == "Wrote 2 sentences to a.npz.\n"
