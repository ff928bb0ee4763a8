"""Trained AllenNLP models with ELMo inside: the biLM, its mixes, its settings, the parts left out, and the way back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import PREFIX, archive_files, golden_state, state_bytes, write_tar
from checkpoints import FIXTURES, arrays_of, converted, shared
from golden import Call, allennlp_calls, assert_golden

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.conversion.convert import folder_to_allennlp

CASE = "base_2l_relu"
# Those of the golden cases that AllenNLP itself can hold: skip connections, and words of 50 characters.
CASES = [CASE, "tight_clip_2l_tanh", "one_layer_n261_batch1", "three_layer_nohighway_noclip", "four_layer"]
SETTINGS = {"do_layer_norm": True, "dropout": 0.2, "scalar_mix_parameters": [0, 1, 0]}
NOT_CARRIED = "3 arrays of the task's model are left out: encoder._module (2), tag_projection_layer._module (1)."


def settings_of(folder: Path) -> tuple[Any, ...]:
    config = ElmoConfig.from_pretrained(folder)
    return config.scalar_mix_layer_norm, config.representation_dropout, config.scalar_mix_trainable


@pytest.mark.parametrize(("case", "settings"), [*((case, {}) for case in CASES), (CASE, SETTINGS)])
def test_an_archive_gives_allennlps_layers_and_all_its_mixes_and_returns(
    case: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    source = write_tar(tmp_path / "model.tar.gz", archive_files(case, **settings))
    assert converted(source, tmp_path / "to")[1:] == [f"Note: {NOT_CARRIED}"]
    assert settings_of(tmp_path / "to") == (("batch", 0.2, False) if settings else ("none", 0.5, True))
    calls = allennlp_calls(case, "mix_layer_norm" if settings else "mix")
    assert_golden(ElmoModel.from_pretrained(tmp_path / "to"), calls)
    notes = folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    assert ["forget gate" in notes[0], "mix" in notes[1], len(notes)] == [True, True, 2]
    original, returned = arrays_of(FIXTURES / case), arrays_of(tmp_path / "back")
    assert returned.keys() == original.keys()
    for name, array in original.items():
        # The 1 is taken off the forget bias; -1 * 0.0 and its way back are zeros of either sign.
        np.testing.assert_allclose(returned[name], array, rtol=0, atol=1.2e-7 if name.endswith("/B") else 0)


def test_the_archive_of_allennlps_own_tests_gives_its_layers_and_its_mix(tmp_path: Path) -> None:
    source = shared("fixtures", "allennlp_archive")
    _, note = converted(source / "model.tar.gz", tmp_path / "to", options=source / "options.json")
    assert "18 arrays of the task's model are left out: encoder._module (16), tag_projection_layer" in note
    expected, sentences = np.load(source / "expected.npz"), json.loads((source / "sentences.json").read_text())
    rows = [(row, len(words)) for row, words in enumerate(sentences)]
    layers = [expected["layers_with_boundaries"][:, row, : length + 2] for row, length in rows]
    mixes = [expected["mix"][None, row, :length] for row, length in rows]
    model = ElmoModel.from_pretrained(tmp_path / "to")
    assert_golden(model, [Call(sentences, layers, mixes)])
    np.testing.assert_array_equal(model.scalar_mixes[0].logits.detach(), expected["scalar_parameters"])
    assert model.scalar_mixes[0].scale.item() == expected["gamma"]


def test_cached_words_are_not_carried_and_settings_of_two_elmos_are_taken_from_neither(tmp_path: Path) -> None:
    state = golden_state(CASE)
    state[f"{PREFIX}_elmo_lstm._word_embedding.weight"] = torch.ones(5, 8)
    elmos = {name: {"type": "elmo_token_embedder", "dropout": rate} for name, rate in (("a", 0.1), ("b", 0.3))}
    changed = {"weights.th": state_bytes(state), "config.json": json.dumps(elmos).encode()}
    _, note = converted(write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | changed), tmp_path / "to")
    assert note.startswith("Note: 4 arrays of the task's model are left out: ")
    assert note.endswith(f"{PREFIX}_elmo_lstm._word_embedding (1).")
    assert settings_of(tmp_path / "to") == ("none", 0.5, True)
