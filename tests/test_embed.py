"""Embedding a corpus: every format and kind of vector equals the model run alone, and an interrupted run goes on."""

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file

from elmo_hf import ElmoModel, ElmoTokenizer, embed
from elmo_hf.embed import embed_file

SUFFIXES = [".hdf5", ".safetensors", ".npz", ".parquet"]
LAYERS = ["all", "top", "mix", "average", "pooled"]
NUM_LAYERS, HIDDEN_SIZE = 3, 16
SENTENCES = [
    "The ferry left the harbour at 7:45, ten minutes late.",
    "",
    "Yes",
    "naïve Übung 日本語 " + "ü" * 40,
    "No.",
    "The ferry left the harbour at 7:45, ten minutes late.",
]
# A sum of floats in another order, as of a batch with padding, differs in the last bits.
ATOL = 1e-6


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> ElmoTokenizer:
    return ElmoTokenizer.from_pretrained(tiny_folder)


@pytest.fixture
def model(tiny_folder: Path) -> ElmoModel:
    """The tiny model, its mix being none of the layers nor their mean."""
    model = ElmoModel.from_pretrained(tiny_folder)
    model.scalar_mixes[0].set_weights([0.2, 0.5, 0.3], scale=1.5)
    return model


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in SENTENCES), encoding="utf-8")
    return path


@torch.no_grad()
def embed_alone(model: ElmoModel, tokenizer: ElmoTokenizer, sentence: str | list[str], layers: str) -> np.ndarray:
    """The vectors of one sentence, boundaries cut off, with each kind spelled out."""
    inputs = tokenizer([sentence], is_split_into_words=isinstance(sentence, list), return_tensors="pt")
    output = model.eval()(**inputs, output_hidden_states=True)
    every = torch.stack([layer[0, 1:-1] for layer in output.hidden_states])
    mix = 1.5 * (0.2 * every[0] + 0.5 * every[1] + 0.3 * every[2])
    return {
        "all": every,
        "top": every[-1],
        "mix": mix,
        "average": (every[0] + every[1] + every[2]) / 3,
        "pooled": mix.sum(dim=0) / max(len(mix), 1),
    }[layers].numpy()


def read_vectors(path: Path) -> list[np.ndarray]:
    """The vectors of every sentence by its index, which must run from 0; nested lists keep no shape where empty."""
    by_index: dict[str, Any] = {}
    if path.suffix == ".hdf5":
        with h5py.File(path, "r") as file:
            by_index = {name: file[name][()] for name in file if name != "sentence_to_index"}
    elif path.suffix == ".safetensors":
        by_index = load_file(path)
    elif path.suffix == ".npz":
        with np.load(path) as file:
            by_index = dict(file)
    else:
        table = pq.read_table(path)
        number = table.schema.field("vectors").type
        while hasattr(number, "value_type"):
            number = number.value_type
        for row in table.to_pylist():
            by_index[str(row["index"])] = np.array(row["vectors"], dtype=number.to_pandas_dtype())
    assert sorted(by_index, key=int) == [str(index) for index in range(len(by_index))]
    return [by_index[str(index)] for index in range(len(by_index))]


def assert_all_close(found: list[np.ndarray], expected: list[np.ndarray], atol: float = ATOL) -> None:
    assert len(found) == len(expected)
    for index, (array, exact) in enumerate(zip(found, expected, strict=True)):
        assert array.size == exact.size, index
        np.testing.assert_allclose(array.reshape(exact.shape), exact, rtol=0, atol=atol, err_msg=f"sentence {index}")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layers", LAYERS)
def test_vectors_are_those_of_each_sentence_alone(
    suffix: str, layers: str, model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"vectors{suffix}"
    assert embed_file(model, tokenizer, corpus, path, layers=layers, batch_size=2) == len(SENTENCES)
    found = read_vectors(path)
    assert {array.dtype for array in found} == {np.dtype("float32")}
    assert_all_close(found, [embed_alone(model, tokenizer, sentence, layers) for sentence in SENTENCES])
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
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
) -> None:
    assert tokenizer.tokenize(SENTENCES[0]) == "The ferry left the harbour at 7:45 , ten minutes late .".split()
    embed_file(model, tokenizer, corpus, tmp_path / f"vectors{suffix}", layers=layers)
    found = read_vectors(tmp_path / f"vectors{suffix}")
    assert (found[0].shape, found[5].shape) == (shape, shape)
    assert found[1].shape == (shape if layers == "pooled" else (*shape[:-2], 0, HIDDEN_SIZE))
    if layers == "pooled":
        np.testing.assert_array_equal(found[1], np.zeros(HIDDEN_SIZE, dtype=np.float32))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_batch_size_does_not_matter(
    batch_size: int, model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(model, tokenizer, corpus, tmp_path / "two.npz", batch_size=2)
    embed_file(model, tokenizer, corpus, tmp_path / "other.npz", batch_size=batch_size)
    assert_all_close(read_vectors(tmp_path / "other.npz"), read_vectors(tmp_path / "two.npz"))


@pytest.mark.parametrize("window_words", [1, 20, 30])
def test_size_of_the_windows_does_not_matter(
    window_words: int,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embed_file(model, tokenizer, corpus, tmp_path / "one.hdf5")
    monkeypatch.setattr(embed, "WINDOW_WORDS", window_words)
    embed_file(model, tokenizer, corpus, tmp_path / "many.hdf5")
    assert_all_close(read_vectors(tmp_path / "many.hdf5"), read_vectors(tmp_path / "one.hdf5"))


def test_dropout_is_off_whatever_the_mode_of_the_model(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(model.train(), tokenizer, corpus, tmp_path / "vectors.npz", layers="mix")
    expected = [embed_alone(model, tokenizer, sentence, "mix") for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_float16_is_the_float32_vector_rounded(
    suffix: str, model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(model, tokenizer, corpus, tmp_path / "single.npz", layers="top")
    embed_file(model, tokenizer, corpus, tmp_path / f"half{suffix}", layers="top", dtype="float16")
    halves, singles = read_vectors(tmp_path / f"half{suffix}"), read_vectors(tmp_path / "single.npz")
    assert {array.dtype for array in halves} == {np.dtype("float16")}
    assert [array.tobytes() for array in halves] == [array.astype(np.float16).tobytes() for array in singles]


def test_a_model_in_bfloat16_writes_float32(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(model.to(torch.bfloat16), tokenizer, corpus, tmp_path / "vectors.npz", layers="top", batch_size=1)
    found = read_vectors(tmp_path / "vectors.npz")
    assert {array.dtype for array in found} == {np.dtype("float32")}
    inputs = tokenizer([SENTENCES[0]], return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state[0, 1:-1]
    np.testing.assert_array_equal(found[0], expected.float().numpy())


def test_words_are_embedded_as_they_come(model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    values = [["New York", "isn't", "x" * 60], {"words": []}, {"text": "It isn't."}, "Don't!"]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f"{json.dumps(value)}\n" for value in values), encoding="utf-8")
    embed_file(model, tokenizer, corpus, tmp_path / "vectors.hdf5")
    sentences = [["New York", "isn't", "x" * 60], [], ["It", "is", "n't", "."], ["Do", "n't", "!"]]
    expected = [embed_alone(model, tokenizer, words, "all") for words in sentences]
    assert_all_close(read_vectors(tmp_path / "vectors.hdf5"), expected)


def test_lines_split_into_words_are_not_split_further(
    model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt.gz"
    corpus.write_bytes(gzip.compress(b"It isn't.\r\n\r\n late,  ten\n"))
    embed_file(model, tokenizer, corpus, tmp_path / "vectors.npz", split_into_words=True)
    expected = [embed_alone(model, tokenizer, words, "all") for words in (["It", "isn't."], [], ["late,", "ten"])]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


def test_a_stream_is_read_as_text(model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path) -> None:
    stream = io.BytesIO(corpus.read_bytes())
    assert embed_file(model, tokenizer, stream, tmp_path / "stream.hdf5") == len(SENTENCES)
    embed_file(model, tokenizer, corpus, tmp_path / "file.hdf5")
    assert (tmp_path / "stream.hdf5").read_bytes() == (tmp_path / "file.hdf5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "file.hdf5", "stream.hdf5"]


@pytest.mark.parametrize("content", ["\n\n\n", "\n \n\t\n"], ids=["no words", "blanks"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_blank_lines_has_an_entry_for_each(
    suffix: str, content: str, model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "blank.txt").write_text(content, encoding="utf-8")
    assert embed_file(model, tokenizer, tmp_path / "blank.txt", tmp_path / f"vectors{suffix}", layers="top") == 3
    assert [array.size for array in read_vectors(tmp_path / f"vectors{suffix}")] == [0, 0, 0]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_input_makes_a_file_without_entries(
    suffix: str, model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    path = tmp_path / f"vectors{suffix}"
    assert embed_file(model, tokenizer, tmp_path / "empty.txt", path) == 0
    if suffix == ".parquet":
        assert pq.read_table(path).num_rows == 0
    else:
        assert read_vectors(path) == []
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "empty.txt", path])


def test_hdf5_file_has_the_layout_of_allennlp(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    embed_file(model, tokenizer, corpus, tmp_path / "vectors.hdf5")
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


def test_words_are_joined_by_blanks_in_the_index(model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("It  isn't.\n", encoding="utf-8")
    embed_file(model, tokenizer, tmp_path / "corpus.txt", tmp_path / "vectors.hdf5", split_into_words=True)
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"It isn't.": "0"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layers", ["all", "top", "pooled"])
def test_parquet_file_opens_as_a_dataset(
    layers: str, dtype: str, model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "vectors.parquet"
    embed_file(model, tokenizer, corpus, path, layers=layers, dtype=dtype)
    cache = str(tmp_path / "cache")
    dataset = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=cache)
    assert dataset.column_names == ["index", "sentence", "vectors"]
    assert dataset["index"][:] == [0, 1, 2, 3, 4, 5]
    assert dataset["sentence"][:] == SENTENCES
    expected = [embed_alone(model, tokenizer, sentence, layers) for sentence in SENTENCES]
    # Half precision has 11 bits.
    assert_all_close(
        [np.array(vectors) for vectors in dataset["vectors"]], expected, ATOL if dtype == "float32" else 2e-3
    )


def test_parquet_rows_are_written_in_groups(
    model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmo_hf.vector_files.ROWS_PER_GROUP", 4)
    lines = [f"word{number} " * (number % 4) for number in range(10)]
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    embed_file(model, tokenizer, tmp_path / "corpus.txt", tmp_path / "vectors.parquet", batch_size=3)
    assert pq.ParquetFile(tmp_path / "vectors.parquet").num_row_groups == 3
    expected = [embed_alone(model, tokenizer, line, "all") for line in lines]
    assert_all_close(read_vectors(tmp_path / "vectors.parquet"), expected)


class Interrupt(Exception):
    """Stands for a power cut."""


def fail_at_call(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Makes `embed.NAME` fail at its call of this number, counted from 1."""
    function, calls = getattr(embed, name), []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise Interrupt
        return function(*args)

    monkeypatch.setattr(embed, name, failing)


def count_rows(model: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records how many sentences each call of the model embeds."""
    forward, counts = model.forward, []

    def counting(**inputs: Any) -> Any:
        counts.append(len(inputs["input_ids"]))
        return forward(**inputs)

    monkeypatch.setattr(model, "forward", counting)
    return counts


@pytest.fixture
def interrupted(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The output of a run that ended after the first of its windows, three sentences; it is not there yet."""
    output = tmp_path / "vectors.npz"
    monkeypatch.setattr(embed, "WINDOW_WORDS", 17)
    with monkeypatch.context() as patch:
        fail_at_call(patch, "write_chunk", 2)
        with pytest.raises(Interrupt):
            embed_file(model, tokenizer, corpus, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "vectors.npz.partial"]
    work = tmp_path / "vectors.npz.partial"
    assert sorted(path.name for path in work.iterdir()) == ["chunk-00000000.safetensors", "job.json"]
    assert sorted(load_file(work / "chunk-00000000.safetensors")) == ["0", "1", "2"]
    return output


def test_an_interrupted_run_goes_on_where_it_stopped(
    interrupted: Path,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = count_rows(model, monkeypatch)
    assert embed_file(model, tokenizer, corpus, interrupted) == len(SENTENCES)
    assert sum(counts) == len(SENTENCES) - 3
    assert_all_close(
        read_vectors(interrupted), [embed_alone(model, tokenizer, sentence, "all") for sentence in SENTENCES]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "vectors.npz"]


def test_a_run_may_go_on_with_other_windows_and_batches(
    interrupted: Path, model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "WINDOW_WORDS", 5)
    embed_file(model, tokenizer, corpus, interrupted, batch_size=1)
    expected = [embed_alone(model, tokenizer, sentence, "all") for sentence in SENTENCES]
    assert_all_close(read_vectors(interrupted), expected)


def test_a_run_that_the_model_interrupts_goes_on(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "WINDOW_WORDS", 1)
    with monkeypatch.context() as patch:
        fail_at_call(patch, "_embed_window", 4)
        with pytest.raises(Interrupt):
            embed_file(model, tokenizer, corpus, tmp_path / "vectors.hdf5")
    counts = count_rows(model, monkeypatch)
    embed_file(model, tokenizer, corpus, tmp_path / "vectors.hdf5")
    assert counts == [1, 1, 1]
    expected = [embed_alone(model, tokenizer, sentence, "all") for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.hdf5"), expected)


def test_a_run_interrupted_while_writing_computes_nothing_again(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail_at_call(patch, "read_chunks", 1)
        with pytest.raises(Interrupt):
            embed_file(model, tokenizer, corpus, tmp_path / "vectors.npz", layers="top")
    assert not (tmp_path / "vectors.npz").exists()
    counts = count_rows(model, monkeypatch)
    embed_file(model, tokenizer, corpus, tmp_path / "vectors.npz", layers="top")
    assert counts == []
    expected = [embed_alone(model, tokenizer, sentence, "top") for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


def test_an_interrupted_stream_goes_on_when_it_comes_again(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "WINDOW_WORDS", 17)
    with monkeypatch.context() as patch:
        fail_at_call(patch, "write_chunk", 2)
        with pytest.raises(Interrupt):
            embed_file(model, tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    counts = count_rows(model, monkeypatch)
    embed_file(model, tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    assert sum(counts) == len(SENTENCES) - 3
    expected = [embed_alone(model, tokenizer, sentence, "all") for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


def test_another_stream_does_not_disturb_an_interrupted_one(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail_at_call(patch, "read_chunks", 1)
        with pytest.raises(Interrupt):
            embed_file(model, tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    with pytest.raises(ValueError, match=r"was left by an interrupted run with another input;"):
        embed_file(model, tokenizer, io.BytesIO(b"Another sentence.\n"), tmp_path / "vectors.npz")
    embed_file(model, tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    expected = [embed_alone(model, tokenizer, sentence, "all") for sentence in SENTENCES]
    assert_all_close(read_vectors(tmp_path / "vectors.npz"), expected)


def other_input(model: ElmoModel, corpus: Path) -> dict[str, Any]:
    corpus.write_text("Another sentence.\n", encoding="utf-8")
    return {}


def other_model(model: ElmoModel, corpus: Path) -> dict[str, Any]:
    model.scalar_mixes[0].set_weights([0.3, 0.5, 0.2])
    return {}


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        (lambda model, corpus: {"layers": "top"}, "layers"),
        (lambda model, corpus: {"dtype": "float16"}, "dtype"),
        (lambda model, corpus: {"split_into_words": True}, "split_into_words"),
        (lambda model, corpus: {"dtype": "float16", "layers": "mix"}, "layers and dtype"),
        (other_input, "input"),
        (other_model, "model"),
    ],
    ids=["layers", "dtype", "splitting", "layers and dtype", "input", "model"],
)
def test_what_another_job_left_is_not_used(
    change: Callable[[ElmoModel, Path], dict[str, Any]],
    differing: str,
    interrupted: Path,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    corpus: Path,
) -> None:
    work = interrupted.with_name("vectors.npz.partial")
    options = change(model, corpus)
    message = f"{work} was left by an interrupted run with another {differing}; delete that folder to start anew."
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        embed_file(model, tokenizer, corpus, interrupted, **options)
    assert not interrupted.exists()
    assert sorted(path.name for path in work.iterdir()) == ["chunk-00000000.safetensors", "job.json"]


def test_what_another_tokenizer_left_is_not_used(
    interrupted: Path, model: ElmoModel, tiny_folder: Path, corpus: Path
) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    with pytest.raises(ValueError, match=r"was left by an interrupted run with another tokenizer;"):
        embed_file(model, tokenizer, corpus, interrupted)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "vectors.csv",
            {},
            "the output's suffix must be one of .hdf5, .safetensors, .npz, .parquet, found 'vectors.csv'.",
        ),
        ("vectors", {}, "the output's suffix must be one of .hdf5, .safetensors, .npz, .parquet, found 'vectors'."),
        (
            "vectors.npz",
            {"layers": "second"},
            "`layers` must be one of all, top, mix, average, pooled, found 'second'.",
        ),
        ("vectors.npz", {"dtype": "int8"}, "`dtype` must be one of float32, float16, found 'int8'."),
        ("vectors.npz", {"batch_size": 0}, "`batch_size` must be at least 1, found 0."),
    ],
    ids=["csv", "no suffix", "layers", "dtype", "batch size"],
)
def test_an_illegal_argument_is_named(
    name: str,
    options: dict[str, Any],
    message: str,
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        embed_file(model, tokenizer, corpus, tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == [corpus]


def test_an_existing_output_is_left_as_it_is(
    model: ElmoModel, tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "vectors.npz").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"vectors\.npz exists already; remove it or choose another name\."):
        embed_file(model, tokenizer, corpus, tmp_path / "vectors.npz")
    assert (tmp_path / "vectors.npz").read_bytes() == b"precious"


def test_a_missing_input_is_named(model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere\.txt\."):
        embed_file(model, tokenizer, tmp_path / "nowhere.txt", tmp_path / "vectors.npz")
    assert list(tmp_path.iterdir()) == []


def test_an_input_that_is_not_of_its_format_leaves_nothing(
    model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text('"fine"\n17\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"^bad\.jsonl, line 2: must be a string"):
        embed_file(model, tokenizer, tmp_path / "bad.jsonl", tmp_path / "vectors.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


def test_no_batch_has_more_positions_than_allowed_but_for_a_longer_text_alone(
    model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "BATCH_WORDS", 20)
    source = tmp_path / "words.txt"
    lengths = [3, 30, 1, 8, 0, 5, 3, 3]
    source.write_text("".join("word " * length + "\n" for length in lengths))
    shapes: list[tuple[int, int]] = []
    model.bilm.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[1].shape)))
    embed_file(model, tokenizer, source, tmp_path / "out.hdf5", batch_size=3)
    assert shapes == [(1, 32), (2, 10), (3, 5), (2, 3)]
    for vectors, length in zip(read_vectors(tmp_path / "out.hdf5"), lengths, strict=True):
        assert vectors.shape == (3, length, 16)


@pytest.mark.parametrize("suffix", [".parquet", ".hdf5"])
def test_a_lone_surrogate_is_no_reason_to_fail(
    model: ElmoModel, tokenizer: ElmoTokenizer, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "text.jsonl").write_text('"a \\ud800 b"\n')
    assert embed_file(model, tokenizer, tmp_path / "text.jsonl", tmp_path / f"out{suffix}") == 1
    assert len(read_vectors(tmp_path / f"out{suffix}")) == 1
