"""`--check`: the comparison with the witness, and with the numbers that were published for official weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo_hf.conversion.check import CHECK_SENTENCES, check_conversion
from elmo_hf.conversion.contract import Checkpoint, NamedFiles
from elmo_hf.conversion.convert import FolderSettings, convert_source
from elmo_hf.conversion.formats import recognise
from elmo_hf.conversion.published import Published, download
from elmo_hf.conversion.readers.allennlp import read_allennlp
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.sources import open_source
from elmo_hf.conversion.witness.reference import ReferenceElmo
from elmo_hf.conversion.witness.reference_outputs import (
    PUBLISHED_NUMBERS,
    PublishedNumbers,
    cosine_distances,
    explained_variance_ratios,
)
from tests.helpers.archives import MANYLANGS, golden_state, manylangs_files, state_bytes, write_files
from tests.helpers.checkpoints import BASE, Arrays, allennlp_to_folder, base_checkpoint, write_datasets
from tests.helpers.language_models import word_files

SENTENCES = ("The ferry left the harbour .", "Yes .", "The ferry is late .")
TINY = Published("far/options.json", "far/weights.hdf5", size="32/8")


@pytest.fixture(scope="module")
def layers() -> list[np.ndarray]:
    """The vectors of `SENTENCES` from the checkpoint's arrays, by NumPy, with the state carried."""
    reference, state = ReferenceElmo(*base_checkpoint()), {}
    return [reference.embed(sentence.split(), state)[:, 1:-1] for sentence in SENTENCES]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return read_allennlp(NamedFiles(BASE / "options.json", BASE / "weights.hdf5"))


def stream_of(layers: list[np.ndarray], factor: float = 1) -> PublishedNumbers:
    """Numbers of the tiny model as if it were a published one, the last of them multiplied."""

    def measure(layers: list[np.ndarray]) -> np.ndarray:
        return np.append(cosine_distances(layers, 2, (0, 1), (2, 1)), explained_variance_ratios(layers, 1))

    *rest, last = measure(layers)
    return PublishedNumbers("tiny", "somewhere", SENTENCES, measure, (*rest, last * factor))


def test_true_weights_give_the_published_numbers_and_others_do_not(
    tiny_folder: Path, checkpoint: Checkpoint, layers: list[np.ndarray]
) -> None:
    difference, names = check_conversion(tiny_folder, checkpoint, [stream_of(layers)], {"tiny": TINY})
    assert difference < 1e-5
    assert names == ["tiny"]
    for factor in (1.01, 0.99, np.nan):
        with pytest.raises(ConversionError, match=r"^these are not the weights of the published `tiny`: .* somewhere"):
            check_conversion(tiny_folder, checkpoint, [stream_of(layers, factor)], {"tiny": TINY})


@pytest.mark.parametrize(("weights", "size"), [("weights_2", "32/8"), ("weights", "33/8"), ("weights", "32/9")])
def test_files_of_another_name_and_models_of_other_sizes_are_not_compared(
    weights: str, size: str, tiny_folder: Path, checkpoint: Checkpoint, layers: list[np.ndarray]
) -> None:
    table = {"tiny": Published("far/options.json", f"far/{weights}.hdf5", size=size)}
    assert check_conversion(tiny_folder, checkpoint, [stream_of(layers, 1.01)], table)[1] == []


@pytest.mark.parametrize(("sentence", "change"), [(0, np.nan), (1, np.nan), (2, np.nan), (1, 1e-3)])
def test_a_model_that_differs_from_its_checkpoint_in_one_sentence_is_refused(
    sentence: int, change: float, checkpoint: Checkpoint, tiny_folder: Path
) -> None:
    class Changed(ReferenceElmo):
        def embed(self, words: Sequence[str], *args: object) -> np.ndarray:
            return super().embed(words) + change * (list(words) == list(CHECK_SENTENCES[sentence]))

    changed = replace(checkpoint, make_reference=lambda: Changed(*base_checkpoint()))
    with pytest.raises(ConversionError, match=f"a difference of {change:.2e}"):
        check_conversion(tiny_folder, changed)


@pytest.mark.parametrize("name", ["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B", "CNN_high_1/b_carry", "char_embed"])
def test_a_model_that_differs_from_its_checkpoint_in_one_array_is_refused(
    name: str, checkpoint: Checkpoint, tiny_folder: Path
) -> None:
    options, arrays = base_checkpoint()
    changed = ReferenceElmo(options, arrays | {name: arrays[name] + 0.05})
    with pytest.raises(ConversionError, match="a difference of"):
        check_conversion(tiny_folder, replace(checkpoint, make_reference=lambda: changed))


def torch_file(name: str, beside: dict[str, bytes]) -> Callable[[Path, Arrays], Path]:
    def write(folder: Path, arrays: Arrays) -> Path:
        content = state_bytes({key: torch.from_numpy(array) for key, array in arrays.items()})
        return write_files(folder, beside | {name: content})

    return write


def state_of(name: str) -> Arrays:
    return {key: tensor.numpy() for key, tensor in torch.load(MANYLANGS / name, weights_only=True).items()}


TRAINED = {name: tensor.numpy() for name, tensor in golden_state(BASE.name).items()}
MANY = manylangs_files()
# The number of the biLM's arrays, all arrays, and a function that writes them.
WITNESSES = {
    "hdf5": (31, base_checkpoint()[1], lambda folder, arrays: write_datasets(folder / "x.hdf5", arrays)),
    "trained": (31, TRAINED, torch_file("weights.th", {})),
    "ManyLangs, token": (14, state_of("token_embedder.pkl"), torch_file("token_embedder.pkl", MANY)),
    "ManyLangs, encoder": (16, state_of("encoder.pkl"), torch_file("encoder.pkl", MANY)),
}


@pytest.mark.parametrize("form", WITNESSES)
def test_the_witness_sees_a_change_in_any_array(form: str, tmp_path: Path) -> None:
    number, arrays, write = WITNESSES[form]

    def witness(arrays: Arrays) -> np.ndarray:
        with open_source(write(tmp_path, arrays)) as source:
            make_reference = recognise(source).read(source, NamedFiles(BASE / "options.json"), None).make_reference
        assert make_reference is not None
        return make_reference().embed(["Hello", "naïve", "日本", "x" * 60, "!"])

    unchanged = witness(arrays)
    names = [name for name in arrays if arrays is not TRAINED or "._elmo_lstm." in name]
    assert len(names) == number
    for name in names:
        assert np.abs(witness(arrays | {name: arrays[name] + np.float32(0.25)}) - unchanged).max() > 1e-3, name


def test_what_fails_the_check_is_not_written(tmp_path: Path) -> None:
    files, before = word_files(tmp_path), list(tmp_path.iterdir())
    with pytest.raises(ConversionError, match="reads word ids"):
        allennlp_to_folder(files, tmp_path / "DEST", check=True)
    assert list(tmp_path.iterdir()) == before


def test_the_measures_are_what_they_are_called() -> None:
    words = np.array([[3.0, 0], [0, 2], [-1, 0], [1, 1]])
    sentences = [np.stack([words[:2] * 0 + 9, words[:2]]), np.stack([words[2:] * 0 + 9, words[2:]])]
    half = 1 - 1 / np.sqrt(2)
    measured = cosine_distances(sentences, 1, (0, 0), (0, 1), (1, 0), (1, 1))
    np.testing.assert_allclose(measured, [1, 2, half, 1, half, 2 - half], atol=1e-12)
    generator = np.random.default_rng(5)
    sentences = [generator.normal(size=(2, length, 4)) * [5, 2, 1, 0.5] + 3 for length in (3, 6)]
    eigenvalues = np.linalg.eigvalsh(np.cov(np.concatenate([layers[1] for layers in sentences]).T))[::-1]
    np.testing.assert_allclose(explained_variance_ratios(sentences, 1), eigenvalues[:2] / eigenvalues.sum(), atol=1e-12)
    for stream in PUBLISHED_NUMBERS:
        layers = [generator.normal(size=(3, len(sentence.split()), 16)) for sentence in stream.sentences]
        assert stream.measure(layers).shape == (len(stream.expected),)


@pytest.mark.network
@pytest.mark.parametrize("name", ["small", "original", "5.5B"])
def test_the_official_weights_give_the_published_numbers(name: str, tmp_path: Path) -> None:
    weights, given = download(name, folder=tmp_path / "files")
    told: list[str] = []
    convert_source(weights, tmp_path / "elmo", NamedFiles(**given), FolderSettings(check=True), told.append)
    assert told[1:] == [f"Note: the vectors are those that were published for {name}."]
