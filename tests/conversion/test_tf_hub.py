"""TF-Hub modules: what their variables tell and what they do not, Google's and DeepPavlov's, and the way back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import BASE, Arrays, bits, converted, options_of, read_datasets
from hub_modules import LOGITS, SCALE, variables_of, write_module

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import folder_to_allennlp

GOOGLE = variables_of("google")
STATES = {f"bilm/Variable{end}": np.ones((6, 8), np.float32) for end in ("", "_1")}


def test_what_shapes_do_not_tell_is_the_original_elmos_or_comes_from_the_options(
    tiny_folder: Path, tmp_path: Path
) -> None:
    source = write_module(tmp_path / "elmo", GOOGLE)
    assert "lstm.use_skip_connections True, char_cnn.activation relu" in converted(source, tmp_path / "to")[1]
    ours, theirs = (ElmoConfig.from_pretrained(folder).to_dict() for folder in (tmp_path / "to", tiny_folder))
    assert {name for name in ours | theirs if ours.get(name) != theirs.get(name)} == {"task_specific_params"}
    options = options_of(BASE)
    options["lstm"] |= {"cell_clip": 0.25, "use_skip_connections": False}
    options["char_cnn"] |= {"activation": "tanh", "max_characters_per_token": 24}
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    assert len(converted(source, tmp_path / "other", options=tmp_path / "options.json")) == 1
    config = ElmoConfig.from_pretrained(tmp_path / "other")
    found = (config.cell_clip, config.use_skip_connections, config.char_activation, config.max_word_length)
    assert found == (0.25, False, "tanh", 24)


@pytest.mark.parametrize(
    ("variables", "num_states", "module"),
    [
        (GOOGLE, 0, {"state": "none", "scaled_mean": True}),
        (GOOGLE | STATES, 2, {"state": "shared", "scaled_mean": True}),
        (variables_of("deeppavlov"), 8, {"state": "signature", "scaled_mean": False}),
    ],
    ids=["google", "google with states", "deeppavlov"],
)
def test_boundaries_and_state_are_those_of_who_made_it(
    variables: Arrays, num_states: int, module: dict[str, Any], tmp_path: Path
) -> None:
    told = converted(write_module(tmp_path / "elmo", variables), tmp_path / "to")
    assert any(f"{num_states} variables with LSTM states are left out" in note for note in told) == (num_states > 0)
    adds = not module["scaled_mean"]
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert tokenizer("it's a  cat").tokens() == ["<S>"] * adds + ["it's", "a", "cat"] + ["</S>"] * adds
    model = ElmoModel.from_pretrained(tmp_path / "to")
    assert model.config.task_specific_params == {"tfhub": module}
    np.testing.assert_array_equal(model.scalar_mixes[0].logits.detach(), LOGITS)
    assert model.scalar_mixes[0].scale.item() == SCALE


def test_variables_of_other_layers_are_noted_and_the_bilm_goes_back(tmp_path: Path) -> None:
    ours = {f"module/{name}": array for name, array in GOOGLE.items()}
    rest = {"dense/kernel": np.ones((3, 2), np.float32), "global_step": np.array(4, np.int64)}
    slot = {"module/aggregation/weights/.OPTIMIZER_SLOT/adam/m/.ATTRIBUTES/VARIABLE_VALUE": LOGITS}
    told = converted(write_module(tmp_path / "elmo", ours | rest | slot), tmp_path / "to")
    assert told[-1] == "Note: 1 variables that are not the ELMo's are left out: dense/kernel."
    mix, boundaries = folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    assert "the mix of layers is left out" in mix
    assert "this is Google's model, which reads no `<S>` and `</S>`" in boundaries
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(BASE / "weights.hdf5"))
