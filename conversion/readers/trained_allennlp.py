"""The ELMo inside a trained AllenNLP model: an archive `model.tar.gz`, its folder, or only a `.th` file of weights.

The state dict of the whole model holds the biLM, fine-tuned or not, and its scalar mixes under one prefix:

    {prefix}_elmo_lstm._token_embedder.*    {prefix}_elmo_lstm._elmo_lstm.*    {prefix}scalar_mix_{m}.*

The layout is torch's (`torch_layout.py`). The arrays do not show the clips and the activation, so the options file is
needed: old archives contain it as `fta/*options_file`, newer ones have only a path.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from elmo_hf.public import ElmoConfig, ElmoTokenizer

from ..contract import Checkpoint, NamedFiles
from ..options import Option, make_config, read_options
from ..refusals import ConversionError, listed, shortened
from ..rules import Rule, import_arrays, num_rows
from ..sources import Source, by_name
from ..witness.reference_torch import allennlp_reference
from .hdf5_layout import CHAR_CNN_OPTIONS, LSTM_OPTIONS
from .torch_files import read_state_dict
from .torch_layout import cnn_rules, lstm_rules, projection_rules

WEIGHTS = ("weights.th", "best.th")
BILM = "_elmo_lstm."
CHARACTERS = f"{BILM}_token_embedder._char_embedding_weights"
# Arrays that the model must have; otherwise the options belong to another model.
OF_THE_BILM = (
    f"{BILM}_elmo_lstm.",
    f"{BILM}_token_embedder.char_conv_",
    f"{BILM}_token_embedder._highways.",
)


def are_weights_trained(value: Any) -> bool:
    """Whether a mix's weights are trained; AllenNLP keeps weights that the training's configuration has."""
    return value is None


def layer_norm_to_config(value: Any) -> Any:
    """Maps whether a mix normalises layers to the config's kind of normalisation."""
    if value is True:
        return "batch"
    if not value:
        return "none"
    return value


# Arguments of the ELMo in the training's configuration.
TRAINING_OPTIONS = (
    Option(("dropout",), "representation_dropout", default=0.5),
    Option(("scalar_mix_parameters",), "scalar_mix_trainable", default=None, to_config=are_weights_trained),
    Option(("do_layer_norm",), "scalar_mix_layer_norm", default=False, to_config=layer_norm_to_config),
)


def weights_name(source: Source) -> str | None:
    """The state dict's name if a source looks like a trained model, else None."""
    for name in WEIGHTS:
        if name in source.files:
            return name
    if len(source.files) == 1:
        (name,) = source.files
        if name.endswith((".th", ".pt")):
            return name
    return None


def read_trained_allennlp(source: Source, named_files: NamedFiles, word_splitter: str | None) -> Checkpoint:
    """Reads the biLM and its scalar mixes; of the named files, the options."""
    name = weights_name(source)
    assert name is not None
    path = source.files[name]
    state = read_state_dict(path)
    prefix = _prefix(state, source)
    arguments = _arguments_of_elmo(source)
    options_path = named_files.options
    if options_path is None:
        options_path = _archived_options(source, arguments)
    options = read_options(options_path)
    arrays = join_mixes({key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)})
    config = trained_config(options, arguments, arrays, f"{options_path}, or config.json of {source.path}")
    rules = trained_rules(config)
    sources = {rule.source for rule in rules}
    carried = {key: array for key, array in arrays.items() if key in sources or key.startswith(OF_THE_BILM)}
    others = [key for key in state if not key.startswith(prefix)]
    others += [prefix + key for key in arrays if key not in carried]
    notes = []
    if others:
        notes.append(f"{len(others)} arrays of the task's model are left out: {_modules(others)}.")
    paths = [path] if named_files.options is None else [path, named_files.options]
    bilm = {key.removeprefix(BILM): array for key, array in arrays.items()}
    return Checkpoint(
        config,
        import_arrays(rules, carried, str(path)),
        ElmoTokenizer(max_word_length=config.max_word_length, word_splitter=word_splitter or "ptb"),
        by_name(*paths),
        partial(allennlp_reference, options, bilm),
        tuple(notes),
    )


def trained_config(
    options: Mapping[str, Any], arguments: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: object
) -> ElmoConfig:
    """The architecture of an `Elmo`.

    Args:
        options: the parsed options file.
        arguments: those of the `Elmo`'s constructor, of which `TRAINING_OPTIONS` are read.
        arrays: the arrays of its state dict; the L+1 numbers of a mix are one array.
        where: what holds `options` and `arguments`, for messages.
    """
    # Only these two: other keys of a training's options, such as `dropout`, mean something else in `arguments`.
    known = {key: value for key, value in options.items() if key in ("lstm", "char_cnn")}
    return make_config(
        known | dict(arguments),
        LSTM_OPTIONS + CHAR_CNN_OPTIONS + TRAINING_OPTIONS,
        where,
        vocab_size=num_rows(arrays[CHARACTERS].shape),
        char_projection=True,
        cell_projection=True,
        forget_bias=0.0,
        num_output_representations=sum(key.startswith("scalar_mix_") and key.endswith(".gamma") for key in arrays),
    )


def trained_rules(config: ElmoConfig) -> list[Rule]:
    """The table of one architecture; foreign names lack the prefix, and a mix's L+1 numbers are one array."""
    token = f"{BILM}_token_embedder."
    shape = (config.vocab_size, config.char_embedding_size)
    rules = [Rule(CHARACTERS, shape, ("token_encoder.embedding.weight",))]
    rules += cnn_rules(config, f"{token}char_conv_", f"{token}_highways._layers.")
    rules += projection_rules(f"{token}_projection", config.num_filters, config.projection_size)
    rules += lstm_rules(config, f"{BILM}_elmo_lstm.")
    for mix in range(config.num_output_representations):
        theirs, ours = f"scalar_mix_{mix}", f"scalar_mixes.{mix}"
        rules += [
            Rule(f"{theirs}.scalar_parameters", (config.num_hidden_layers + 1,), (f"{ours}.logits",)),
            Rule(f"{theirs}.gamma", (1,), (f"{ours}.scale",)),
        ]
    return rules


def _prefix(state: Mapping[str, np.ndarray], source: Source) -> str:
    """What stands before the names of the only ELMo's arrays."""
    prefixes = [name.removesuffix(CHARACTERS) for name in state if name.endswith(CHARACTERS)]
    if not prefixes:
        advice = ""
        if source.is_file:
            advice = " If it is an LSTM language model, give the folder with its `vocab.txt`."
        raise ConversionError(
            f"{source.path} must have an ELMo, with an array `...{CHARACTERS}`, but has "
            f"{_modules(name.partition(BILM)[0] for name in state)}.{advice}"
        )
    if len(prefixes) > 1:
        raise ConversionError(
            f"{source.path} must have one ELMo, but has several, behind {listed(map(repr, prefixes))}. Save the arrays "
            "of one alone."
        )
    return prefixes[0]


def _arguments_of_elmo(source: Source) -> Mapping[str, Any]:
    """The arguments of the ELMo in the training's configuration; empty unless there is exactly one ELMo."""
    if "config.json" not in source.files:
        return {}
    unread: list[Any] = [read_options(source.files["config.json"])]
    arguments = []
    while unread:
        value = unread.pop()
        if isinstance(value, dict):
            if "options_file" in value or value.get("type") == "elmo_token_embedder":
                arguments.append(value)
            unread += value.values()
        elif isinstance(value, list):
            unread += value
    return arguments[0] if len(arguments) == 1 else {}


def _archived_options(source: Source, arguments: Mapping[str, Any]) -> Path:
    """ELMo's options file in the archive, of which there may be several equal copies."""
    paths = [path for name, path in sorted(source.files.items()) if fnmatch(name, "fta/*options_file*")]
    contents = {path.read_bytes() for path in paths}
    if len(contents) != 1:
        read_from = ""
        if "options_file" in arguments:
            read_from = f" The training read it from {shortened(repr(arguments['options_file']))}."
        raise ConversionError(
            f"{source.path} must have one options file of ELMo, `fta/*options_file`, because the weights show neither "
            f"clips nor activation, but has {len(contents) or 'none'}. Name the file as `options`.{read_from}"
        )
    return paths[0]


def split_mixes(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Splits the L+1 numbers of each mix into arrays `scalar_mix_{m}.scalar_parameters.{k}`; undoes `join_mixes`."""
    split = {}
    for name, array in arrays.items():
        if not name.endswith(".scalar_parameters"):
            split[name] = array
            continue
        for index, number in enumerate(array):
            split[f"{name}.{index}"] = number.reshape(1)
    return split


def join_mixes(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Joins the L+1 arrays `scalar_mix_{m}.scalar_parameters.{k}`, of one number each, in the order of the layers."""
    joined = {name: array for name, array in arrays.items() if ".scalar_parameters." not in name}
    for name in arrays:
        if not name.endswith(".scalar_parameters.0"):
            continue
        mix = name.removesuffix(".0")
        numbers: list[np.ndarray] = []
        while f"{mix}.{len(numbers)}" in arrays:
            numbers.append(arrays[f"{mix}.{len(numbers)}"].reshape(-1))
        joined[mix] = np.concatenate(numbers)
    return joined


def _modules(names: Iterable[str]) -> str:
    """The number of arrays of each module."""
    counts = Counter(name.rpartition(".")[0] or name for name in names)
    return listed(f"{module} ({count})" for module, count in counts.items())
