"""`load_state_dict` of AllenNLP's ELMo under the names that AllenNLP gave, and that we give."""

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import Golden, assert_close, run_legacy
from archives import PREFIX, golden_state
from checkpoints import shared
from torch import Tensor, nn

from elmo_hf.allennlp import Elmo, batch_to_ids
from elmo_hf.conversion.refusals import ConversionError

BASE = Golden("base_2l_relu")

A_TRAINED_MODEL = """
import torch
from allennlp.modules.elmo import Elmo, batch_to_ids

elmo = Elmo(options_file, weight_file, 3, dropout=0)
with torch.no_grad():
    for parameter in elmo.parameters():
        parameter.zero_()
loaded = elmo.load_state_dict(state)
vectors = elmo(batch_to_ids(sentences))["elmo_representations"]
"""


def load(state: Mapping[str, Tensor]) -> dict[str, Any]:
    options, weights = BASE.files
    sentences = BASE.sentences["call1"]
    return run_legacy(A_TRAINED_MODEL, options_file=options, weight_file=weights, sentences=sentences, state=state)


def test_load_state_dict_takes_allennlps_names_and_our_own() -> None:
    theirs = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in golden_state("base_2l_relu").items()
        if name.startswith(PREFIX)
    }
    elmo = load(theirs)["elmo"]
    for state in (theirs, elmo.state_dict()):
        names = load(state)
        assert (names["loaded"].missing_keys, names["loaded"].unexpected_keys) == ([], [])
        for vectors, expected in zip(names["vectors"], BASE.expected["mix"], strict=True):
            assert_close(vectors, expected)


def test_a_state_dict_of_another_architecture_is_refused_by_its_arrays() -> None:
    state = {name.removeprefix(PREFIX): tensor for name, tensor in golden_state("four_layer").items()}
    with pytest.raises(ConversionError, match="the state dict does not hold the arrays that its options describe"):
        Elmo(*BASE.files, 3).load_state_dict(state)


def test_a_model_that_allennlp_trained_is_loaded_as_a_part_of_a_larger_one(tmp_path: Path) -> None:
    folder = shared("fixtures", "allennlp_archive")
    with tarfile.open(folder / "model.tar.gz") as archive:
        archive.extract("weights.th", tmp_path, filter="data")
    prefix = "text_field_embedder.token_embedder_elmo._elmo."
    state = torch.load(tmp_path / "weights.th", weights_only=True)
    fixture = shared("fixtures", "bilm_tf_fixture")
    model = nn.ModuleDict({"elmo": Elmo(folder / "options.json", fixture / "lm_weights.hdf5", 1, dropout=0)})
    model.load_state_dict(
        {f"elmo.{name.removeprefix(prefix)}": array for name, array in state.items() if prefix in name}
    )
    sentences = json.loads((folder / "sentences.json").read_text())
    vectors = model["elmo"](batch_to_ids(sentences))["elmo_representations"][0]
    assert_close(vectors, np.load(folder / "expected.npz")["mix"])
