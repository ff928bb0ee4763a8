"""Trained AllenNLP models with ELMo inside: the biLM, its mixes, its settings, and the parts left out."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import (
    PREFIX,
    archive_files,
    golden_state,
    state_bytes,
    write_files,
    write_tar,
)
from checkpoints import FIXTURES, read_datasets, shared

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.readers.trained_allennlp import _settings, read_trained_allennlp
from elmo_hf.conversion.sources import Source, open_source

# Those of the golden cases that AllenNLP itself can hold: skip connections, and words of 50 characters.
CASES = [
    "base_2l_relu",
    "tight_clip_2l_tanh",
    "one_layer_n261_batch1",
    "three_layer_nohighway_noclip",
    "four_layer",
]
TOLERANCE = 2e-5
CASE = "base_2l_relu"
NOT_CARRIED = "3 arrays of the task's model are not carried: encoder._module (2), tag_projection_layer._module (1)."


def convert(source: Path, destination: Path, **given: Any) -> list[str]:
    told: list[str] = []
    convert_source(source, destination, Given(**given), tell=told.append)
    return told[1:]


def run(folder: Path, sentences: list[list[str]], **fields: Any) -> Any:
    model = ElmoModel.from_pretrained(folder, **fields).eval()
    inputs = ElmoTokenizer.from_pretrained(folder)(
        sentences, is_split_into_words=True, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


@pytest.mark.parametrize("case", CASES)
def test_an_archive_gives_allennlps_layers_and_all_its_mixes(case: str, tmp_path: Path) -> None:
    source = write_tar(tmp_path / "model.tar.gz", archive_files(case))
    assert convert(source, tmp_path / "to") == [f"Note: {NOT_CARRIED}"]
    expected = np.load(FIXTURES / case / "expected.npz")
    output = run(tmp_path / "to", json.loads((FIXTURES / case / "sentences.json").read_text())["call1"])
    layers = torch.stack(output.hidden_states).numpy()
    np.testing.assert_allclose(layers, expected["layers_with_boundaries"], rtol=0, atol=TOLERANCE)
    mixes = torch.stack(output.elmo_representations).numpy()
    np.testing.assert_allclose(mixes, expected["mix_with_boundaries"], rtol=0, atol=TOLERANCE)


def test_layer_norm_dropout_and_frozen_mixes_are_those_of_the_training(tmp_path: Path) -> None:
    settings = {"do_layer_norm": True, "dropout": 0.2, "scalar_mix_parameters": [0, 1, 0]}
    source = write_tar(tmp_path / "model.tar.gz", archive_files(CASE, **settings))
    convert(source, tmp_path / "to")
    expected = np.load(FIXTURES / CASE / "expected.npz")
    output = run(tmp_path / "to", json.loads((FIXTURES / CASE / "sentences.json").read_text())["call1"])
    mask = expected["mask_with_boundaries"][..., None]
    mixes = torch.stack(output.elmo_representations).numpy()
    np.testing.assert_allclose(mixes, expected["mix_layer_norm_with_boundaries"] * mask, rtol=0, atol=TOLERANCE)
    config = ElmoModel.from_pretrained(tmp_path / "to").config
    assert (config.scalar_mix_layer_norm, config.representation_dropout) == ("batch", 0.2)
    assert config.scalar_mix_trainable is False


def test_without_a_configuration_the_settings_are_allennlps_defaults(tmp_path: Path) -> None:
    (tmp_path / "task.th").write_bytes(state_bytes(golden_state(CASE, num_mixes=1)))
    convert(tmp_path / "task.th", tmp_path / "to", options=FIXTURES / CASE / "options.json")
    config = ElmoModel.from_pretrained(tmp_path / "to").config
    assert (config.scalar_mix_layer_norm, config.representation_dropout, config.scalar_mix_trainable) == (
        "none", 0.5, True,
    )  # fmt: skip
    assert config.num_output_representations == 1


def test_archive_folder_and_weights_alone_are_read_alike(tmp_path: Path) -> None:
    files = archive_files(CASE)
    options = FIXTURES / CASE / "options.json"
    (tmp_path / "one.th").write_bytes(state_bytes(golden_state(CASE), as_zip=True))
    sources = {
        "gz": (write_tar(tmp_path / "model.tar.gz", files), {}),
        "bz2": (write_tar(tmp_path / "model.tar.bz2", files, "bz2"), {}),
        "inside": (write_tar(tmp_path / "nested.tar.gz", {f"./m/{name}": data for name, data in files.items()}), {}),
        "folder": (write_files(tmp_path / "folder", files), {}),
        "training": (
            write_files(tmp_path / "training", {"best.th": files["weights.th"], "config.json": files["config.json"]}),
            {"options": options},
        ),
        "alone": (tmp_path / "one.th", {"options": options}),
    }
    written = set()
    for name, (source, given) in sources.items():
        convert(source, tmp_path / f"{name}.to", **given)
        written.add((tmp_path / f"{name}.to" / "model.safetensors").read_bytes())
    assert len(written) == 1


def test_the_witness_agrees_and_sees_a_change_in_any_array(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "model.tar.gz", archive_files(CASE))
    difference = convert_source(source, tmp_path / "to", Given(), check=True)
    assert difference is not None
    assert difference < 1e-5
    state = golden_state(CASE)
    unchanged = witness(tmp_path / "first.th", state)
    bilm = [name for name in state if name.startswith(f"{PREFIX}_elmo_lstm.")]
    assert len(bilm) == 1 + 2 * 4 + 2 * 2 + 2 + 4 * 4
    for index, name in enumerate(bilm):
        changed = witness(tmp_path / f"{index}.th", state | {name: state[name] + 0.25})
        assert np.abs(changed - unchanged).max() > 1e-3, name


def witness(path: Path, state: Any) -> np.ndarray:
    path.write_bytes(state_bytes(state))
    with open_source(path) as source:
        make_reference = read_trained_allennlp(source, Given(FIXTURES / CASE / "options.json")).make_reference
    assert make_reference is not None
    return make_reference().embed(["Hello", "naïve", "x" * 60])


def test_it_goes_back_to_hdf5_with_the_1_taken_off_the_forget_bias(tmp_path: Path) -> None:
    convert(write_tar(tmp_path / "model.tar.gz", archive_files(CASE)), tmp_path / "to")
    notes = folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    assert [note[:40] for note in notes] == [
        "the format adds 1.0 to the forget gate; ",
        "the mix of layers is not carried: the fo",
    ]
    original, returned = read_datasets(FIXTURES / CASE / "weights.hdf5"), read_datasets(tmp_path / "back/weights.hdf5")
    assert returned.keys() == original.keys()
    for name, array in original.items():
        # -1 * 0.0 and its way back are zeros of either sign.
        tolerance = 1.2e-7 if name.endswith("/B") else 0
        np.testing.assert_allclose(returned[name], array, rtol=0, atol=tolerance, err_msg=name)
    assert json.loads((tmp_path / "back/options.json").read_text()) == json.loads(
        (FIXTURES / CASE / "options.json").read_text()
    )


def test_the_archive_of_allennlps_own_tests_gives_its_layers_and_its_mix(tmp_path: Path) -> None:
    source = shared("fixtures", "allennlp_archive")
    notes = convert(source / "model.tar.gz", tmp_path / "to", options=source / "options.json")
    assert notes == [
        "Note: 18 arrays of the task's model are not carried: encoder._module (16), tag_projection_layer._module (2)."
    ]
    expected, sentences = np.load(source / "expected.npz"), json.loads((source / "sentences.json").read_text())
    output = run(tmp_path / "to", sentences)
    layers = torch.stack(output.hidden_states).numpy()
    np.testing.assert_allclose(layers, expected["layers_with_boundaries"], rtol=0, atol=TOLERANCE)
    for row, words in enumerate(sentences):
        mix = output.elmo_representations[0][row, 1 : 1 + len(words)]
        np.testing.assert_allclose(mix, expected["mix"][row, : len(words)], rtol=0, atol=TOLERANCE)
    mix = ElmoModel.from_pretrained(tmp_path / "to").scalar_mixes[0]
    np.testing.assert_array_equal(mix.logits.detach(), expected["scalar_parameters"])
    assert mix.scale.item() == expected["gamma"]


def test_the_card_names_the_archive_and_the_given_options(tmp_path: Path) -> None:
    files = {name: data for name, data in archive_files(CASE).items() if not name.startswith("fta/")}
    convert(write_tar(tmp_path / "ner.tar.gz", files), tmp_path / "to", options=FIXTURES / CASE / "options.json")
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", text, re.MULTILINE) == ["ner.tar.gz", "options.json"]
    assert "converted from ner.tar.gz by" in text


def test_cached_words_are_named_as_not_carried(tmp_path: Path) -> None:
    state = golden_state(CASE)
    state[f"{PREFIX}_elmo_lstm._word_embedding.weight"] = torch.ones(5, 8)
    source = write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {"weights.th": state_bytes(state)})
    (note,) = convert(source, tmp_path / "to")
    assert note.startswith("Note: 4 arrays of the task's model are not carried: ")
    assert note.endswith(f"{PREFIX}_elmo_lstm._word_embedding (1).")


WITHOUT_HIGHWAYS = json.loads((FIXTURES / CASE / "options.json").read_text())
del WITHOUT_HIGHWAYS["char_cnn"]["n_highway"]


def test_settings_of_two_elmos_are_taken_from_neither(tmp_path: Path) -> None:
    elmos = {name: {"type": "elmo_token_embedder", "dropout": rate} for name, rate in (("a", 0.1), ("b", 0.3))}
    (tmp_path / "config.json").write_text(json.dumps(elmos))
    assert _settings(Source(tmp_path, {"config.json": tmp_path / "config.json"})) == {}
