"""The model that comes with the package, and its training text."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from tiny_model import ship

from elmo_hf import ElmoConfig, ElmoForPreTraining, tiny_model, tiny_tokenizer
from elmo_hf.folder.loading import TINY_FOLDER, model_folder
from elmo_hf.model.configuration_elmo import AUTO_MAP


@pytest.fixture(scope="module")
def language_model() -> ElmoForPreTraining:
    return tiny_model(ElmoForPreTraining)


def test_the_folder_is_small_and_holds_no_code() -> None:
    files = {path.name: path.stat().st_size for path in TINY_FOLDER.iterdir()}
    assert sum(files.values()) <= 16 * 2**20
    assert not [name for name in files if name.endswith(".py")]


def test_the_script_that_ships_it_writes_these_files(tmp_path: Path) -> None:
    ship.ship(TINY_FOLDER, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in TINY_FOLDER.iterdir()} - {"README.md"}
    for path in tmp_path.glob("*.safetensors"):
        assert path.read_bytes() == (TINY_FOLDER / path.name).read_bytes()


def test_a_copy_of_it_names_the_classes_of_todays_code(tmp_path: Path) -> None:
    assert ElmoConfig.from_pretrained(TINY_FOLDER).auto_map == AUTO_MAP
    tiny_model().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["auto_map"] == AUTO_MAP


def test_it_has_the_sizes_its_card_says(language_model: ElmoForPreTraining) -> None:
    softmax = language_model.softmax
    card = ModelCard.load(TINY_FOLDER / "README.md")
    for count in (language_model.elmo.num_parameters(), softmax.weight.numel() + softmax.bias.numel()):
        assert f"{count:,}" in card.text
    assert card.data.license == "apache-2.0"
    assert card.data.language == "en"


def test_it_is_stored_in_half_precision_loads_as_float32_and_its_bilm_is_the_language_models(
    language_model: ElmoForPreTraining,
) -> None:
    assert {parameter.dtype for parameter in language_model.parameters()} == {torch.float32}
    assert all(torch.equal(parameter, parameter.half().float()) for parameter in language_model.parameters())
    inputs = tiny_tokenizer()(["The ferry left.", "Yes"], padding=True, return_tensors="pt")
    layers = tiny_model()(**inputs, output_hidden_states=True).hidden_states
    expected = language_model.elmo(**inputs, output_hidden_states=True).hidden_states
    assert all(torch.equal(*pair) for pair in zip(layers, expected, strict=True))


def test_it_has_learned_english(language_model: ElmoForPreTraining) -> None:
    words = "She looked out of the window and saw that it was raining .".split()
    shuffled = [words[index] for index in np.random.default_rng(1).permutation(len(words))]
    scores = language_model.score([words, shuffled], tiny_tokenizer())
    for good, bad in zip(scores.surprisals(0), scores.surprisals(1), strict=True):
        assert good.sum() < bad.sum() - 20


def test_a_folder_of_that_name_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_folder("tiny") == TINY_FOLDER
    (tmp_path / "tiny").mkdir()
    assert model_folder("tiny") == "tiny"
