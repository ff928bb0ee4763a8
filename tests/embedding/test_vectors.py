"""Every format and kind of vector equals the model run alone on the sentence."""

import gzip
import json
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from vectors import (
    LAYERS,
    SENTENCES,
    SUFFIXES,
    TOLERANCE,
    assert_all_close,
    embed_alone,
    embed_file,
    read_vectors,
)

from elmo_hf import ElmoModel, ElmoTokenizer


@pytest.mark.parametrize("layers", LAYERS)
def test_every_tokenizer_gives_the_vectors_of_each_sentence_alone(
    layers: str, mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model, each_tokenizer, corpus, tmp_path / "vectors.npz", layers=layers, batch_words=30)
    expected = [embed_alone(mixed_model, each_tokenizer, sentence, layers) for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layers", LAYERS)
def test_vectors_are_those_of_each_sentence_alone(
    suffix: str, layers: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"vectors{suffix}"
    assert embed_file(mixed_model, tiny_tokenizer, corpus, path, layers=layers, batch_words=30) == len(SENTENCES)
    found = read_vectors(path)
    expected = [embed_alone(mixed_model, tiny_tokenizer, sentence, layers) for sentence in SENTENCES]
    assert {array.dtype for array in found} == {np.dtype("float32")}
    assert_all_close(found, expected)
    if suffix != ".parquet":  # nested lists keep no shape if they are empty
        assert [array.shape for array in found] == [array.shape for array in expected]
    assert sorted(tmp_path.iterdir()) == sorted([corpus, path])


@pytest.mark.parametrize("batch_words", [1, 15, 1000])
def test_size_of_the_batches_does_not_matter(
    batch_words: int, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "two.npz", batch_words=28)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "other.npz", batch_words=batch_words)
    assert_all_close(read_vectors(tmp_path / "other.npz"), read_vectors(tmp_path / "two.npz"))


def test_dropout_is_off_whatever_the_mode_of_the_model(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model.train(), tiny_tokenizer, corpus, tmp_path / "vectors.npz", layers="mix")
    expected = [embed_alone(mixed_model, tiny_tokenizer, sentence, "mix") for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_float16_is_the_float32_vector_rounded(
    suffix: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "single.npz", layers="top")
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / f"half{suffix}", layers="top", dtype="float16")
    halves, singles = read_vectors(tmp_path / f"half{suffix}"), read_vectors(tmp_path / "single.npz")
    assert {array.dtype for array in halves} == {np.dtype("float16")}
    assert [array.tobytes() for array in halves] == [array.astype(np.float16).tobytes() for array in singles]


def test_a_model_in_bfloat16_writes_float32(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(
        mixed_model.to(torch.bfloat16), tiny_tokenizer, corpus, tmp_path / "vectors.npz", layers="top", batch_words=1
    )
    found = read_vectors(tmp_path / "vectors.npz")
    assert {array.dtype for array in found} == {np.dtype("float32")}
    inputs = tiny_tokenizer([SENTENCES[0]], return_tensors="pt")
    with torch.no_grad():
        expected = mixed_model(**inputs, output_hidden_states=True).hidden_states[-1][0, 1:-1]
    np.testing.assert_array_equal(found[0], expected.float().numpy())


def test_words_are_embedded_as_they_come(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    values = [["New York", "isn't", "x" * 60], {"words": []}, {"text": "It isn't."}, "Don't!"]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f"{json.dumps(value)}\n" for value in values), encoding="utf-8")
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.hdf5")
    sentences = [["New York", "isn't", "x" * 60], [], ["It", "is", "n't", "."], ["Do", "n't", "!"]]
    expected = [embed_alone(mixed_model, tiny_tokenizer, words, "all") for words in sentences]
    assert_all_close(read_vectors(tmp_path / "vectors.hdf5"), expected)


def test_lines_split_into_words_are_not_split_further(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt.gz"
    corpus.write_bytes(gzip.compress(b"It isn't.\r\n\r\n late,  ten\n"))
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.npz", split_into_words=True)
    expected = [
        embed_alone(mixed_model, tiny_tokenizer, words, "all") for words in (["It", "isn't."], [], ["late,", "ten"])
    ]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


@pytest.mark.parametrize("content", ["\n\n\n", "\n \n\t\n"], ids=["no words", "blanks"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_blank_lines_has_an_entry_for_each(
    suffix: str, content: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "blank.txt").write_text(content, encoding="utf-8")
    assert (
        embed_file(mixed_model, tiny_tokenizer, tmp_path / "blank.txt", tmp_path / f"vectors{suffix}", layers="top")
        == 3
    )
    assert [array.size for array in read_vectors(tmp_path / f"vectors{suffix}")] == [0, 0, 0]


def test_hdf5_file_has_the_layout_of_allennlp(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.hdf5")
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert set(file) == {"0", "1", "2", "3", "4", "5", "sentence_to_index"}
        assert file["sentence_to_index"].shape == (1,)
        # AllenNLP's readers parse this very string; of equal sentences the last one is named.
        assert json.loads(file["sentence_to_index"][0]) == {
            SENTENCES[0]: "5",
            "": "1",
            "Yes": "2",
            SENTENCES[3]: "3",
            "No.": "4",
        }


def test_words_are_joined_by_blanks_in_the_index(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "corpus.txt").write_text("It  isn't.\n", encoding="utf-8")
    embed_file(mixed_model, tiny_tokenizer, tmp_path / "corpus.txt", tmp_path / "vectors.hdf5", split_into_words=True)
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"It isn't.": "0"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layers", ["all", "top", "pooled"])
def test_parquet_file_opens_as_a_dataset(
    layers: str, dtype: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "vectors.parquet"
    embed_file(mixed_model, tiny_tokenizer, corpus, path, layers=layers, dtype=dtype)
    cache = str(tmp_path / "cache")
    dataset = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=cache)
    assert dataset.column_names == ["index", "sentence", "vectors"]
    assert dataset["index"][:] == [0, 1, 2, 3, 4, 5]
    assert dataset["sentence"][:] == SENTENCES
    expected = [embed_alone(mixed_model, tiny_tokenizer, sentence, layers) for sentence in SENTENCES]
    # Half precision has 11 bits.
    assert_all_close(
        [np.array(vectors) for vectors in dataset["vectors"]], expected, TOLERANCE if dtype == "float32" else 2e-3
    )


def test_parquet_rows_are_written_in_groups(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmo_hf.embedding.vector_files.ROWS_PER_GROUP", 4)
    lines = [f"word{number} " * (number % 4) for number in range(10)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    embed_file(mixed_model, tiny_tokenizer, tmp_path / "corpus.txt", tmp_path / "vectors.parquet", batch_words=9)
    assert pq.ParquetFile(tmp_path / "vectors.parquet").num_row_groups == 3
    expected = [embed_alone(mixed_model, tiny_tokenizer, line, "all") for line in lines]
    assert_all_close(read_vectors(tmp_path / "vectors.parquet"), expected)


def test_no_batch_has_more_positions_than_allowed_but_for_a_longer_text_alone(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    source = tmp_path / "words.txt"
    lengths = [3, 30, 1, 8, 0, 5, 3, 3]
    source.write_text("".join("word " * length + "\n" for length in lengths))
    shapes: list[tuple[int, int]] = []
    mixed_model.bilm.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[1].shape)))
    embed_file(mixed_model, tiny_tokenizer, source, tmp_path / "out.hdf5", batch_words=20)
    assert shapes == [(1, 32), (2, 10), (4, 5), (1, 2)]
    for vectors, length in zip(read_vectors(tmp_path / "out.hdf5"), lengths, strict=True):
        assert vectors.shape == (3, length, 16)


@pytest.mark.parametrize("suffix", [".parquet", ".hdf5"])
def test_a_lone_surrogate_is_no_reason_to_fail(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "text.jsonl").write_text('"a \\ud800 b"\n')
    assert embed_file(mixed_model, tiny_tokenizer, tmp_path / "text.jsonl", tmp_path / f"out{suffix}") == 1
    assert len(read_vectors(tmp_path / f"out{suffix}")) == 1
