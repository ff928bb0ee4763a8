"""Files of AllenNLP and bilm-tf there and back, bit by bit; models equal to the NumPy witness and to AllenNLP's."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import folder_to_allennlp
from elmo_hf.conversion.readers.hdf5_layout import config_from_options
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.rules import Rule, import_arrays
from elmo_hf.conversion.witness.reference import ReferenceElmo
from tests.helpers.checkpoints import (
    BASE,
    CELL,
    EDGES,
    VOCABULARY,
    allennlp_to_folder,
    assert_returns,
    base_checkpoint,
    bits,
    options_of,
    outputs_of,
    random_checkpoint,
    random_options,
    read_datasets,
    shared,
    write_checkpoint,
)
from tests.helpers.golden import allennlp_calls, assert_golden
from tests.helpers.language_models import WORDS, random_language_model, save_directory, word_files
from tests.helpers.one_direction import forward_files, forward_half
from tests.helpers.tiny_inputs import TINY, assert_outputs_close, random_inputs, word_config

ONE_DIRECTION = "this is how bilm-tf exports one direction; neither its own reader nor AllenNLP's reads it."


def exported(name: str, work: Path) -> NamedFiles:
    folder = shared("fixtures", name)
    return NamedFiles(folder / "options.json", folder / "lm_weights.hdf5")


FORMS: dict[str, Callable[[Path], NamedFiles | Path]] = {
    "export": partial(exported, "bilm_tf_fixture"),
    "export without skips": partial(exported, "bilm_tf_noskip_fixture"),
    "export without projection": lambda work: EDGES / "bi_char_noproj",
    "export of one layer": lambda work: EDGES / "bi_char_1layer",
    "export, one direction": lambda work: EDGES / "uni_char_2",
    "words": word_files,
    "words, one direction": lambda work: forward_files(word_files(work), work / "half"),
    "softmax, one direction": lambda work: forward_files(random_language_model(0, work / "two")[0], work / "half"),
    "save directory without projection": partial(save_directory, "bi_char_noproj"),
    "save directory of words": partial(save_directory, "bi_word_2"),
    "save directory of words that the softmax shares": partial(save_directory, "bi_word_shared"),
    "save directory, one direction": partial(save_directory, "uni_char_2"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_files_is_the_witness_and_returns(form: str, tmp_path: Path) -> None:
    notes = assert_returns(FORMS[form](tmp_path), tmp_path)
    is_half = form.endswith("one direction")
    assert (notes[:1] == [ONE_DIRECTION]) == is_half
    assert options_of(tmp_path / "back").get("bidirectional") == (False if is_half else None)
    if form.startswith(("words", "save directory")):
        assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == VOCABULARY


@pytest.mark.parametrize("kind", ["", "with equal sizes", "with a softmax"])
@pytest.mark.parametrize("seed", range(6))
def test_random_architecture_equals_the_reference_and_returns(seed: int, kind: str, tmp_path: Path) -> None:
    if kind == "with a softmax":
        files, options, _ = random_language_model(seed, tmp_path / "source", sample_softmax=seed % 2 == 0)
    else:
        options, projections = random_options(seed + 6 * bool(kind))
        if kind == "with equal sizes":  # projections between equal sizes are kept
            size = options["lstm"]["dim"] = options["lstm"]["projection_dim"]
            options["char_cnn"]["filters"] = [[3, 1], [1, size - 1]]
        files = write_checkpoint(tmp_path / "source", options, random_checkpoint(options, seed, **projections))
    assert_returns(files, tmp_path)
    for clip in ("cell_clip", "proj_clip"):
        options["lstm"][clip] = options["lstm"][clip] or None
    assert options_of(tmp_path / "back") == options
    if kind == "with a softmax":
        expected = [word.strip() for word in WORDS]
        expected[3] = "<unused4>"  # "the" stands for the second time in line 7
        assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == expected


def test_options_left_out_have_bilm_tfs_defaults_and_settings_of_the_training_change_nothing() -> None:
    options, arrays = base_checkpoint()
    shapes = {name: array.shape for name, array in arrays.items()}
    training = {"bidirectional": True, "n_epochs": 10, "dropout": 0.3, "lr": {"decay": [1, 2]}, "note": None}
    trained = config_from_options(options | training, shapes).to_dict()
    options["char_cnn"]["n_characters"] = 261
    assert trained == config_from_options(options, shapes).to_dict()
    for key in ("cell_clip", "proj_clip", "use_skip_connections", "n_layers"):
        del options["lstm"][key]
    for key in ("max_characters_per_token", "n_characters"):
        del options["char_cnn"][key]
    options["char_cnn"]["n_highway"] = None
    config = config_from_options(options, shapes)
    found = (config.cell_clip, config.projection_clip, config.use_skip_connections, config.num_hidden_layers)
    assert (*found, config.max_word_length, config.num_highway_layers) == (None, None, False, 1, 50, 0)
    config, default = config_from_options(options, shapes | {"softmax/W": (11, 8), "softmax/b": (11,)}), ElmoConfig()
    assert config.num_softmax_words == 11
    for field in ("softmax", "num_softmax_samples", "lm_dropout", "share_embedding_softmax"):
        assert getattr(config, field) == getattr(default, field)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_are_rounded_to_float32_and_every_fault_is_listed(dtype: type) -> None:
    array = np.array([[0.1, -65504.0, 6e-8], [1 / 3, 2.0, -0.0]], dtype=dtype)
    rules = [Rule(name, (2, 3), (f"our.{name}",)) for name in ("W", "gone", "turned")]
    assert bits(import_arrays(rules[:1], {"W": array}, "weights.hdf5")) == bits({"our.W": array.astype(np.float32)})
    with pytest.raises(ConversionError) as caught:
        import_arrays(rules, {"W": array + np.inf, "turned": array.T, "stray": array}, "weights.hdf5")
    assert all(name in str(caught.value) for name in ("`W`", "`gone`", "`turned`", "`stray`"))


def test_word_input_is_read_by_ids_and_has_the_witness_layers(tmp_path: Path) -> None:
    files = word_files(tmp_path)
    allennlp_to_folder(files, tmp_path / "to")
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    inputs = tokenizer(["the ferry unseen word32", "the"], padding=True)
    assert inputs["input_ids"] == [[1, 4, 5, 3, 32, 2], [1, 4, 2, 0, 0, 0]]
    layers = outputs_of(tmp_path / "to", [["the", "ferry", "unseen", "word32"], ["the"]]).hidden_states
    arrays = read_datasets(files.weights)
    reference = ReferenceElmo(options_of(EDGES / "bi_word_2") | {"char_cnn": {}}, arrays)
    vectors = arrays["embedding"][[0, 3, 4, 2, 31, 1]].astype(np.float64)
    np.testing.assert_array_equal(layers[0][0], np.concatenate([vectors, vectors], -1).astype(np.float32))
    forward = reference.direction("RNN_0", vectors, {})
    backward = reference.direction("RNN_1", vectors[::-1], {})
    for layer in (1, 2):
        expected = np.concatenate([forward[layer - 1], backward[layer - 1][::-1]], axis=-1)
        np.testing.assert_allclose(layers[layer][0], expected, rtol=0, atol=1e-5)


def test_the_forward_half_of_a_golden_case_has_allennlps_numbers(tmp_path: Path) -> None:
    files = NamedFiles(BASE / "options.json", BASE / "weights.hdf5")
    allennlp_to_folder(forward_files(files, tmp_path / "source"), tmp_path / "to")
    assert_golden(ElmoModel.from_pretrained(tmp_path / "to"), allennlp_calls(BASE.name))


@pytest.mark.parametrize(("forget_bias", "is_half"), [(2.5, False), (0.25, True)])
def test_a_forget_bias_that_the_format_does_not_add_goes_into_the_biases(
    forget_bias: float, is_half: bool, tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.config.forget_bias = forget_bias
    with torch.no_grad():
        for layer in tiny_model.bilm.layers:
            torch.nn.init.normal_(layer.forward_lstm.input_linear.bias)
    (forward_half(tiny_model) if is_half else tiny_model).save_pretrained(tmp_path / "source")
    notes = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert "the format adds 1.0 to the forget gate" in notes[0]
    allennlp_to_folder(tmp_path / "to", tmp_path / "again")
    source, again = (ElmoModel.from_pretrained(tmp_path / name) for name in ("source", "again"))
    assert again.config.forget_bias == 1.0
    inputs = random_inputs(source.config, [3, 5])
    assert_outputs_close(again(**inputs).last_hidden_state, source(**inputs).last_hidden_state)


CODE_POINTS = ElmoConfig(
    alphabet="code_points", vocab_size=29, num_input_words=8, word_embedding_size=3, bos_token_id=4, eos_token_id=5
)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (CODE_POINTS, "`alphabet` 'code_points'"),
        (word_config(word_embedding_size=4), "`word_embedding_size` 4"),
        (word_config(), "row 0 of the embedding"),
    ],
)
def test_what_the_format_cannot_hold_is_named_and_nothing_is_written(
    config: ElmoConfig, name: str, tmp_path: Path
) -> None:
    model = ElmoModel(config)
    with torch.no_grad():
        model.get_input_embeddings().weight[0, 2] = 1e-20
    model.save_pretrained(tmp_path / "source")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the name is compared
        folder_to_allennlp(tmp_path / "source", tmp_path / "DEST")
    assert name in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


MIX = "the mix of layers is left out"


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({}, []),
        ({"layer_mix": "linear"}, [MIX]),
        ({"scalar_mix_weights": [0, 0, 1.0], "use_skip_connections": False}, [MIX, "use_skip_connections is off."]),
        ({"max_word_length": 11}, ["AllenNLP does not, because max_word_length is not 50."]),
        ({"char_filters": [[1, 7]], "char_projection": False}, ["there is no projection after the character CNN."]),
        ({"cell_size": 7, "cell_projection": False}, ["there is no projection in the cell."]),
    ],
)
def test_export_notes_what_is_lost_and_who_reads_it(fields: dict[str, Any], notes: list[str], tmp_path: Path) -> None:
    ElmoModel(ElmoConfig(**TINY | {"max_word_length": 50} | fields)).save_pretrained(tmp_path / "source")
    found = folder_to_allennlp(tmp_path / "source", tmp_path / "to")
    assert len(found) == len(notes)
    assert all(note in each for note, each in zip(notes, found, strict=True))


def test_a_learned_scale_is_noted_and_half_precision_is_exported_in_float32(
    tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.scalar_mixes[0].set_weights([1 / 3] * 3, 2.5)
    tiny_model.to(torch.bfloat16).save_pretrained(tmp_path / "source")
    assert MIX in folder_to_allennlp(tmp_path / "source", tmp_path / "to")[0]
    kernel = read_datasets(tmp_path / "to" / "weights.hdf5")[f"{CELL}/W_P_0"]
    weight = tiny_model.bilm.layers[0].forward_lstm.projection.weight
    assert kernel.dtype == np.float32
    np.testing.assert_array_equal(kernel, weight.detach().float().numpy().T)
