"""`elmo-hf verify` with a published model's true weights, and with other weights."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoints import base_checkpoint
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.cli import app
from elmo_hf.conversion import verify as verification
from elmo_hf.conversion.convert import allennlp_to_folder
from elmo_hf.conversion.published import download
from elmo_hf.conversion.published_cards import SIZES
from elmo_hf.conversion.verify import candidates, embed_stream
from elmo_hf.conversion.witness import reference_outputs
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
def published(layers: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the tiny model were the small one, and these were its published numbers."""
    distances, ratios = cosine_distances(2, (0, 1), (2, 1)), explained_variance_ratios(1, 0, 3)
    checks = (
        Check("two ferries", distances, tuple(distances(layers))),
        Check("all words", ratios, tuple(ratios(layers))),
    )
    guess = Check("a guess", distances, (7.0,))
    streams = (
        Stream("small", "somewhere", SENTENCES, checks),
        Stream("small", "elsewhere", SENTENCES, (guess,), is_decisive=False),
    )
    monkeypatch.setattr(verification, "STREAMS", streams)
    monkeypatch.setitem(SIZES, "small", {"cell_size": 32, "projection_size": 8, "num_highway_layers": 2})


def run(folder: Path) -> Result:
    return CliRunner().invoke(app, ["verify", str(folder)])


def test_streams_are_embedded_with_the_state_carried(tiny_folder: Path, layers: list[np.ndarray]) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    for found, expected in zip(embed_stream(model, tokenizer, SENTENCES), layers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.usefixtures("published")
def test_true_weights_are_verified_and_the_table_tells_each_number(tiny_folder: Path) -> None:
    result = run(tiny_folder)
    assert result.exit_code == 0, result.output
    title, head, ferries, words, guess, verdict = result.stdout.splitlines()
    assert title == "The published small model:"
    assert head.split() == ["check", "published", "found", "difference"]
    for line, name, ending in ((ferries, "two ferries", "agrees"), (words, "all words", "agrees")):
        pattern = rf"  {name} +(0\.\d{{6}}) +(0\.\d{{6}}) +\d\.\de-\d\d  {ending}"
        match = re.fullmatch(pattern, line)
        assert match is not None, line
        assert float(match[1]) == pytest.approx(float(match[2]), abs=2e-6)
    assert guess.endswith("differs (another export)")
    assert verdict == f"{tiny_folder} gives the published numbers of small."


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("change", ["one direction twice", "a hundredth more", "not a number"])
def test_other_weights_are_not_verified(change: str, tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "other")
    path = tmp_path / "other" / "model.safetensors"
    weights = load_file(path)
    name = "bilm.layers.1.backward_lstm.projection.weight"
    weights[name] = {
        "one direction twice": weights[name.replace("backward", "forward")],
        "a hundredth more": weights[name] * 1.01,
        "not a number": weights[name] * np.nan,
    }[change]
    save_file(weights, path, metadata={"format": "pt"})
    result = run(tmp_path / "other")
    assert result.exit_code == 1
    assert re.search(r"^  two ferries .* differs$", result.stdout, re.MULTILINE)
    assert f"Error: {tmp_path / 'other'} gives the numbers of none: it is another model, or its" in result.stderr


def test_a_model_of_other_sizes_is_refused_with_those_that_are_known(tiny_folder: Path) -> None:
    result = run(tiny_folder)
    assert result.exit_code == 1
    message = (
        "Error: no outputs are published for a model with cell 32 and projection 8; there are some for small, original"
    )
    assert message in result.stderr


def test_a_folder_that_is_not_there_is_named() -> None:
    result = run(Path("nowhere"))
    assert result.exit_code == 1
    assert "Error: there is no folder nowhere" in result.stderr


def test_models_are_told_by_their_sizes_and_original_and_5_5b_are_alike() -> None:
    small = {"cell_size": 1024, "projection_size": 128, "num_highway_layers": 1}
    assert candidates(ElmoConfig(**small)) == ["small"]
    assert candidates(ElmoConfig()) == ["original", "5.5B"]
    with pytest.raises(ValueError, match="cell 2048 and projection 256"):
        candidates(ElmoConfig(cell_size=2048, projection_size=256, num_highway_layers=1))


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


def test_the_sentences_are_as_long_as_their_sources_say() -> None:
    lengths = [
        sum(len(sentence.split(" ")) for sentence in sentences)
        for sentences in (reference_outputs.BANK, reference_outputs.WORK, reference_outputs.PLANT)
    ]
    assert lengths == [37, 35, 47]
    words = [reference_outputs.THAMES[sentence].split()[word] for sentence, word in reference_outputs.BANKS]
    assert words == ["bank"] * 4


@pytest.mark.network
@pytest.mark.parametrize("name", ["small", "original", "5.5B"])
def test_the_official_weights_give_the_published_numbers(name: str, tmp_path: Path) -> None:
    files = download(name, folder=tmp_path / "files")
    allennlp_to_folder(files, tmp_path / "elmo", source_name=name, check=True)
    result = run(tmp_path / "elmo")
    assert result.exit_code == 0, result.output
    assert f"gives the published numbers of {name}." in result.stdout


def test_the_number_shown_is_the_one_that_differs_most(
    tiny_folder: Path, layers: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check("three", lambda _: np.array([1.0, 9.0, 3.0]), (1.5, 2.0, 3.0))
    monkeypatch.setattr(verification, "STREAMS", (Stream("small", "somewhere", SENTENCES, (check,)),))
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    (outcome,) = verification.verify(model, tokenizer, "small")
    assert (outcome.expected, outcome.found) == (2.0, 9.0)
