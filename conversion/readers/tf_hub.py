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
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from elmo_hf.model.tokenization_elmo import ElmoTokenizer

from ..contract import Checkpoint, Given
from ..hdf5 import is_hdf5
from ..options import read_options
from ..refusals import listed, reading, require
from ..rules import DROP_LEADING_AXIS, Rule, import_arrays
from ..sources import Source
from ..witness.reference import ReferenceElmo
from .bilm_tf import CELL_ARRAYS
from .hdf5_layout import NUM_CHARACTERS, allennlp_rules, config_from_options
from .tensor_bundle import Message, TensorBundle, shards_of

INDEX = "variables.index"
PROGRAM = "saved_model.pb"
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
TABLE = "bilm/char_embed"
STATE = re.compile(r"bilm(_\d+)?/Variable(_\d+)?")
CELL = re.compile(r"bilm/(RNN_\d+/RNN/MultiRNNCell/Cell\d+)/rnn/lstm_cell/(kernel|bias|projection/kernel)")
# Settings that google/elmo and every ELMo of DeepPavlov have.
CONSTANTS = {
    ("lstm", "cell_clip"): 3,
    ("lstm", "proj_clip"): 3,
    ("lstm", "use_skip_connections"): True,
    ("char_cnn", "activation"): "relu",
    ("char_cnn", "max_characters_per_token"): 50,
}
GOOGLE = ("aggregation/weights", "aggregation/scaling")
DEEPPAVLOV = ("aggregation/elmo_output_ELMo_W", "aggregation/elmo_output_ELMo_gamma")


def holds_module(source: Source) -> bool:
    """Whether a source has the files of a module, at the top or in a folder, and at the top no other weights."""
    if any(is_hdf5(name) or (name.endswith(".index") and name != INDEX) for name in source.top):
        return False
    return bool(_named(source, INDEX) or _named(source, PROGRAM))


def read_tf_hub(source: Source, given: Given) -> Checkpoint:
    """Reads a module."""
    found = _named(source, INDEX)
    modules = listed(str(PurePosixPath(name).parent.parent) for name in found) or f"`{PROGRAM}` alone"
    require(len(found) == 1, source.path, "", f"a folder with one module's `variables/{INDEX}`", modules)
    index = source.files[found[0]]
    bundle = TensorBundle(index.with_suffix(""))
    keys = _keys(bundle, index)
    prefixes = sorted(name.removesuffix(TABLE) for name in keys if f"/{name}".endswith(f"/{TABLE}"))
    where = listed(map(repr, prefixes)) if prefixes else f"only {listed(keys)}"
    require(len(prefixes) == 1, source.path, TABLE, "there once, in a module of one ELMo", where)
    ours = {name.removeprefix(prefixes[0]): key for name, key in keys.items() if name.startswith(prefixes[0])}
    states = [name for name in ours if STATE.fullmatch(name)]
    weights = {name: key for name, key in ours.items() if re.match("bilm/|aggregation/", name) and name not in states}
    mixes = [mix for mix in (GOOGLE, DEEPPAVLOV) if not weights.keys().isdisjoint(mix)]
    expected = f"a module with one scalar mix, `{GOOGLE[0]}` or `{DEEPPAVLOV[0]}`"
    require(len(mixes) == 1, source.path, "", expected, listed(name for name in weights if "aggregation/" in name))
    is_googles = mixes == [GOOGLE]
    arrays = _arrays(dict(zip(weights, bundle.read(weights.values()).values(), strict=True)), index)
    shapes = {name: array.shape for name, array in arrays.items()}
    with reading(index):
        options = _options(shapes) if given.options is None else read_options(given.options)
    config = config_from_options(options, shapes, given.options or index)
    # For `elmo_hf.tfhub`: the calls that share a state, and whether a sentence's mean includes the mix's scale.
    state = ("none", "shared", "signature")[min(len({name.partition("/")[0] for name in states}), 2)]
    config.task_specific_params = {"tfhub": {"state": state, "scaled_mean": is_googles}}
    weights_of_mix, scale = mixes[0]
    shape, ops = ((), ()) if is_googles else ((1,), (DROP_LEADING_AXIS,))
    rules = [
        *allennlp_rules(config),
        Rule(weights_of_mix, (config.num_hidden_layers + 1,), ("scalar_mixes.0.logits",)),
        Rule(scale, shape, ("scalar_mixes.0.scale",), ops),
    ]
    bilm = {name: array for name, array in arrays.items() if name not in mixes[0]}
    used = {*weights.values(), *(ours[name] for name in states)}
    return Checkpoint(
        config,
        import_arrays(rules, arrays, str(index)),
        ElmoTokenizer(
            max_word_length=config.max_word_length,
            word_splitter=given.word_splitter or "whitespace",
            add_boundaries=not is_googles,
        ),
        source.to_digest(index, *shards_of(index.with_suffix(""))),
        partial(ReferenceElmo, options, bilm, not is_googles),
        _notes(given, states, [name for name, key in keys.items() if key not in used]),
    )


def _named(source: Source, name: str) -> list[str]:
    return sorted(each for each in source.files if PurePosixPath(each).name == name)


def _keys(bundle: TensorBundle, index: Path) -> dict[str, str]:
    """The keys of the variables by their names, which TensorFlow 2 keeps in a `TrackableObjectGraph`."""
    names: dict[str, str] = {}
    if OBJECT_GRAPH in bundle.entries:
        with reading(index):
            graph = Message(bundle.read_string(OBJECT_GRAPH))
            for attribute in (each for node in graph.messages(1) for each in node.messages(2)):
                name, key = (bytes.decode(attribute.get(field, [b""])[-1]) for field in (2, 3))
                names[key] = name
    keys: dict[str, str] = {}
    for key in bundle.entries:
        name = names.get(key) or key.removesuffix(VALUE)
        if key != OBJECT_GRAPH and name not in ("save_counter", "global_step") and "/.OPTIMIZER_SLOT/" not in key:
            other = keys.setdefault(name, key)
            require(other == key, index, key, f"another variable than `{other}`", name)
    return keys


def _arrays(variables: Mapping[str, np.ndarray], index: Path) -> dict[str, np.ndarray]:
    """The variables by the names of `hdf5_layout.py`, without the table's zero row."""
    arrays = {}
    for name, array in variables.items():
        cell = CELL.fullmatch(name)
        theirs = name.removeprefix("bilm/") if cell is None else f"{cell[1]}/LSTMCell/{CELL_ARRAYS[cell[2]]}"
        arrays[theirs] = array
    table = arrays["char_embed"]
    if table.ndim == 2 and len(table) == NUM_CHARACTERS + 1:
        require(not table[0].any(), index, TABLE, "a table whose row 0, the padding's, is zero", table[0].tolist())
        arrays["char_embed"] = table[1:]
    return arrays


def _options(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, dict[str, Any]]:
    """Options made from shapes and `CONSTANTS`; if shapes are wrong, `import_arrays` refuses the result."""
    cell = "RNN_0/RNN/MultiRNNCell/Cell{}/LSTMCell/{}"
    filters = [shapes[name] for k in range(len(shapes)) if (name := f"CNN/W_cnn_{k}") in shapes]
    options: dict[str, dict[str, Any]] = {
        "lstm": {
            "projection_dim": shapes[cell.format(0, "W_0")][0] // 2,
            "dim": shapes[cell.format(0, "B")][0] // 4,
            "n_layers": sum(cell.format(layer, "W_0") in shapes for layer in range(len(shapes))),
        },
        "char_cnn": {
            "embedding": {"dim": shapes["char_embed"][1]},
            "filters": [[width, count] for _, width, _, count in filters],
            "n_highway": sum(f"CNN_high_{k}/W_carry" in shapes for k in range(len(shapes))),
        },
    }
    for (section, key), value in CONSTANTS.items():
        options[section][key] = value
    return options


def _notes(given: Given, states: list[str], left: list[str]) -> tuple[str, ...]:
    notes = []
    if given.options is None:
        constants = ", ".join(f"{section}.{key} {value}" for (section, key), value in CONSTANTS.items())
        notes.append(f"assumed as in the original ELMo: {constants}; `--options FILE` replaces these.")
    if states:
        notes.append(f"{len(states)} variables with LSTM states are left out: texts start from zeros.")
    if left:
        notes.append(f"{len(left)} variables that are not the ELMo's are left out: {listed(left)}.")
    return tuple(notes)
