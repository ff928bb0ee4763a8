"""`--check` with the numbers that were published for official weights, with true weights and with others."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from checkpoints import BASE, base_checkpoint

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.check import check_folder, embed_stream
from elmo_hf.conversion.contract import Checkpoint
from elmo_hf.conversion.convert import allennlp_to_folder
from elmo_hf.conversion.published import PUBLISHED, Published, download
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles, read_allennlp
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.witness.reference import ReferenceElmo
from elmo_hf.conversion.witness.reference_outputs import (
    STREAMS,
    Check,
    Stream,
    cosine_distances,
    explained_variance_ratios,
)

SENTENCES = ("The ferry left the harbour .", "Yes .", "The ferry is late .")


@pytest.fixture
def layers() -> list[np.ndarray]:
    """The vectors of `SENTENCES` from the checkpoint's arrays, by NumPy, with the state carried."""
    reference, state = ReferenceElmo(*base_checkpoint()), {}
    return [reference.embed(sentence.split(), state)[:, 1:-1] for sentence in SENTENCES]


@pytest.fixture
def streams(layers: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """Numbers of the tiny model, as if it were a published one."""
    monkeypatch.setitem(PUBLISHED, "tiny", Published("far/options.json", "far/weights.hdf5", size="32/8"))
    distances, ratios = cosine_distances(2, (0, 1), (2, 1)), explained_variance_ratios(1, 0, 3)
    checks = (
        Check("two ferries", distances, tuple(distances(layers))),
        Check("all words", ratios, tuple(ratios(layers))),
    )
    return [Stream("tiny", "somewhere", SENTENCES, checks)]


@pytest.fixture
def checkpoint() -> Checkpoint:
    return read_allennlp(AllenNlpFiles.in_folder(BASE), "ptb")


def altered(streams: list[Stream]) -> list[Stream]:
    """The same numbers, the second of `all words` a hundredth larger."""
    ferries, words = streams[0].checks
    words = replace(words, expected=(words.expected[0], words.expected[1] * 1.01))
    return [replace(streams[0], checks=(ferries, words))]


def test_streams_are_embedded_with_the_state_carried(tiny_folder: Path, layers: list[np.ndarray]) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    for found, expected in zip(embed_stream(model, tokenizer, SENTENCES), layers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_true_weights_give_the_published_numbers(
    tiny_folder: Path, checkpoint: Checkpoint, streams: list[Stream]
) -> None:
    difference, names = check_folder(tiny_folder, checkpoint, [*streams, *STREAMS])
    assert difference < 1e-5
    assert names == ["tiny"]


def test_the_number_shown_is_the_one_that_differs_most(
    tiny_folder: Path, checkpoint: Checkpoint, streams: list[Stream]
) -> None:
    _, second = streams[0].checks[1].expected
    message = (
        f"all words: somewhere has {second * 1.01:.6f} for the published tiny model, this checkpoint gives {second:.6f}"
    )
    with pytest.raises(ConversionError, match=re.escape(message)):
        check_folder(tiny_folder, checkpoint, altered(streams))


def test_numbers_that_are_none_are_refused(tiny_folder: Path, checkpoint: Checkpoint, streams: list[Stream]) -> None:
    checks = (Check("nothing", lambda layers: np.array([1.0, np.nan]), (1.0, 2.0)),)
    with pytest.raises(ConversionError, match=r"nothing: somewhere has 2\.000000 .* gives nan"):
        check_folder(tiny_folder, checkpoint, [replace(streams[0], checks=checks)])


@pytest.mark.parametrize("change", ["file name", "cell_size", "projection_size"])
def test_files_of_another_name_and_models_of_other_sizes_are_not_compared(
    change: str, tiny_folder: Path, checkpoint: Checkpoint, streams: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {
        "file name": {"weights": "far/weights_2.hdf5", "size": "32/8"},
        "cell_size": {"weights": "far/weights.hdf5", "size": "33/8"},
        "projection_size": {"weights": "far/weights.hdf5", "size": "32/9"},
    }
    monkeypatch.setitem(PUBLISHED, "tiny", Published("far/options.json", **rows[change]))
    _, names = check_folder(tiny_folder, checkpoint, altered(streams))
    assert names == []


def test_cosine_distances_are_of_all_pairs_in_order() -> None:
    words = np.array([[3.0, 0], [0, 2], [-1, 0], [1, 1]])
    sentences = [np.stack([words[:2] * 0 + 9, words[:2]]), np.stack([words[2:] * 0 + 9, words[2:]])]
    measured = cosine_distances(1, (0, 0), (0, 1), (1, 0), (1, 1))(sentences)
    half = 1 - 1 / np.sqrt(2)
    np.testing.assert_allclose(measured, [1, 2, half, 1, half, 2 - half], atol=1e-12)


def test_explained_variance_ratios_are_those_of_the_covariance() -> None:
    generator = np.random.default_rng(5)
    sentences = [generator.normal(size=(2, length, 4)) * [5, 2, 1, 0.5] + 3 for length in (4, 3, 6)]
    eigenvalues = np.linalg.eigvalsh(np.cov(np.concatenate([layers[1] for layers in sentences[1:]]).T))[::-1]
    measured = explained_variance_ratios(1, 1, 3)(sentences)
    np.testing.assert_allclose(measured, eigenvalues[:2] / eigenvalues.sum(), atol=1e-12)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.source)
def test_every_check_measures_as_many_numbers_as_were_published(stream: Stream) -> None:
    generator = np.random.default_rng(1)
    layers = [generator.normal(size=(3, len(sentence.split()), 16)) for sentence in stream.sentences]
    for check in stream.checks:
        assert check.measure(layers).shape == (len(check.expected),), check.name


@pytest.mark.network
@pytest.mark.parametrize("name", ["small", "original", "5.5B"])
def test_the_official_weights_give_the_published_numbers(name: str, tmp_path: Path) -> None:
    files, told = download(name, folder=tmp_path / "files"), []
    allennlp_to_folder(files, tmp_path / "elmo", source_name=name, check=True, tell=told.append)
    assert told == [f"the vectors are those that were published for {name}."]
