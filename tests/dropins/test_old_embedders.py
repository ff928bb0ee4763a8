"""simple_elmo's and ELMoForManyLangs' classes under their old names give these programs' own outputs."""

import json
from pathlib import Path

import numpy as np
import pytest
from allennlp_cases import BASE
from archives import MANYLANGS, write_zip
from checkpoints import FIXTURES

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.manylangs import Embedder
from elmo_hf.simple_elmo import ElmoModel

# float32; sums of another order differ by the last bits.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
TEXTS = BASE.sentences["call1"] + BASE.sentences["call2"]
SIMPLE = dict(np.load(FIXTURES / BASE.name / "simple_elmo.npz"))
CALLS: dict[str, list[list[str]]] = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
THEIRS = np.load(MANYLANGS / "expected.npz")


def test_simple_elmos_vectors_and_averages_in_every_call(tmp_path: Path) -> None:
    files = {
        name: (FIXTURES / BASE.name / source).read_bytes()
        for name, source in (("options.json", "options.json"), ("model.hdf5", "weights.hdf5"))
    }
    model = ElmoModel()
    model.load(write_zip(tmp_path / "1.zip", files), max_batch_size=3, limit=500)
    for _ in range(2):
        for name, expected in SIMPLE.items():
            kind, layers = name.split("/")
            call = model.get_elmo_vectors if kind == "vectors" else model.get_elmo_vector_average
            options = {"warmup": False} if layers == "cold" else {"layers": layers}
            found = call(TEXTS, **options)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, **TOLERANCE)


def test_simple_elmos_averages_of_all_layers_are_each_layers_and_zero_without_words(tiny_folder: Path) -> None:
    model = ElmoModel()
    model.load(tiny_folder, max_batch_size=1)
    texts = [["Yes", "."], []]
    sums = model.get_elmo_vectors(texts, layers="all").sum(axis=2)
    found = model.get_elmo_vector_average(texts, layers="all")
    np.testing.assert_allclose(found[0], sums[0] / np.linalg.norm(sums[0]))
    assert not found[1].any()


@pytest.mark.parametrize("converted", [False, True])
def test_many_langs_layers_in_both_calls_in_the_order_of_the_sentences(converted: bool, tmp_path: Path) -> None:
    if converted:
        convert_source(MANYLANGS, tmp_path / "elmo", Given())
    embedder = Embedder(tmp_path / "elmo" if converted else MANYLANGS, batch_size=64)
    for call, sentences in CALLS.items():
        for index, layers in enumerate(embedder.sents2elmo(sentences, output_layer=-2)):
            assert layers.dtype == np.float32
            np.testing.assert_allclose(layers, THEIRS[f"{call}/{index}"], **TOLERANCE)


def test_many_langs_mean_and_single_layers_and_batches() -> None:
    sentences = [[], *CALLS["call1"]]
    (mean,) = Embedder(MANYLANGS).sents2elmo(CALLS["call1"][:1])
    np.testing.assert_allclose(mean, THEIRS["average/0"], **TOLERANCE)
    embedder = Embedder(MANYLANGS, batch_size=2)
    embedder.elmo.stateful = False
    expected = [np.zeros((3, 0, 16)), *(THEIRS[f"call1/{index}"] for index in range(4))]
    for output_layer in (-1, 0, 1, 2):
        for found, layers in zip(embedder.sents2elmo(sentences, output_layer), expected, strict=True):
            layer = layers.mean(axis=0) if output_layer == -1 else layers[output_layer]
            np.testing.assert_allclose(found, layer, **TOLERANCE)
