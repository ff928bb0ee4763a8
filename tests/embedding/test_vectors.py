"""Every format and kind of vector equals the model run alone on the sentence."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from vectors import LAYERS, SENTENCES, SUFFIXES, TOLERANCE, assert_all_close, embed_alone, embed_file, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer


@pytest.fixture
def embed(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> Callable[..., list[np.ndarray]]:
    """Embeds the corpus, or an input of other content, into `vectors` with a suffix; gives the vectors."""

    def embed_it(suffix: str = ".npz", content: str | bytes | None = None, name: str = "in.txt", **options: Any) -> Any:
        source, output = tmp_path / name, tmp_path / f"vectors{suffix}"
        if content is not None:
            source.write_bytes(content if isinstance(content, bytes) else content.encode())
        output.unlink(missing_ok=True)
        count = embed_file(mixed_model, tiny_tokenizer, corpus if content is None else source, output, **options)
        found = read_vectors(output)
        assert len(found) == count
        return found

    return embed_it


@pytest.fixture
def alone(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer) -> Callable[..., list[np.ndarray]]:
    """The vectors of sentences that the model reads alone."""
    return lambda layers="all", sentences=SENTENCES: [
        embed_alone(mixed_model, tiny_tokenizer, sentence, layers) for sentence in sentences
    ]


@pytest.mark.parametrize("layers", LAYERS)
def test_every_tokenizer_gives_the_vectors_of_each_sentence_alone(
    layers: str, mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model, each_tokenizer, corpus, tmp_path / "vectors.npz", layers=layers, batch_words=30)
    expected = [embed_alone(mixed_model, each_tokenizer, sentence, layers) for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layers", LAYERS)
def test_vectors_are_those_of_each_sentence_alone(suffix: str, layers: str, embed: Any, alone: Any) -> None:
    found, expected = embed(suffix, layers=layers, batch_words=30), alone(layers)
    assert {array.dtype for array in found} == {np.dtype("float32")}
    assert_all_close(found, expected)
    if suffix != ".parquet":  # nested lists keep no shape if they are empty
        assert [array.shape for array in found] == [array.shape for array in expected]


@pytest.mark.parametrize("batch_words", [1, 15, 1000])
def test_size_of_the_batches_does_not_matter(batch_words: int, embed: Any) -> None:
    assert_all_close(embed(batch_words=batch_words), embed(batch_words=28))


def test_dropout_is_off_whatever_the_mode_of_the_model(embed: Any, alone: Any, mixed_model: ElmoModel) -> None:
    mixed_model.train()
    assert_all_close(embed(layers="mix"), alone("mix"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_float16_is_the_float32_vector_rounded(suffix: str, embed: Any) -> None:
    halves, singles = embed(suffix, layers="top", dtype="float16"), embed(layers="top")
    assert {array.dtype for array in halves} == {np.dtype("float16")}
    assert [array.tobytes() for array in halves] == [array.astype(np.float16).tobytes() for array in singles]


def test_a_model_in_bfloat16_writes_float32(embed: Any, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer) -> None:
    mixed_model.to(torch.bfloat16)
    found = embed(layers="top", batch_words=1)
    assert {array.dtype for array in found} == {np.dtype("float32")}
    with torch.no_grad():
        output = mixed_model(**tiny_tokenizer([SENTENCES[0]], return_tensors="pt"), output_hidden_states=True)
    np.testing.assert_array_equal(found[0], output.hidden_states[-1][0, 1:-1].float().numpy())


def test_words_are_embedded_as_they_come(embed: Any, alone: Any) -> None:
    values = [["New York", "isn't", "x" * 60], {"words": []}, {"text": "It isn't."}, "Don't!"]
    found = embed(content="".join(f"{json.dumps(value)}\n" for value in values), name="in.jsonl")
    sentences = [["New York", "isn't", "x" * 60], [], ["It", "is", "n't", "."], ["Do", "n't", "!"]]
    assert_all_close(found, alone(sentences=sentences))


def test_lines_split_into_words_are_not_split_further(embed: Any, alone: Any) -> None:
    content = gzip.compress(b"It isn't.\r\n\r\n late,  ten\n")
    found = embed(content=content, name="in.txt.gz", split_into_words=True)
    assert_all_close(found, alone(sentences=[["It", "isn't."], [], ["late,", "ten"]]))


@pytest.mark.parametrize("content", ["\n\n\n", "\n \n\t\n"], ids=["no words", "blanks"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_blank_lines_has_an_entry_for_each(suffix: str, content: str, embed: Any) -> None:
    assert [array.size for array in embed(suffix, content, layers="top")] == [0, 0, 0]


def test_hdf5_file_has_the_layout_of_allennlp(embed: Any, tmp_path: Path) -> None:
    embed(".hdf5")
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert set(file) == {"0", "1", "2", "3", "4", "5", "sentence_to_index"}
        assert file["sentence_to_index"].shape == (1,)
        # AllenNLP's readers parse this very string; of equal sentences the last one is named.
        expected = {SENTENCES[0]: "5", "": "1", "Yes": "2", SENTENCES[3]: "3", "No.": "4"}
        assert json.loads(file["sentence_to_index"][0]) == expected
    embed(".hdf5", "It  isn't.\n", split_into_words=True)
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"It isn't.": "0"}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", TOLERANCE), ("float16", 2e-3)])  # it has 11 bits
@pytest.mark.parametrize("layers", ["all", "top", "pooled"])
def test_parquet_file_opens_as_a_dataset(
    layers: str, dtype: str, tolerance: float, embed: Any, alone: Any, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    embed(".parquet", layers=layers, dtype=dtype)
    files, cache = str(tmp_path / "vectors.parquet"), str(tmp_path / "cache")
    dataset = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    assert dataset.column_names == ["index", "sentence", "vectors"]
    assert (dataset["index"][:], dataset["sentence"][:]) == ([0, 1, 2, 3, 4, 5], SENTENCES)
    assert_all_close([np.array(vectors) for vectors in dataset["vectors"]], alone(layers), tolerance)


def test_parquet_rows_are_written_in_groups(embed: Any, tmp_path: Path) -> None:
    lines = [f"word{number} " * (number % 4) for number in range(300)]
    assert_all_close(embed(".parquet", "\n".join(lines)), embed(".npz", "\n".join(lines)), 0)
    assert pq.ParquetFile(tmp_path / "vectors.parquet").num_row_groups == 2


def test_no_batch_has_more_positions_than_allowed_but_for_a_longer_text_alone(
    embed: Any, mixed_model: ElmoModel
) -> None:
    lengths = [3, 30, 1, 8, 0, 5, 3, 3]
    shapes: list[tuple[int, int]] = []
    mixed_model.bilm.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[1].shape)))
    found = embed(content="".join("word " * length + "\n" for length in lengths), batch_words=20)
    assert shapes == [(1, 32), (2, 10), (4, 5), (1, 2)]
    assert [vectors.shape for vectors in found] == [(3, length, 16) for length in lengths]


@pytest.mark.parametrize("suffix", [".parquet", ".hdf5"])
def test_a_lone_surrogate_is_no_reason_to_fail(suffix: str, embed: Any) -> None:
    assert len(embed(suffix, '"a \\ud800 b"\n', "in.jsonl")) == 1
