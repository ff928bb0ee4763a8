"""The old classes of simple_elmo and ELMoForManyLangs, and SeqVec's lines, give these programs' own outputs."""

import gzip
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo_hf.dropins.manylangs import Embedder
from elmo_hf.dropins.simple_elmo import ElmoModel
from tests.helpers.archives import MANYLANGS, write_zip
from tests.helpers.checkpoints import FIXTURES
from tests.helpers.commands import run
from tests.helpers.golden import BASE
from tests.helpers.pages import blocks, read

# float32; sums of another order differ by the last bits.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
TEXTS = BASE.sentences["call1"] + BASE.sentences["call2"]
SIMPLE = dict(np.load(FIXTURES / BASE.name / "simple_elmo.npz"))
CALLS: dict[str, list[list[str]]] = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
THEIRS = np.load(MANYLANGS / "expected.npz")


def test_simple_elmos_vectors_and_averages_in_every_call() -> None:
    model = ElmoModel()
    model.load(FIXTURES / BASE.name, max_batch_size=3, limit=500)
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


def test_simple_elmo_loads_with_its_arguments_and_says_so_and_has_its_sizes() -> None:
    model = ElmoModel()
    assert model.load(FIXTURES / BASE.name, full=False, top=False) == "The model is now loaded."
    vectors = model.get_elmo_vectors(TEXTS, layers="all")
    assert vectors.shape[1::2] == (model.n_layers, model.vector_size) == (3, 16)
    assert model.max_chars == 50
    assert model.vocab is None


@pytest.mark.parametrize("method", ["get_elmo_vectors", "get_elmo_vector_average"])
def test_simple_elmo_warns_that_a_session_carries_no_state(method: str, tiny_folder: Path) -> None:
    model = ElmoModel()
    model.load(tiny_folder)
    call = getattr(model, method)
    alone = call([["Yes", "."]], warmup=False)
    for _ in range(2):
        with pytest.warns(UserWarning, match="starts from the zero state"):
            np.testing.assert_array_equal(call([["Yes", "."]], warmup=False, session=object()), alone)


def test_many_langs_layers_in_both_calls_in_the_order_of_the_sentences() -> None:
    embedder = Embedder(MANYLANGS, batch_size=64)
    for call, sentences in CALLS.items():
        for index, layers in enumerate(embedder.sents2elmo(sentences, output_layer=-2)):
            assert layers.dtype == np.float32
            np.testing.assert_allclose(layers, THEIRS[f"{call}/{index}"], **TOLERANCE)


def test_many_langs_mean_and_single_layers_and_batches() -> None:
    (mean,) = Embedder(str(MANYLANGS)).sents2elmo(CALLS["call1"][:1])
    np.testing.assert_allclose(mean, THEIRS["average/0"], **TOLERANCE)
    embedder = Embedder(MANYLANGS, batch_size=2)
    embedder.elmo.stateful = False
    for output_layer in (0, 1, 2):
        empty, *found = embedder.sents2elmo([[], *CALLS["call1"]], output_layer)
        assert empty.shape == (0, 16)
        for index, vectors in enumerate(found):
            np.testing.assert_allclose(vectors, THEIRS[f"call1/{index}"][output_layer], **TOLERANCE)


def test_the_lines_of_the_page_write_the_files_of_many_langs_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = FIXTURES / "efml_command"
    shutil.copy(theirs / "text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    (lines,) = (block for block in blocks(read("migration"), "python") if "$period$" in block)
    exec(lines, {"embedder": Embedder(MANYLANGS)})
    with h5py.File("text.ly-1.hdf5") as found, h5py.File(theirs / "text.ly-1.hdf5") as expected:
        assert list(found) == list(expected)
        for key, vectors in expected.items():
            assert found[key].dtype == vectors.dtype
            np.testing.assert_allclose(found[key][()], vectors[()], **TOLERANCE)
    texts = [
        [line.split("\t") for line in (folder / "text.ly-1.txt").read_text(encoding="utf-8").splitlines()]
        for folder in (tmp_path, theirs)
    ]
    for row, expected_row in zip(*texts, strict=True):
        assert row[0] == expected_row[0]
        assert [len(number.partition(".")[2]) for number in row[1:]] == [8] * len(expected_row[1:])
        np.testing.assert_allclose(np.array(row[1:], float), np.array(expected_row[1:], float), **TOLERANCE)


RESIDUES = """
import torch
from allennlp.commands.elmo import ElmoEmbedder

seqvec = ElmoEmbedder(options_file, weight_file, cuda_device=-1)
proteins = [torch.tensor(layers).sum(dim=0) for layers in seqvec.embed_batch([list(each) for each in sequences])]
"""
SEQUENCES = {"sp|P1|FIRST": "SEQWENCE", "second": "PROTEIN", "third": "W"}


@pytest.mark.parametrize("layers", ["sum", "pooled_sum"])
def test_vectors_of_a_fasta_file_are_those_of_seqvec(layers: str, tmp_path: Path) -> None:
    archive = write_zip(
        tmp_path / "seqvec.zip", {f"uniref50_v2/{Path(file).name}": Path(file).read_bytes() for file in BASE.files}
    )
    lines = (f">{name} a protein\n{each[:3]}\n{each[3:].lower()}\n\n" for name, each in SEQUENCES.items())
    source, output = tmp_path / "proteins.fa.gz", tmp_path / "vectors.hdf5"
    source.write_bytes(gzip.compress("".join(lines).encode()))
    run("convert", archive, tmp_path / "folder")
    run("embed", tmp_path / "folder", source, "-o", output, "--layers", layers)
    names = BASE.run(RESIDUES, sequences=list(SEQUENCES.values()))
    with h5py.File(output) as file:
        assert json.loads(file["sentence_to_index"][0]) == dict(zip(SEQUENCES, "012", strict=True))
        for row, (name, residues) in enumerate(zip(SEQUENCES, names["proteins"], strict=True)):
            expected = residues.mean(dim=0) if layers == "pooled_sum" else residues
            # float32 sums of two programs that batch the words differently
            np.testing.assert_allclose(file[str(row)][()], expected, rtol=1e-5, atol=1e-6)
            assert file[name] == file[str(row)]
