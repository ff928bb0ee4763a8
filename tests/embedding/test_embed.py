"""Embedding a corpus: every format and kind of vector equals the model run alone."""

import gzip
import io
import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from vectors import (
    HIDDEN_SIZE,
    LAYERS,
    NUM_LAYERS,
    SENTENCES,
    SUFFIXES,
    TOLERANCE,
    assert_all_close,
    embed_alone,
    read_vectors,
)

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import embed
from elmo_hf.embedding.embed import embed_file


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
    assert {array.dtype for array in found} == {np.dtype("float32")}
    assert_all_close(found, [embed_alone(mixed_model, tiny_tokenizer, sentence, layers) for sentence in SENTENCES])
    assert sorted(tmp_path.iterdir()) == sorted([corpus, path])


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ("all", (NUM_LAYERS, 12, HIDDEN_SIZE)),
        ("top", (12, HIDDEN_SIZE)),
        ("mix", (12, HIDDEN_SIZE)),
        ("average", (12, HIDDEN_SIZE)),
        ("pooled", (HIDDEN_SIZE,)),
    ],
)
@pytest.mark.parametrize("suffix", [".hdf5", ".safetensors", ".npz"])
def test_shapes_count_words_without_boundaries(
    suffix: str,
    layers: str,
    shape: tuple[int, ...],
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
) -> None:
    assert tiny_tokenizer.tokenize(SENTENCES[0]) == "The ferry left the harbour at 7:45 , ten minutes late .".split()
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / f"vectors{suffix}", layers=layers)
    found = read_vectors(tmp_path / f"vectors{suffix}")
    assert (found[0].shape, found[5].shape) == (shape, shape)
    assert found[1].shape == (shape if layers == "pooled" else (*shape[:-2], 0, HIDDEN_SIZE))
    if layers == "pooled":
        np.testing.assert_array_equal(found[1], np.zeros(HIDDEN_SIZE, dtype=np.float32))


@pytest.mark.parametrize("batch_words", [1, 15, 1000])
def test_size_of_the_batches_does_not_matter(
    batch_words: int, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "two.npz", batch_words=28)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "other.npz", batch_words=batch_words)
    assert_all_close(read_vectors(tmp_path / "other.npz"), read_vectors(tmp_path / "two.npz"))


@pytest.mark.parametrize("window_characters", [1, 60, 120])
def test_size_of_the_windows_does_not_matter(
    window_characters: int,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "one.hdf5")
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", window_characters)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "many.hdf5")
    assert_all_close(read_vectors(tmp_path / "many.hdf5"), read_vectors(tmp_path / "one.hdf5"))


@pytest.mark.parametrize("window_characters", [1, 1000], ids=["many chunks", "one chunk"])
def test_more_than_ten_sentences_are_put_together_in_numeric_order(
    window_characters: int,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", window_characters)
    lines = [f"word{index} " * (1 + index % 4) + "end" for index in range(23)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    embed_file(mixed_model, tiny_tokenizer, tmp_path / "corpus.txt", tmp_path / "vectors.parquet", layers="top")
    table = pq.read_table(tmp_path / "vectors.parquet")
    assert table["index"].to_pylist() == list(range(23))
    assert table["sentence"].to_pylist() == lines
    vectors = [np.array(rows, dtype=np.float32) for rows in table["vectors"].to_pylist()]
    assert_all_close(vectors, [embed_alone(mixed_model, tiny_tokenizer, line, "top") for line in lines])


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


def test_a_stream_is_read_as_text(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    stream = io.BytesIO(corpus.read_bytes())
    assert embed_file(mixed_model, tiny_tokenizer, stream, tmp_path / "stream.hdf5") == len(SENTENCES)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "file.hdf5")
    assert (tmp_path / "stream.hdf5").read_bytes() == (tmp_path / "file.hdf5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "file.hdf5", "stream.hdf5"]


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


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_input_makes_a_file_without_entries(
    suffix: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    path = tmp_path / f"vectors{suffix}"
    assert embed_file(mixed_model, tiny_tokenizer, tmp_path / "empty.txt", path) == 0
    if suffix == ".parquet":
        assert pq.read_table(path).num_rows == 0
    else:
        assert read_vectors(path) == []
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "empty.txt", path])


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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "vectors.csv",
            {},
            "the output's suffix must be one of .hdf5, .h5, .safetensors, .npz, .parquet, found 'vectors.csv'.",
        ),
        (
            "vectors",
            {},
            "the output's suffix must be one of .hdf5, .h5, .safetensors, .npz, .parquet, found 'vectors'.",
        ),
        (
            "vectors.npz",
            {"layers": "second"},
            "`layers` must be one of all, top, mix, average, pooled, found 'second'.",
        ),
        ("vectors.npz", {"dtype": "int4"}, "`dtype` must be one of float32, float16, bfloat16, int8, found 'int4'."),
        ("vectors.npz", {"batch_words": 0}, "`batch_words` must be at least 1, found 0."),
    ],
    ids=["csv", "no suffix", "layers", "dtype", "batch words"],
)
def test_an_illegal_argument_is_named(
    name: str,
    options: dict[str, Any],
    message: str,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == [corpus]


def test_an_existing_output_is_left_as_it_is(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "vectors.npz").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"vectors\.npz exists already; remove it or choose another name\."):
        embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.npz")
    assert (tmp_path / "vectors.npz").read_bytes() == b"precious"


def test_a_missing_input_is_named(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file .*nowhere\.txt"):
        embed_file(mixed_model, tiny_tokenizer, tmp_path / "nowhere.txt", tmp_path / "vectors.npz")
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_is_not_of_its_format_leaves_nothing(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text('"fine"\n17\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.jsonl, line 2: must be a string"):
        embed_file(mixed_model, tiny_tokenizer, tmp_path / "bad.jsonl", tmp_path / "vectors.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


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
