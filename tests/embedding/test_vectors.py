"""Every format and kind of vector, and `Embedder` under other libraries, equal the model run alone on the sentence."""

import gzip
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import Embedder
from elmo_hf.folder.loading import _loaded
from tests.helpers.pages import blocks, read
from tests.helpers.vectors import LAYERS, SENTENCES, SUFFIXES, TEXT, assert_all_close, embed_alone, read_vectors

Embed = Callable[..., int]
VALUES = [["New York", "isn't", "x" * 60], {"words": []}, {"text": "It isn't."}, "Don't!"]
# The content of each source, how it is read, and its sentences.
SOURCES: dict[str, tuple[bytes, dict[str, Any], list[Any]]] = {
    "corpus.txt": (TEXT.encode(), {}, SENTENCES),
    "in.jsonl": (
        "".join(f"{json.dumps(value)}\n" for value in VALUES).encode(),
        {},
        [["New York", "isn't", "x" * 60], [], ["It", "is", "n't", "."], ["Do", "n't", "!"]],
    ),
    "in.txt.gz": (
        gzip.compress(b"It isn't.\r\n\r\n late,  ten\n"),
        {"split_into_words": True},
        [["It", "isn't."], [], ["late,", "ten"]],
    ),
    "blank.txt": (b"\n \n\t\n", {}, [[], [], []]),
}


CASES = [*((layers, "corpus.txt") for layers in LAYERS), *(("all", source) for source in SOURCES)]


@pytest.mark.parametrize(("layers", "source"), dict.fromkeys(CASES))
def test_every_tokenizer_gives_the_vectors_of_each_sentence_alone_in_every_format(
    layers: str, source: str, embed: Embed, mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer
) -> None:
    content, reading, sentences = SOURCES[source]
    Path(source).write_bytes(content)
    options = {"layers": layers, "tokenizer": each_tokenizer, "batch_words": 30, **reading}
    expected = embed_alone(mixed_model, each_tokenizer, sentences, layers)
    for suffix in SUFFIXES:
        mixed_model.train()  # dropout must be off
        assert embed(f"v{suffix}", source, **options) == len(sentences)
        found = read_vectors(f"v{suffix}")
        assert {array.dtype for array in found} == {np.dtype("float32")}
        assert_all_close(found, expected)
        if suffix != ".parquet":  # nested lists keep no shape if they are empty
            assert [array.shape for array in found] == [array.shape for array in expected]
        assert embed(f"{suffix}/", source, shard_format=suffix[1:], **options) == len(sentences)
        shards = [json.loads(line) for line in Path(suffix, "_index.jsonl").read_text().splitlines()]
        assert [shard["shard"] for shard in shards] == [f"part-0000{n}{suffix}" for n in range(len(shards))]
        again = [array for each in shards for array in read_vectors(Path(suffix, each["shard"]), each["number"])]
        assert [array.tobytes() for array in again] == [array.tobytes() for array in found]
    written = {name for suffix in SUFFIXES for name in (f"v{suffix}", suffix)}
    assert {path.name for path in Path().iterdir()} == {"corpus.txt", source, *written}


def test_a_mix_that_normalises_counts_boundaries(
    embed: Embed, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    mixed_model.scalar_mixes[0].layer_norm = "batch"
    with torch.no_grad():
        outputs = [mixed_model.eval()(**tiny_tokenizer([each], return_tensors="pt")) for each in SENTENCES]
    mixes, pooled = ([output[name][0].numpy() for output in outputs] for name in ("last_hidden_state", "pooler_output"))
    for layers, expected in (("mix", [mix[1:-1] for mix in mixes]), ("pooled", pooled)):
        embed(f"{layers}.npz", layers=layers, batch_words=1)
        assert_all_close(read_vectors(f"{layers}.npz"), expected)


def test_a_model_in_bfloat16_writes_float32(
    embed: Embed, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    mixed_model.to(torch.bfloat16)
    embed("v.npz", layers="top", batch_words=1)
    found = read_vectors("v.npz")
    assert {array.dtype for array in found} == {np.dtype("float32")}
    (expected, *_) = embed_alone(mixed_model, tiny_tokenizer, SENTENCES[:1], "top")
    np.testing.assert_array_equal(found[0], expected)


def test_hdf5_file_has_the_layout_of_allennlp(embed: Embed) -> None:
    embed("v.hdf5")
    with h5py.File("v.hdf5", "r") as file:
        assert set(file) == {"0", "1", "2", "3", "4", "5", "sentence_to_index"}
        assert file["sentence_to_index"].shape == (1,)
        # AllenNLP's readers parse this very string; of equal sentences the last one is named.
        expected = {SENTENCES[0]: "5", "": "1", "Yes": "2", SENTENCES[3]: "3", "No.": "4"}
        assert json.loads(file["sentence_to_index"][0]) == expected
    Path("in.txt").write_text("It  isn't.\n")
    embed("words.hdf5", "in.txt", split_into_words=True)
    with h5py.File("words.hdf5", "r") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"It isn't.": "0"}


@pytest.mark.parametrize("layers", ["all", "pooled"])
def test_parquet_file_opens_as_a_dataset(
    layers: str, embed: Embed, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    datasets = pytest.importorskip("datasets")
    embed("v.parquet", layers=layers)
    dataset = datasets.load_dataset("parquet", data_files="v.parquet", split="train", cache_dir="cache")
    assert dataset.column_names == ["document", "index", "sentence", "vectors"]
    assert (dataset["index"][:], dataset["sentence"][:]) == ([0, 1, 2, 3, 4, 5], SENTENCES)
    expected = embed_alone(mixed_model, tiny_tokenizer, SENTENCES, layers)
    assert_all_close([np.array(vectors) for vectors in dataset["vectors"]], expected)


def test_parquet_rows_are_written_in_groups_in_the_order_of_the_lines(embed: Embed) -> None:
    lines = [f"word{number} " * (number % 4) for number in range(300)]
    Path("lines.txt").write_text("\n".join(lines) + "\n")
    for output in ("v.parquet", "v.npz"):
        embed(output, "lines.txt", window_characters=400)
    assert_all_close(read_vectors("v.parquet"), read_vectors("v.npz"), 0)
    table = pq.read_table("v.parquet")
    assert (table["index"].to_pylist(), table["sentence"].to_pylist()) == ([*range(300)], lines)
    assert pq.ParquetFile("v.parquet").num_row_groups == 2


@pytest.fixture
def folder(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path) -> str:
    mixed_model.save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("layers", ["all", "mix", "pooled"])
def test_a_batch_of_arrays_or_a_frame_of_pandas_gets_a_column_of_vectors(
    layers: str, folder: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    embedder = Embedder(folder, column="line", layers=layers, batch_words=30)
    batch = {"line": np.array(SENTENCES, dtype=object), "id": np.arange(6)}
    found = embedder(batch)
    assert [*found] == ["line", "id", "vectors"]
    assert found["id"] is batch["id"]
    assert isinstance(found["vectors"], np.ndarray) == (layers == "pooled")
    expected = embed_alone(mixed_model, tiny_tokenizer, SENTENCES, layers)
    for each in (found, embedder(pytest.importorskip("pandas").DataFrame(batch))):
        assert_all_close(list(each["vectors"]), expected)
    words = [["New York", "isn't"], []]
    found = embedder({"line": [*words, None]})
    assert_all_close(list(found["vectors"]), embed_alone(mixed_model, tiny_tokenizer, [*words, []], layers))


def test_a_layer_may_be_named_by_an_int(folder: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer) -> None:
    vectors = list(Embedder(folder, layers=1)({"text": SENTENCES})["vectors"])
    assert_all_close(vectors, embed_alone(mixed_model, tiny_tokenizer, SENTENCES, "1"))
    with pytest.raises(ValueError, match="from 0 to 2 for this model, found 3"):
        Embedder(folder, layers=3)({"text": SENTENCES})


def test_int8_and_chosen_words_have_columns_of_their_own_without_rows_too(folder: str) -> None:
    found = Embedder(folder, dtype="int8", words="ferry|harbour")({"text": SENTENCES})
    assert [*found] == ["text", "vectors", "scales", "positions", "chosen_words"]
    assert [each.tolist() for each in found["positions"]] == [[1, 4], [], [], [], [], [1, 4]]
    assert [each.tolist() for each in found["chosen_words"]] == [["ferry", "harbour"], *[[]] * 4, ["ferry", "harbour"]]
    assert [each.shape for each in found["scales"]] == [(2,), (0,), (0,), (0,), (0,), (2,)]
    found = Embedder(folder, layers="pooled", dtype="int8")({"text": []})
    assert {name: len(column) for name, column in found.items()} == {"text": 0, "vectors": 0, "scales": 0}
    assert found["vectors"].shape == (0, 16)


def test_a_process_loads_the_model_once_pickles_none_and_sees_that_it_was_saved_again(
    folder: str, mixed_model: ElmoModel
) -> None:
    _loaded.cache_clear()
    embedder = Embedder(folder)
    pickled = pickle.dumps(embedder)
    assert len(pickled) < 3000
    first, second = (each({"text": SENTENCES})["vectors"] for each in (embedder, pickle.loads(pickled)))
    assert _loaded.cache_info().misses == 1
    assert_all_close(first, second, 0)
    mixed_model.scalar_mixes[0].set_weights([1.0, 0.0, 0.0])
    mixed_model.save_pretrained(folder)
    assert pickle.dumps(Embedder(folder)) != pickled  # so `datasets` does not take its cached result
    assert not np.allclose(Embedder(folder)({"text": SENTENCES})["vectors"][0], first[0])


def test_datasets_map_it_whole_and_streaming(
    folder: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": SENTENCES, "id": [*range(6)]})
    expected = embed_alone(mixed_model, tiny_tokenizer, SENTENCES, "mix")
    for mapped in (dataset, dataset.to_iterable_dataset()):
        rows = [*mapped.map(Embedder(folder), batched=True, batch_size=4)]
        assert [row["id"] for row in rows] == [*range(6)]
        assert_all_close([np.array(row["vectors"], dtype=np.float32) for row in rows], expected)


@pytest.mark.parametrize(("library", "layers"), [("ray", "mix"), ("pyspark", "pooled")])
def test_what_the_page_shows_of_engines_writes_the_vectors_of_every_text(
    library: str, layers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    (code,) = (block for block in blocks(read("scale"), "py") if re.search(rf"^(import|from) {library}\b", block, re.M))
    (tmp_path / "sentences.txt").write_text("The ferry left .\nYes .\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # Spark's workers would take the first python3 of the path.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)
    rows = pq.read_table(next(tmp_path.glob("*-vectors")), columns=["text", "vectors"]).to_pylist()
    expected = Embedder("tiny", layers=layers)({"text": [row["text"] for row in rows]})["vectors"]
    arrays = [row["vectors"] for row in rows]
    # Ray has a type of its own for arrays of several shapes.
    numbers = [np.reshape(each["data"], each["shape"]) if isinstance(each, dict) else np.array(each) for each in arrays]
    assert_all_close(numbers, list(expected))
