"""TF-Hub modules: every packing becomes the same folder, and other programs of TensorFlow are refused by name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import write_files, write_tar
from checkpoints import BASE, Arrays, bits, read_datasets
from hub_modules import LOGITS, SCALE, files_of, saved_by_tensorflow_2, variables_of, write_module
from language_models import state_of
from tensor_bundles import write_bundle
from transformers import AutoTokenizer

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.checkpoint import Given
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.errors import ConversionError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
SHA1 = "9bb74bc86f9caffc8c47dd7b33ec4bb354d9602d"
GOOGLE = variables_of("google")


def convert(source: Path, to: Path, **given: Any) -> list[str]:
    """Converts with the check; returns what is said."""
    told: list[str] = []
    difference = convert_source(source, to, Given(**given), check=True, tell=told.append)
    assert difference is not None
    assert difference < 1e-5
    return told


def prefixed(prefix: str, variables: Arrays) -> Arrays:
    return {prefix + name: array for name, array in variables.items()}


def in_cache(folder: Path) -> Path:
    write_module(folder / SHA1, GOOGLE)
    (folder / f"{SHA1}.descriptor.txt").write_text("Module: https://tfhub.dev/google/elmo/2", encoding="utf-8")
    return folder


def without_program(folder: Path) -> Path:
    (write_module(folder, GOOGLE) / "saved_model.pb").unlink()
    return folder


PACKINGS: dict[str, Callable[[Path], Path]] = {
    "folder": lambda folder: write_module(folder, GOOGLE),
    "two shards": lambda folder: write_module(folder, GOOGLE, num_shards=2),
    "no program": without_program,
    "variables alone": lambda folder: write_module(folder, GOOGLE) / "variables",
    "tar": lambda folder: write_tar(folder.with_suffix(".tar.gz"), files_of(write_module(folder, GOOGLE))),
    "cache": in_cache,
    "tar of a cache": lambda folder: write_tar(folder.with_suffix(".tar.gz"), files_of(in_cache(folder))),
    "behind module/": lambda folder: write_module(folder, prefixed("module/", GOOGLE)),
    "TensorFlow 2": lambda folder: write_module(folder, saved_by_tensorflow_2(GOOGLE)),
    "TensorFlow 2 behind module/": lambda folder: write_module(
        folder, saved_by_tensorflow_2(prefixed("module/", GOOGLE))
    ),
}


@pytest.mark.parametrize("name", PACKINGS)
def test_every_packing_becomes_the_same_model(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    source = PACKINGS[name](tmp_path / "elmo")
    found, note = convert(source, tmp_path / "to")
    assert found == f"Found a TensorFlow Hub module in {source}."
    assert note == (
        "Note: the variables do not tell lstm.cell_clip 3, lstm.proj_clip 3, lstm.use_skip_connections True, "
        "char_cnn.activation relu, char_cnn.max_characters_per_token 50: the original ELMo's; give others as "
        "`--options FILE`."
    )
    expected = state_of(tiny_folder) | {"scalar_mixes.0.logits": LOGITS, "scalar_mixes.0.scale": np.array(SCALE)}
    assert bits(state_of(tmp_path / "to")) == bits(expected)


def test_sizes_come_from_shapes_and_the_rest_from_the_original_or_the_options(
    tiny_folder: Path, tmp_path: Path
) -> None:
    source = write_module(tmp_path / "elmo", GOOGLE)
    convert(source, tmp_path / "to")
    ours, theirs = (ElmoModel.from_pretrained(folder).config.to_dict() for folder in (tmp_path / "to", tiny_folder))
    differing = {name for name in ours | theirs if ours.get(name) != theirs.get(name)}
    assert differing == {"_name_or_path", "task_specific_params"}
    options = json.loads((BASE / "options.json").read_text(encoding="utf-8"))
    options["lstm"] |= {"cell_clip": 0.25, "use_skip_connections": False}
    options["char_cnn"] |= {"activation": "tanh", "max_characters_per_token": 24}
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    assert len(convert(source, tmp_path / "other", options=tmp_path / "options.json")) == 1
    config = ElmoModel.from_pretrained(tmp_path / "other").config
    found = (config.cell_clip, config.use_skip_connections, config.char_activation, config.max_word_length)
    assert found == (0.25, False, "tanh", 24)


@pytest.mark.parametrize(("style", "adds", "module"), [
    ("google", False, {"state": "none", "scaled_mean": True}),
    ("deeppavlov", True, {"state": "signature", "scaled_mean": False}),
])  # fmt: skip
def test_boundaries_and_state_are_those_of_who_made_it(
    style: str, adds: bool, module: dict[str, Any], tmp_path: Path
) -> None:
    told = convert(write_module(tmp_path / "elmo", variables_of(style)), tmp_path / "to")
    left = [note for note in told if "LSTM states" in note]
    assert left == ["Note: 8 variables with LSTM states are not carried: texts start from zeros."] * adds
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert tokenizer("it's a  cat").tokens() == ["<S>"] * adds + ["it's", "a", "cat"] + ["</S>"] * adds
    assert ElmoModel.from_pretrained(tmp_path / "to").config.task_specific_params == {"tfhub": module}
    mix = ElmoModel.from_pretrained(tmp_path / "to").scalar_mixes[0]
    np.testing.assert_array_equal(mix.logits.detach(), LOGITS)
    assert mix.scale.item() == SCALE


def test_one_set_of_states_is_shared_by_both_signatures(tmp_path: Path) -> None:
    states = {f"bilm/Variable{end}": np.ones((6, 8), np.float32) for end in ("", "_1")}
    convert(write_module(tmp_path / "elmo", GOOGLE | states), tmp_path / "to")
    params = ElmoModel.from_pretrained(tmp_path / "to").config.task_specific_params
    assert params["tfhub"]["state"] == "shared"


def test_a_tokenizer_without_boundaries_adds_them_if_asked_and_stays_so_when_saved(tmp_path: Path) -> None:
    convert(write_module(tmp_path / "elmo", GOOGLE), tmp_path / "to")
    ElmoTokenizer.from_pretrained(tmp_path / "to").save_pretrained(tmp_path / "again")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "again", trust_remote_code=True)
    assert tokenizer(["a cat"], add_special_tokens=True).tokens() == ["<S>", "a", "cat", "</S>"]
    assert tokenizer(["a cat", "on"], padding=True).tokens(1) == ["on", "<pad>"]
    assert tokenizer.encode("a cat") == tokenizer("a cat")["input_ids"]
    assert len(tokenizer.encode("a cat", add_special_tokens=True)) == 4
    assert [tokenizer.num_special_tokens_to_add(pair) for pair in (False, True)] == [0, 0]
    assert tokenizer.get_special_tokens_mask(tokenizer.encode("a cat")) == [0, 0]


def test_variables_of_other_layers_are_left_out_with_a_note(tmp_path: Path) -> None:
    ours = prefixed("module/", GOOGLE)
    rest = {"dense/kernel": np.ones((3, 2), np.float32), "global_step": np.array(4, np.int64)}
    slot = {"module/aggregation/weights/.OPTIMIZER_SLOT/adam/m/.ATTRIBUTES/VARIABLE_VALUE": LOGITS}
    told = convert(write_module(tmp_path / "elmo", ours | rest | slot), tmp_path / "to")
    assert told[-1] == "Note: 1 variables that are not the ELMo's are not carried: dense/kernel."


BERT = {"bert/embeddings/word_embeddings": np.ones((4, 3), np.float32)}
OTHERS = {
    "a BERT": BERT,
    "a BERT of the hub": prefixed("module/", BERT),
    "a BERT of TensorFlow 2": saved_by_tensorflow_2({"transformer/layer_0/self_attention/key/bias": LOGITS}),
    "a BERT of transformers": {"tf_bert_model/bert/pooler/dense/bias": LOGITS},
    "an ALBERT": {"module/albert/embeddings/LayerNorm/beta": LOGITS},
    "an ELECTRA": {"electra/embeddings/LayerNorm/beta": LOGITS},
    "a Universal Sentence Encoder": {"module/Embeddings_en/sharded_0": LOGITS},
    "a table of word vectors": {"embeddings/part_0": LOGITS},
}


@pytest.mark.parametrize("name", OTHERS)
def test_somebody_elses_module_is_refused_by_name(name: str, tmp_path: Path) -> None:
    source = write_module(tmp_path / "other", OTHERS[name])
    model = " of ".join(name.split(" of ")[:1]) if "BERT of" in name else name
    with pytest.raises(ConversionError, match=rf"other is {model}, not an ELMo: it has the variable \S+\. `transf"):
        convert_source(source, tmp_path / "to", Given())
    assert not (tmp_path / "to").exists()


def test_a_berts_program_alone_is_refused_by_name(tmp_path: Path) -> None:
    source = write_files(tmp_path / "bert", {"saved_model.pb": b"\x08\x01\x12\x24bert/embeddings/word_embeddings\x12"})
    with pytest.raises(ConversionError, match="bert is a BERT, not an ELMo: it has the variable bert/embeddings/word"):
        convert_source(source, tmp_path / "to", Given())


def changed(**changes: np.ndarray | None) -> Arrays:
    """Google's variables with others, or without them; `__` stands for `/`."""
    variables = dict(GOOGLE)
    for name, array in changes.items():
        variables.pop(name.replace("__", "/"), None)
        if array is not None:
            variables[name.replace("__", "/")] = array
    return variables


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another program": ({"image/kernel": LOGITS}, "but no ELMo: it has no variable `bilm/char_embed`, only image/k"),
    "two ELMos": (
        prefixed("module/", GOOGLE) | prefixed("module_1/", GOOGLE),
        "holds several ELMos, behind 'module/', 'module_1/'; save one alone.",
    ),
    "no mix": (
        changed(aggregation__weights=None, aggregation__scaling=None),
        "one scalar mix, `aggregation/weights` and `aggregation/scaling` or `aggregation/elmo_output_ELMo_W` and "
        "`aggregation/elmo_output_ELMo_gamma`, found none.",
    ),
    "two mixes": (changed(aggregation__elmo_output_ELMo_W=LOGITS), "found aggregation/elmo_output_ELMo_W, aggreg"),
    "no scale": (changed(aggregation__scaling=None), "missing: `aggregation/scaling` ()"),
    "another scale": (changed(aggregation__scaling=LOGITS), "shape: `aggregation/scaling` must be (), found (3,)"),
    "an unknown mix": (changed(aggregation__bias=LOGITS), "unknown: `aggregation/bias` (3,)"),
    "padding": (
        changed(bilm__char_embed=GOOGLE["bilm/char_embed"] + 1),
        "row 0 of `bilm/char_embed` in ",
    ),
    "no lowest layer": (
        changed(**{"bilm/RNN_0/RNN/MultiRNNCell/Cell0/rnn/lstm_cell/bias": None}),
        "cannot be read from its variables, `char_embed` (261, 4), the lowest LSTM's kernel (16, 128) and bias (), and",
    ),
    "unknown weights": (changed(bilm__CNN__gate=LOGITS), "unknown: `CNN/gate` (3,)"),
    "one name twice": (
        saved_by_tensorflow_2(GOOGLE) | {"bilm/char_embed": LOGITS},
        "and `variables/0/.ATTRIBUTES/VARIABLE_VALUE`, which are one variable, `bilm/char_embed`.",
    ),
    "no graph": (saved_by_tensorflow_2(GOOGLE) | {GRAPH: b"\x0a\x09"}, "cannot be read: 9 bytes must follow, found"),
    "a graph of numbers": (saved_by_tensorflow_2(GOOGLE) | {GRAPH: LOGITS}, "must be one string of at most 8,388,608"),
}  # fmt: skip


@pytest.mark.parametrize(("variables", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_module_is_named(variables: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=re.escape(message)):
        convert_source(write_module(tmp_path / "elmo", variables), tmp_path / "to", Given())


@pytest.mark.parametrize("place", [0, 3, 9])
def test_a_damaged_graph_is_named(place: int, tmp_path: Path) -> None:
    source = write_module(tmp_path / "elmo", {GRAPH: b"x" * 20} | saved_by_tensorflow_2(BERT))
    graph = {GRAPH: saved_by_tensorflow_2(BERT)[GRAPH]}
    write_bundle(source / "variables" / "variables", graph)
    shard = source / "variables" / "variables.data-00000-of-00001"
    content = bytearray(shard.read_bytes())
    content[place] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ConversionError, match=f"is damaged: the checksum of `{GRAPH}` of .* is wrong. Copy it again"):
        convert_source(source, tmp_path / "to", Given())


def test_several_modules_of_a_cache_are_listed(tmp_path: Path) -> None:
    for name in ("a1", "b2"):
        write_module(tmp_path / "cache" / name, GOOGLE)
    with pytest.raises(ConversionError, match="cache holds several modules, a1, b2: give one of these folders"):
        convert_source(tmp_path / "cache", tmp_path / "to", Given())


def test_a_program_without_variables_is_named(tmp_path: Path) -> None:
    source = write_files(tmp_path / "elmo", {"saved_model.pb": b"bilm/char_embed"})
    with pytest.raises(ConversionError, match=r"`saved_model\.pb` without `variables/variables\.index`, where a mod"):
        convert_source(source, tmp_path / "to", Given())


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    source = write_files(tmp_path / "source", {"saved_model.pb": b"x", "variables/variables.index": b"x"})
    with pytest.raises(ConversionError, match=r"variables\.index cannot be read as the index of a TensorFlow checkp"):
        convert_source(source, tmp_path / "to", Given())


def test_a_module_goes_back_as_allennlps_files_with_notes_of_what_they_lack(tmp_path: Path) -> None:
    convert(write_module(tmp_path / "elmo", GOOGLE), tmp_path / "to")
    mix, boundaries = folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    assert mix == "the mix of layers is not carried: the format holds the biLM only."
    assert boundaries.startswith("this is Google's model, which reads no `<S>` and `</S>`; AllenNLP and bilm-tf alwa")
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(BASE / "weights.hdf5"))


def test_weights_with_a_program_beside_them_are_no_module(tmp_path: Path) -> None:
    weights = {name: (BASE / name).read_bytes() for name in ("options.json", "weights.hdf5")}
    source = write_files(tmp_path / "elmo", weights | {"saved_model.pb": b"x", "tf/saved_model.pb": b"x"})
    assert convert(source, tmp_path / "to")[0].startswith("Found options and weights of AllenNLP")
