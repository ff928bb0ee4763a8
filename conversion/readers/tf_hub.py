"""TF-Hub modules of an ELMo: Google's `google/elmo`, and those that DeepPavlov's `elmo2tfhub` exports.

    saved_model.pb, tfhub_module.pb       the program; not read
    variables/variables.index, .data-*    the variables, a tensor bundle

The variables have the names of bilm-tf's graph for inference, after a prefix such as `module/` if another program saved
them. A module that TensorFlow 2 saved has keys such as `variables/0/.ATTRIBUTES/VARIABLE_VALUE`, and the names are in
its object graph.

    variable                                                       array of `hdf5_layout.py`
    bilm/CNN..., bilm/CNN_high_k/..., bilm/CNN_proj/...            the same without bilm/
    bilm/char_embed, with a zero row for padding                   char_embed, without that row
    bilm/RNN_d/RNN/MultiRNNCell/Cellk/rnn/lstm_cell/...            RNN_d/RNN/MultiRNNCell/Cellk/LSTMCell/...
    bilm/Variable, bilm/Variable_1, ..., bilm_1/Variable, ...      none: the LSTM states of the last batch
    aggregation/weights, /scaling                                  Google's scalar mix
    aggregation/elmo_output_ELMo_W, ..._gamma                      DeepPavlov's

Sizes are read from the shapes. Other settings equal the original ELMo's (`CONSTANTS`), or come from an options file.
The names of the mix's variables show who made the module: Google's modules add no `<S>` and `</S>`; DeepPavlov's add
both, and compute a sentence's mean without the mix's scale. Sources: `elmo_model.py` of DeepPavlov; for Google's the
output in tensorflow/hub's issues #88, #369 and #450.
"""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from elmo_hf.public import ElmoTokenizer

from ..contract import Checkpoint, NamedFiles
from ..hdf5 import is_hdf5
from ..options import read_options
from ..refusals import ConversionError, listed, naming_file, shortened
from ..rules import ADD_LEADING_AXIS, Rule, import_arrays
from ..sources import Source, by_name
from ..witness.reference import ReferenceElmo
from .bilm_tf import CELL_ARRAYS
from .hdf5_layout import NUM_CHARACTERS, allennlp_rules, config_from_options
from .tensor_bundle import Message, TensorBundle, shards_of

INDEX = "variables.index"
PROGRAM = "saved_model.pb"
COUNTERS = ("save_counter", "global_step")
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
CHARACTER_TABLE = "bilm/char_embed"
STATE = re.compile(r"bilm(_\d+)?/Variable(_\d+)?")
MODULE_CELL = re.compile(r"bilm/(RNN_\d+/RNN/MultiRNNCell/Cell\d+)/rnn/lstm_cell/(kernel|bias|projection/kernel)")
# Settings that google/elmo and every ELMo of DeepPavlov have.
CONSTANTS = {
    ("lstm", "cell_clip"): 3,
    ("lstm", "proj_clip"): 3,
    ("lstm", "use_skip_connections"): True,
    ("char_cnn", "activation"): "relu",
    ("char_cnn", "max_characters_per_token"): 50,
}
# The variables of a scalar mix: the weights of its layers, and its scale.
GOOGLE = ("aggregation/weights", "aggregation/scaling")
DEEPPAVLOV = ("aggregation/elmo_output_ELMo_W", "aggregation/elmo_output_ELMo_gamma")


class Variables(NamedTuple):
    """The variables of a module, each a name without the module's prefix and its key in the bundle."""

    weights: dict[str, str]  # those of the ELMo
    states: dict[str, str]  # the LSTM states of the last batch
    others: list[str]  # the names of those that are not the ELMo's


def holds_module(source: Source) -> bool:
    """Whether a source has the files of a module, at the top or in a folder, and at the top no other weights."""
    for name in source.top:
        is_other_index = name.endswith(".index") and name != INDEX
        if is_hdf5(name) or is_other_index:
            return False
    return len(_files_named(source, INDEX)) > 0 or len(_files_named(source, PROGRAM)) > 0


def read_tf_hub(source: Source, named_files: NamedFiles, word_splitter: str | None) -> Checkpoint:
    """Reads a module; of the named files, the options."""
    index = _index(source)
    bundle = TensorBundle(index.with_suffix(""))
    variables = _variables(_keys(bundle, index), source.path)
    mix = _mix(variables.weights, source.path)
    is_googles = mix == GOOGLE
    tensors = bundle.read(variables.weights.values())
    arrays = _arrays({name: tensors[key] for name, key in variables.weights.items()}, index)
    shapes = {name: array.shape for name, array in arrays.items()}
    with naming_file(index):
        options = _options_from_shapes(shapes) if named_files.options is None else read_options(named_files.options)
    config = config_from_options(options, shapes, named_files.options or index)
    # For `elmo_hf.tfhub`: the calls that share a state, and whether a sentence's mean includes the mix's scale.
    config.task_specific_params = {"tfhub": {"state": _sharing(variables.states), "scaled_mean": is_googles}}
    rules = allennlp_rules(config) + _mix_rules(mix, config.num_hidden_layers)
    bilm = {name: array for name, array in arrays.items() if name not in mix}
    return Checkpoint(
        config,
        import_arrays(rules, arrays, str(index)),
        ElmoTokenizer(
            max_word_length=config.max_word_length,
            word_splitter=word_splitter or "whitespace",
            add_boundaries=not is_googles,
        ),
        by_name(index, *shards_of(index.with_suffix(""))),
        partial(ReferenceElmo, options, bilm, not is_googles),
        _notes(variables, has_options=named_files.options is not None),
    )


def _files_named(source: Source, name: str) -> list[str]:
    return sorted(path for path in source.files if PurePosixPath(path).name == name)


def _index(source: Source) -> Path:
    """The index of the only module's variables."""
    indices = _files_named(source, INDEX)
    if not indices:
        raise ConversionError(
            f"{source.path} must have a module's variables, `variables/{INDEX}`, but has only its program, "
            f"`{PROGRAM}`. Copy the folder `variables` beside it."
        )
    if len(indices) > 1:
        modules = listed(str(PurePosixPath(name).parent.parent) for name in indices)
        raise ConversionError(
            f"{source.path} must have one module's `variables/{INDEX}`, but has the modules {modules}. Give the folder "
            "of the one to convert."
        )
    return source.files[indices[0]]


def _keys(bundle: TensorBundle, index: Path) -> dict[str, str]:
    """The keys of the variables by their names, which TensorFlow 2 keeps in a `TrackableObjectGraph`."""
    names = _names_of_keys(bundle, index)
    keys: dict[str, str] = {}
    for key in bundle.entries:
        name = names.get(key, key.removesuffix(VALUE))
        is_other = key == OBJECT_GRAPH or name in COUNTERS or "/.OPTIMIZER_SLOT/" in key
        if is_other:
            continue
        other = keys.setdefault(name, key)
        if other != key:
            raise ConversionError(
                f"{index} must have one variable of each name, but `{shortened(key)}` and `{shortened(other)}` are "
                f"both `{shortened(name)}`."
            )
    return keys


def _names_of_keys(bundle: TensorBundle, index: Path) -> dict[str, str]:
    """The names of variables by their keys, if TensorFlow 2 saved them; else none."""
    names: dict[str, str] = {}
    if OBJECT_GRAPH not in bundle.entries:
        return names
    with naming_file(index):
        graph = Message(bundle.read_string(OBJECT_GRAPH))
        for node in graph.messages(1):
            for attribute in node.messages(2):
                name = bytes.decode(attribute.get(2, [b""])[-1])
                key = bytes.decode(attribute.get(3, [b""])[-1])
                if name:
                    names[key] = name
    return names


def _variables(keys: Mapping[str, str], where: Path) -> Variables:
    """Sorts the variables of a module's only ELMo."""
    prefixes = sorted(name.removesuffix(CHARACTER_TABLE) for name in keys if f"/{name}".endswith(f"/{CHARACTER_TABLE}"))
    if not prefixes:
        raise ConversionError(
            f"{where} must have the variable `{CHARACTER_TABLE}`, as the module of an ELMo, but has {listed(keys)}. "
            "Modules of other models cannot be converted."
        )
    if len(prefixes) > 1:
        raise ConversionError(
            f"{where} must have `{CHARACTER_TABLE}` of one ELMo, but has it behind {listed(map(repr, prefixes))}; "
            "modules of several cannot be converted."
        )
    weights = {}
    states = {}
    others = []
    for full_name, key in keys.items():
        name = full_name.removeprefix(prefixes[0])
        is_behind_prefix = full_name.startswith(prefixes[0])
        if is_behind_prefix and STATE.fullmatch(name):
            states[name] = key
        elif is_behind_prefix and name.startswith(("bilm/", "aggregation/")):
            weights[name] = key
        else:
            others.append(full_name)
    return Variables(weights, states, others)


def _mix(weights: Mapping[str, str], where: Path) -> tuple[str, str]:
    """The names of the variables of the module's scalar mix."""
    mixes = [mix for mix in (GOOGLE, DEEPPAVLOV) if not weights.keys().isdisjoint(mix)]
    if len(mixes) != 1:
        names = [name for name in weights if "aggregation/" in name]
        raise ConversionError(
            f"{where} must have one scalar mix, `{GOOGLE[0]}` or `{DEEPPAVLOV[0]}`, but has "
            f"{listed(names) or 'neither'}."
        )
    return mixes[0]


def _mix_rules(mix: tuple[str, str], num_layers: int) -> list[Rule]:
    """The rules of a scalar mix, whose scale is a number in Google's modules and an array of one in DeepPavlov's."""
    weights, scale = mix
    rules = [Rule(weights, (num_layers + 1,), ("scalar_mixes.0.logits",))]
    if mix == GOOGLE:
        rules.append(Rule(scale, (), ("scalar_mixes.0.scale",), (ADD_LEADING_AXIS,)))
    else:
        rules.append(Rule(scale, (1,), ("scalar_mixes.0.scale",)))
    return rules


def _sharing(states: Iterable[str]) -> str:
    """Which calls share an LSTM state: none, all (`shared`), or those of a signature (`bilm`, `bilm_1`, ...)."""
    signatures = {name.partition("/")[0] for name in states}
    if not signatures:
        return "none"
    if len(signatures) == 1:
        return "shared"
    return "signature"


def _arrays(variables: Mapping[str, np.ndarray], index: Path) -> dict[str, np.ndarray]:
    """The variables by the names of `hdf5_layout.py`, without the table's zero row."""
    arrays = {}
    for name, array in variables.items():
        cell = MODULE_CELL.fullmatch(name)
        if cell is None:
            arrays[name.removeprefix("bilm/")] = array
        else:
            layer, part = cell.groups()
            arrays[f"{layer}/LSTMCell/{CELL_ARRAYS[part]}"] = array
    table = arrays["char_embed"]
    if table.ndim == 2 and len(table) == NUM_CHARACTERS + 1:
        if table[0].any():
            raise ConversionError(
                f"{index}: row 0 of `{CHARACTER_TABLE}`, the vector of padding, must be zero, but is "
                f"{shortened(str(table[0].tolist()))}."
            )
        arrays["char_embed"] = table[1:]
    return arrays


def _options_from_shapes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, dict[str, Any]]:
    """Options made from shapes and `CONSTANTS`; if shapes are wrong, `import_arrays` refuses the result."""
    first_cell = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"
    filters: list[list[int]] = []
    while f"CNN/W_cnn_{len(filters)}" in shapes:
        _, width, _, count = shapes[f"CNN/W_cnn_{len(filters)}"]
        filters.append([width, count])
    num_layers = 0
    while f"RNN_0/RNN/MultiRNNCell/Cell{num_layers}/LSTMCell/W_0" in shapes:
        num_layers += 1
    num_highways = 0
    while f"CNN_high_{num_highways}/W_carry" in shapes:
        num_highways += 1
    options: dict[str, dict[str, Any]] = {
        "lstm": {
            "projection_dim": shapes[f"{first_cell}/W_0"][0] // 2,
            "dim": shapes[f"{first_cell}/B"][0] // 4,
            "n_layers": num_layers,
        },
        "char_cnn": {
            "embedding": {"dim": shapes["char_embed"][1]},
            "filters": filters,
            "n_highway": num_highways,
        },
    }
    for (section, key), value in CONSTANTS.items():
        options[section][key] = value
    return options


def _notes(variables: Variables, has_options: bool) -> tuple[str, ...]:
    notes = []
    if not has_options:
        constants = ", ".join(f"{section}.{key} {value}" for (section, key), value in CONSTANTS.items())
        notes.append(f"assumed as in the original ELMo: {constants}; a file named as `options` replaces these.")
    if variables.states:
        notes.append(f"{len(variables.states)} variables with LSTM states are left out: texts start from zeros.")
    if variables.others:
        notes.append(
            f"{len(variables.others)} variables that are not the ELMo's are left out: {listed(variables.others)}."
        )
    return tuple(notes)
