"""`Embedder`, a function of a batch: the vectors of each text alone, under `datasets`, Ray and Spark's interface."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pages import blocks, read
from vectors import SENTENCES, assert_all_close, embed_alone

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import Embedder
from elmo_hf.folder.loading import _loaded


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
