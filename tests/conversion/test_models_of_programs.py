"""Trained AllenNLP models, TF-Hub modules and ELMoForManyLangs: numbers, settings, what is left out, the way back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import folder_to_allennlp
from elmo_hf.conversion.readers.manylangs import PACKAGED
from tests.helpers.archives import (
    MANYLANGS,
    PREFIX,
    archive_files,
    golden_state,
    manylangs_files,
    state_bytes,
    without_part,
    write_files,
    write_tar,
)
from tests.helpers.checkpoints import (
    BASE,
    FIXTURES,
    Arrays,
    arrays_of,
    bits,
    converted,
    options_of,
    read_datasets,
    shared,
)
from tests.helpers.golden import Call, allennlp_calls, assert_golden
from tests.helpers.hub_modules import LOGITS, SCALE, variables_of, write_module

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


SENTENCES: dict[str, list[list[str]]] = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
EXPECTED = np.load(MANYLANGS / "expected.npz")
TOLERANCE = 1e-5
FILES = manylangs_files()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manylangs") / "folder"
    converted(MANYLANGS, folder)
    return folder


def test_every_layer_and_state_of_both_calls_is_theirs(folder: Path) -> None:
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder)
    calls = []
    for name, sentences in SENTENCES.items():
        # Their batches are sorted by falling length, and the state belongs to the sorted row.
        order = sorted(range(len(sentences)), key=lambda index, sentences=sentences: -len(sentences[index]))
        layers = [EXPECTED[f"{name}/{index}"] for index in order]
        state = EXPECTED[f"{name}_state_h"], EXPECTED[f"{name}_state_c"]
        calls.append(Call([sentences[index] for index in order], layers, state=state))
    assert_golden(model, calls, TOLERANCE, TOLERANCE)
    average = EXPECTED["average/0"][None]  # their default output
    assert_golden(model, [Call(SENTENCES["call1"][:1], [EXPECTED["call1/0"]], [average])], TOLERANCE)
    sentences = [SENTENCES["call1"][index] for index in EXPECTED["sorted_order"]]
    inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="np")
    mask = inputs["attention_mask"].astype(bool)
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, :50] - 1, EXPECTED["sorted_char_ids"][mask])
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, 50] - 34, EXPECTED["sorted_word_ids"][mask])
    np.testing.assert_array_equal(mask.sum(1), [len(sentence) + 2 for sentence in sentences])


@pytest.mark.parametrize(
    ("part", "expected"), [("word", ("char_cnn", 34, 0, None, 28)), ("char", ("word_embedding", 15, 0, 6, 2))]
)
def test_models_without_one_part_equal_the_reference(part: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    converted(write_files(tmp_path / "source", without_part(FILES, part)), tmp_path / "to")
    config = ElmoConfig.from_pretrained(tmp_path / "to")
    found = (config.token_encoder, config.vocab_size, config.num_input_words, config.word_embedding_size)
    assert (*found, config.bos_token_id) == expected


def test_a_lexicon_may_have_its_rows_in_any_order_and_the_line_ends_of_windows(folder: Path, tmp_path: Path) -> None:
    """Symbols of white space stay apart, the softmax is noted, and text is split at white space unless told."""
    lines = FILES["char.dic"].decode().replace("v\t25", "\u00a0\t25").splitlines(keepends=False)
    assert "\u3000\t26" in lines
    changed = {"char.dic": "".join(f"{line}\r\n" for line in lines[::-1]).encode(), "classifier.pkl": b"not read"}
    source = write_files(tmp_path / "source", FILES | changed)
    _, note = converted(source, tmp_path / "to", word_splitter="ptb")
    assert note == "Note: classifier.pkl, the language model's softmax, is left out."
    expected = ElmoTokenizer.from_pretrained(folder).get_vocab()
    expected["c:\u00a0"] = expected.pop("c:v")
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert tokenizer.get_vocab() == expected
    assert tokenizer.tokenize("Don't go.") == ["Do", "n't", "go", "."]
    assert ElmoTokenizer.from_pretrained(folder).tokenize("Don't go.") == ["Don't", "go."]
    assert (expected["c:\u00a0"], expected["c:\u3000"]) == (26, 27)


def test_the_architecture_of_their_package_is_that_of_the_paper() -> None:
    for each in PACKAGED.values():
        encoder, token = each["encoder"], each["token_embedder"]
        found = [encoder[key] for key in ("n_layers", "dim", "projection_dim", "cell_clip", "proj_clip")]
        found += [token[key] for key in ("word_dim", "char_dim", "n_highway", "max_characters_per_token")]
        assert (found, token["activation"]) == ([2, 4096, 512, 3, 3, 100, 50, 2, 50], "relu")
