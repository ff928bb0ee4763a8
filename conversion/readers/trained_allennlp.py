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
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.model.tokenization_elmo import ElmoTokenizer

from ..contract import Checkpoint, Given
from ..options import Option, make_config, read_options
from ..refusals import listed, require
from ..rules import DROP_LEADING_AXIS, Rule, import_arrays
from ..sources import Source
from ..witness.reference_torch import allennlp_reference
from .hdf5_layout import CHAR_CNN_OPTIONS, LSTM_OPTIONS
from .torch_files import read_state_dict
from .torch_layout import cnn_rules, lstm_rules, projection_rules

WEIGHTS = ("weights.th", "best.th")
BILM = "_elmo_lstm."
CHARACTERS = f"{BILM}_token_embedder._char_embedding_weights"
# Arrays that the model must have; otherwise the options belong to another model.
OF_THE_BILM = tuple(
    f"{BILM}{part}" for part in ("_elmo_lstm.", *(f"_token_embedder.{part}" for part in ("char_conv_", "_highways.")))
)
# Arguments of the ELMo in the training's configuration.
TRAINING_OPTIONS = (
    Option(("dropout",), "representation_dropout", default=0.5),
    Option(("scalar_mix_parameters",), "scalar_mix_trainable", default=None, to_config=lambda value: value is None),
    Option(
        ("do_layer_norm",),
        "scalar_mix_layer_norm",
        default=False,
        to_config=lambda value: "batch" if value is True else value or "none",
    ),
)


def weights_name(source: Source) -> str | None:
    """The state dict's name if a source looks like a trained model, else None."""
    named = [name for name in WEIGHTS if name in source.files]
    alone = [name for name in source.files if name.endswith((".th", ".pt"))] if len(source.files) == 1 else []
    return next(iter(named + alone), None)


def read_trained_allennlp(source: Source, given: Given) -> Checkpoint:
    """Reads the biLM and its scalar mixes."""
    name = weights_name(source)
    assert name is not None
    state = read_state_dict(source.files[name])
    prefixes = [name.removesuffix(CHARACTERS) for name in state if name.endswith(CHARACTERS)]
    found = listed(map(repr, prefixes)) if prefixes else _modules(name.partition(BILM)[0] for name in state)
    advice = "Of an LSTM language model, give the folder with `vocab.txt` too." if source.is_file else ""
    require(len(prefixes) == 1, source.path, CHARACTERS, "there once, behind the name of one ELMo", found, advice)
    setting = _settings(source)
    options_path = given.options or _archived_options(source, setting)
    options = read_options(options_path)
    arrays = _join_mixes(
        {key.removeprefix(prefixes[0]): array for key, array in state.items() if key.startswith(prefixes[0])}
    )
    # Only these two: other keys of a training's options, such as `dropout`, mean something else in `setting`.
    known = {key: value for key, value in options.items() if key in ("lstm", "char_cnn")} | dict(setting)
    config = make_config(
        known,
        LSTM_OPTIONS + CHAR_CNN_OPTIONS + TRAINING_OPTIONS,
        f"{options_path}, or config.json of {source.path}",
        vocab_size=(*arrays[CHARACTERS].shape, 0)[0],
        char_projection=True,
        cell_projection=True,
        forget_bias=0.0,
        num_output_representations=sum(name.startswith("scalar_mix_") and name.endswith(".gamma") for name in arrays),
    )
    rules = trained_rules(config)
    sources = {rule.source for rule in rules}
    carried = {key: array for key, array in arrays.items() if key in sources or key.startswith(OF_THE_BILM)}
    left = [key for key in state if not key.startswith(prefixes[0])]
    left += [prefixes[0] + key for key in arrays if key not in carried]
    note = f"{len(left)} arrays of the task's model are left out: {_modules(left)}."
    return Checkpoint(
        config,
        import_arrays(rules, carried, str(source.files[name])),
        ElmoTokenizer(max_word_length=config.max_word_length, word_splitter=given.word_splitter or "ptb"),
        source.to_digest(source.files[name], *([given.options] if given.options else [])),
        partial(allennlp_reference, options, {key.removeprefix(BILM): array for key, array in arrays.items()}),
        (note,) * bool(left),
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
            Rule(f"{theirs}.gamma", (1,), (f"{ours}.scale",), (DROP_LEADING_AXIS,)),
        ]
    return rules


def _settings(source: Source) -> Mapping[str, Any]:
    """The arguments of the ELMo in the training's configuration; empty unless there is exactly one ELMo."""
    rest: list[Any] = [read_options(source.files["config.json"])] if "config.json" in source.files else []
    found = []
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if "options_file" in value or value.get("type") == "elmo_token_embedder":
                found.append(value)
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return found[0] if len(found) == 1 else {}


def _archived_options(source: Source, setting: Mapping[str, Any]) -> Path:
    archived = [path for name, path in sorted(source.files.items()) if fnmatch(name, "fta/*options_file*")]
    is_one = len({path.read_bytes() for path in archived}) == 1
    advice = f"The weights lack clips and activation: give `--options FILE` ({setting.get('options_file')!r:.200})."
    require(is_one, source.path, "", "an archive with one options file of ELMo", f"{len(archived)} of them", advice)
    return archived[0]


def _join_mixes(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Joins the L+1 arrays `scalar_mix_{m}.scalar_parameters.{k}`, of one number each, in the order of the layers."""
    joined = {name: array for name, array in arrays.items() if ".scalar_parameters." not in name}
    for name in arrays:
        mix, dot, layer = name.partition(".scalar_parameters.")
        if dot and layer == "0":
            names = takewhile(arrays.__contains__, (f"{mix}{dot}{k}" for k in count()))
            joined[f"{mix}.scalar_parameters"] = np.concatenate([arrays[each].reshape(-1) for each in names])
    return joined


def _modules(names: Iterable[str]) -> str:
    """The number of arrays of each module."""
    counts = Counter(name.rpartition(".")[0] or name for name in names)
    return listed(f"{module} ({count})" for module, count in counts.items())
