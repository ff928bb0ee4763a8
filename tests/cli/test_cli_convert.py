"""`elmo-hf convert`: every form of it; what it refuses is in `test_cli_start.py`."""

import re
from pathlib import Path

import numpy as np
import pytest
from checkpoints import FIXTURES, TINY_LM, read_datasets, write_datasets
from commands import assert_fails, run
from huggingface_hub import ModelCard
from language_models import state_of

from elmo_hf import ElmoModel, ElmoTokenizer, tiny_model
from elmo_hf.conversion import published
from elmo_hf.language_model.pretraining import ElmoForPreTraining

BASE = FIXTURES / "base_2l_relu"


def test_convert_makes_a_folder_of_a_folder(tmp_path: Path) -> None:
    options = ("--license", "cc-by-4.0", "--language", "en", "--source", "org/elmo", "--word-splitter", "whitespace")
    result = run("convert", BASE, tmp_path / "to", "--check", *options)
    assert result.exit_code == 0, result.output
    match = re.search(
        r"^Largest difference from the checkpoint, all layers: (\S+) \(float32", result.stdout, re.MULTILINE
    )
    assert match is not None
    assert float(match[1]) < 1e-5
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").tokenize("Don't go.") == ["Don't", "go."]
    card = ModelCard.load(tmp_path / "to" / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("cc-by-4.0", ["en"], "org/elmo")


def test_convert_looks_for_the_options_beside_a_file_of_weights(tmp_path: Path) -> None:
    options, weights = tmp_path / "options.json", tmp_path / "weights.hdf5"
    weights.write_bytes((BASE / weights.name).read_bytes())
    assert_fails(run("convert", weights, tmp_path / "to"), 1, "`--options FILE --weights FILE`")
    options.write_bytes((BASE / options.name).read_bytes())
    (tmp_path / "another_options.json").write_text("{}")
    (tmp_path / "another_weights.hdf5").touch()
    result = run("convert", weights, tmp_path / "to")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == "Note: the options are options.json, beside weights.hdf5."
    assert run("convert", "--options", options, "--weights", weights, tmp_path / "too").exit_code == 0
    assert (tmp_path / "to" / "model.safetensors").read_bytes() == (tmp_path / "too" / "model.safetensors").read_bytes()


def test_convert_downloads_a_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str) -> tuple[Path, dict[str, Path]]:
        asked.append(name)
        return BASE / "weights.hdf5", {"options": BASE / "options.json"}

    monkeypatch.setattr(published, "download", download)
    result = run("convert", "--model", "5.5B", tmp_path / "to")
    assert (result.exit_code, asked) == (0, ["5.5B"])
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert "converted from the published 5.5B model by" in text
    assert "5.5 billion words of English" in text
    assert "license_name: no-restrictions" in text.splitlines()


def test_convert_takes_a_vocabulary_for_word_input(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>"] + [f"word{number}" for number in range(4, 33)]
    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    convert = ("convert", FIXTURES / "bilm_tf_edges" / "bi_word_2", tmp_path / "to", "--vocabulary")
    assert_fails(run(*convert, tmp_path / "nowhere.txt"), 1, "nowhere.txt")
    assert run(*convert, tmp_path / "words.txt").exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to")("word7 other")["input_ids"] == [1, 7, 3, 2]


def test_convert_takes_the_index_of_a_checkpoint_beside_an_export(tmp_path: Path) -> None:
    both = run("convert", TINY_LM, tmp_path / "to")
    assert_fails(both, 1, "exactly one `.hdf5` file or TensorFlow checkpoint, found")
    files = ("--options", TINY_LM / "options.json", "--weights", TINY_LM / "model.ckpt-1.index")
    assert run("convert", *files, "--vocabulary", TINY_LM / "vocab.txt", tmp_path / "to").exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").num_word_classes == 28


def test_convert_takes_a_released_softmax(tmp_path: Path) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    softmax = write_datasets(tmp_path / "softmax_weights.hdf5", arrays)
    files = ("--options", TINY_LM / "options.json", "--weights", TINY_LM / "weights.hdf5")
    files += ("--vocabulary", TINY_LM / "vocab.txt", tmp_path / "to", "--softmax")
    assert_fails(run("convert", *files, BASE / "weights.hdf5"), 1, "must be a file of `softmax/W` and `softmax/b`")
    assert not (tmp_path / "to").exists()
    assert run("convert", *files, softmax).exit_code == 0
    model = ElmoForPreTraining.from_pretrained(tmp_path / "to")
    np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), arrays["softmax/W"])
    assert run("convert", tmp_path / "to", tmp_path / "back", "--to", "allennlp").exit_code == 0
    np.testing.assert_array_equal(read_datasets(tmp_path / "back" / "softmax.hdf5")["softmax/b"], arrays["softmax/b"])


def test_tiny_goes_back_to_allennlps_files_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("convert", "tiny", "x", "--to", "allennlp").stdout.splitlines()[-1] == (
        "Wrote x/options.json, x/softmax.hdf5, x/vocab.txt and x/weights.hdf5."
    )
    assert run("convert", "x", "again").exit_code == 0
    ours, theirs = state_of(tmp_path / "again"), tiny_model(ElmoForPreTraining).state_dict()
    assert all(np.array_equal(array, theirs[name].numpy()) for name, array in ours.items())
