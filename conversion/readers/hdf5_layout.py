"""The tables of AllenNLP's and bilm-tf's checkpoints, `options.json` with `weights.hdf5`.

`LSTM_OPTIONS`, `CHAR_CNN_OPTIONS` and `SOFTMAX_OPTIONS` pair keys of the options with fields of `ElmoConfig`.
`allennlp_rules` pairs arrays of the hdf5 file with tensors of `ElmoModel`; `language_model_rules` adds the softmax, for
`ElmoForPreTraining`. The arrays have TensorFlow's layout: y = x W, gates i, j, f, o, and a forget bias without the 1
that TensorFlow adds at run time (`ElmoConfig.forget_bias` adds it here).

Glossary: d character embedding, n filters in total, P projection, C cell, k layer, V words of the softmax; `RNN_0`
reads forward, `RNN_1` backward.

The tables also cover files that bilm-tf writes and AllenNLP cannot read: one layer without the `MultiRNNCell` level,
cells and CNNs without projection, word input, and models of one direction (`"bidirectional": false`). For the last,
bilm-tf's export has `rnn` in place of `RNN_d/RNN`, and TensorFlow's names for a cell's arrays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmo_hf.public import ElmoConfig

from ..options import Option, clip_to_config, make_config
from ..refusals import ConversionError, listed
from ..rules import DROP_LEADING_AXIS, PREPEND_ZERO_ROW, SPLIT_ROWS, SWAP_MIDDLE_GATES, TRANSPOSE, Rule, num_rows

NUM_CHARACTERS = 261
FORGET_BIAS = 1.0
SOFTMAX_MATRIX = "softmax/W"
SOFTMAX_BIAS = "softmax/b"


class Cells(NamedTuple):
    """The names of a biLM's cells: the prefix of each direction with our name for it, then a cell's three arrays."""

    directions: dict[str, str]
    kernel: str
    bias: str
    projection: str


TWO_DIRECTIONS = Cells({"RNN_0/RNN": "forward_lstm", "RNN_1/RNN": "backward_lstm"}, "W_0", "B", "W_P_0")
ONE_DIRECTION = Cells({"rnn": "forward_lstm"}, "kernel", "bias", "projection/kernel")


def highways_to_config(value: Any) -> Any:
    """Maps the number of highways to that of the config; null stands for none."""
    return 0 if value is None else value


def dropout_to_config(value: Any) -> Any:
    """Maps the dropout to that of the config; null stands for none."""
    return 0.0 if value is None else value


def sampling_to_config(value: Any) -> Any:
    """Maps whether the softmax is sampled to the config's kind of softmax."""
    if value is True:
        return "sampled"
    if not value:
        return "full"
    return value


LSTM_OPTIONS: tuple[Option, ...] = (
    Option(("lstm", "projection_dim"), "projection_size"),
    Option(("lstm", "dim"), "cell_size"),
    Option(("lstm", "n_layers"), "num_hidden_layers", default=1),
    Option(("lstm", "cell_clip"), "cell_clip", default=None, to_config=clip_to_config),
    Option(("lstm", "proj_clip"), "projection_clip", default=None, to_config=clip_to_config),
    Option(("lstm", "use_skip_connections"), "use_skip_connections", default=False),
)
CHAR_CNN_OPTIONS: tuple[Option, ...] = (
    Option(("char_cnn", "embedding", "dim"), "char_embedding_size"),
    Option(("char_cnn", "filters"), "char_filters"),
    Option(("char_cnn", "n_highway"), "num_highway_layers", default=0, to_config=highways_to_config),
    Option(("char_cnn", "activation"), "char_activation"),
    Option(("char_cnn", "max_characters_per_token"), "max_word_length", default=50),
)
# Settings of the training. Files for inference lack these keys, and the config's defaults apply.
SOFTMAX_OPTIONS: tuple[Option, ...] = (
    Option(("n_tokens_vocab",), "num_softmax_words"),
    Option(("dropout",), "lm_dropout", to_config=dropout_to_config),
    Option(
        ("sample_softmax",),
        "softmax",
        to_config=sampling_to_config,
        from_config=lambda value: value == "sampled",
    ),
    Option(("n_negative_samples_batch",), "num_softmax_samples"),
    Option(("share_embedding_softmax",), "share_embedding_softmax"),
)
# The number of ids in the *caller's* software (261 in training, 262 for inference); the arrays have the true number.
IGNORED_OPTIONS = {("char_cnn", "n_characters")}


def config_from_options(
    options: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], where: str | Path = "options.json"
) -> ElmoConfig:
    """Reads the architecture from the options and, where they leave it open, from the arrays' shapes.

    All keys except `lstm` and `char_cnn` are training settings and are ignored; if the arrays include a softmax, its
    keys are read too.

    Args:
        options: the parsed options file.
        shapes: shape of each array, the softmax's included.
        where: the options file, for messages.
    """
    has_characters = "char_cnn" in options
    known = LSTM_OPTIONS
    if has_characters:
        known += CHAR_CNN_OPTIONS
    _refuse_unknown_options(options, known, where)
    fields = _fields_from_shapes(shapes, has_characters, where)
    if not has_softmax(shapes):
        return make_config(options, known, where, forget_bias=FORGET_BIAS, **fields)
    # If the options lack the number of words, it is read from the arrays; bilm-tf samples by default.
    array = SOFTMAX_BIAS if SOFTMAX_BIAS in shapes else SOFTMAX_MATRIX
    num_words = num_rows(shapes[array])
    fields["num_softmax_words"] = num_words
    if "n_negative_samples_batch" in options:
        fields["softmax"] = "sampled"
    known += tuple(option for option in SOFTMAX_OPTIONS if option.path[0] in options)
    config = make_config(options, known, where, forget_bias=FORGET_BIAS, **fields)
    if config.num_softmax_words != num_words:
        raise ConversionError(
            f"{where}: `n_tokens_vocab` must be {num_words}, the number of rows of the array `{array}`, but is "
            f"{config.num_softmax_words}. Check that the options file belongs to these weights."
        )
    return config


def fields_for_training(options: Mapping[str, Any], where: str | Path) -> dict[str, Any]:
    """The fields of `ElmoConfig` for a new model with an options file's architecture and softmax.

    The options of a training have `n_tokens_vocab`. bilm-tf's training has one direction and samples the softmax unless
    they say otherwise; where options for inference say nothing, the config's defaults apply. The number of words is
    left out, because the vocabulary decides it.

    Args:
        options: the parsed options file.
        where: the options file, for messages.

    Raises:
        ConversionError: if an option is missing, unknown or illegal.
    """
    table = LSTM_OPTIONS
    fields: dict[str, Any] = {"token_encoder": "word_embedding"}
    if "char_cnn" in options:
        table += CHAR_CNN_OPTIONS
        fields["token_encoder"] = "char_cnn"
    _refuse_unknown_options(options, table, where)
    if "n_tokens_vocab" in options:
        fields["bidirectional"] = options.get("bidirectional", False)
        fields["softmax"] = "sampled"
    for option in SOFTMAX_OPTIONS:
        if option.path[0] in options and option.field != "num_softmax_words":
            table += (option,)
    config = make_config(options, table, where, **fields)
    for option in table:
        fields[option.field] = getattr(config, option.field)
    return fields


def _fields_from_shapes(
    shapes: Mapping[str, tuple[int, ...]], has_characters: bool, where: str | Path
) -> dict[str, Any]:
    """The fields of `ElmoConfig` that the arrays decide."""
    table = "char_embed" if has_characters else "embedding"
    if not shapes.get(table):
        raise ConversionError(
            f"{where} describes a model whose weights have the table `{table}`, but these weights have "
            f"{listed(sorted(shapes))}. Check that the options file belongs to these weights."
        )
    table_rows = num_rows(shapes[table])
    if has_characters and table_rows < NUM_CHARACTERS:
        raise ConversionError(
            f"{where}: the table `{table}` of the weights must have {NUM_CHARACTERS} rows, one for each character, but "
            f"has {table_rows}. Get the file of weights again."
        )
    projections = tuple(f"LSTMCell/{cells.projection}" for cells in (TWO_DIRECTIONS, ONE_DIRECTION))
    fields: dict[str, Any] = {
        "token_encoder": "char_cnn" if has_characters else "word_embedding",
        "vocab_size": table_rows + 1,
        "bidirectional": not any(name.startswith("rnn/") for name in shapes),
        "cell_projection": any(name.endswith(projections) for name in shapes),
    }
    if has_characters:
        fields["char_projection"] = "CNN_proj/W_proj" in shapes
    return fields


def has_softmax(names: Iterable[str]) -> bool:
    """Whether a checkpoint with arrays of these names has language models on top of its biLM."""
    return not {SOFTMAX_MATRIX, SOFTMAX_BIAS}.isdisjoint(names)


def options_from_config(config: ElmoConfig, with_softmax: bool = False) -> dict[str, Any]:
    """Writes the options that AllenNLP, bilm-tf and simple_elmo read for inference.

    Args:
        config: the architecture.
        with_softmax: whether to write the keys of `SOFTMAX_OPTIONS` too.

    Raises:
        ConversionError: if the format cannot express the config.
    """
    if config.alphabet != "bytes" or config.word_embedding_size is not None:
        raise ConversionError(
            "AllenNLP's and bilm-tf's format holds models that read bytes, or words from a table as wide as their "
            f"layers; this one has `alphabet` {config.alphabet!r}, `word_embedding_size` {config.word_embedding_size}."
        )
    has_characters = config.token_encoder == "char_cnn"
    table = LSTM_OPTIONS
    if has_characters:
        table += CHAR_CNN_OPTIONS
    if with_softmax:
        table += SOFTMAX_OPTIONS
    options: dict[str, Any] = {}
    for option in table:
        *sections, key = option.path
        section = options
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = option.from_config(getattr(config, option.field))
    if has_characters:
        options["char_cnn"]["n_characters"] = config.vocab_size
    if not config.bidirectional:
        options["bidirectional"] = False
    return options


def allennlp_rules(config: ElmoConfig, names: Iterable[str] = ()) -> list[Rule]:
    """The table of one architecture.

    Args:
        config: the architecture.
        names: the names of the file's arrays, which show bilm-tf's one-layer form; empty for the form that is written.
    """
    has_characters = config.token_encoder == "char_cnn"
    rules = _char_cnn_rules(config) if has_characters else [_table_rule("embedding", config)]
    size, cell = config.projection_size, config.cell_size
    cells = TWO_DIRECTIONS if config.bidirectional else ONE_DIRECTION
    lacks_level = config.num_hidden_layers == 1 and _lacks_level_of_layers(config, cells, names)
    for direction, ours in cells.directions.items():
        for layer in range(config.num_hidden_layers):
            theirs = f"{direction}/LSTMCell" if lacks_level else f"{direction}/MultiRNNCell/Cell{layer}/LSTMCell"
            lstm = f"bilm.layers.{layer}.{ours}"
            kernels = (f"{lstm}.input_linear.weight", f"{lstm}.recurrent_linear.weight")
            split = (SWAP_MIDDLE_GATES, SPLIT_ROWS, TRANSPOSE)
            rules += [
                Rule(f"{theirs}/{cells.kernel}", (2 * size, 4 * cell), kernels, split),
                Rule(f"{theirs}/{cells.bias}", (4 * cell,), (f"{lstm}.input_linear.bias",), (SWAP_MIDDLE_GATES,)),
            ]
            if config.cell_projection:
                ours_projection = (f"{lstm}.projection.weight",)
                rules.append(Rule(f"{theirs}/{cells.projection}", (cell, size), ours_projection, (TRANSPOSE,)))
    return rules


def _lacks_level_of_layers(config: ElmoConfig, cells: Cells, names: Iterable[str]) -> bool:
    """Whether names of a one-layer model lack the level `MultiRNNCell`; without names, whether they are written so."""
    prefixes = {name.partition("/LSTMCell/")[0] for name in names}
    if not prefixes:
        return not config.bidirectional  # only bilm-tf writes files of one direction, so they have its form
    return any(direction in prefixes for direction in cells.directions)


def language_model_rules(config: ElmoConfig, names: Iterable[str] = ()) -> list[Rule]:
    """The table of one architecture with its softmax; arguments as in `allennlp_rules`.

    A softmax that shares the word embedding has no matrix of its own in the file.
    """
    rules = []
    for rule in allennlp_rules(config, names):
        targets = tuple(f"elmo.{target}" for target in rule.targets)
        rules.append(replace(rule, targets=targets))
    num_words = config.num_softmax_words
    assert num_words is not None
    if not config.share_embedding_softmax:
        rules.append(Rule(SOFTMAX_MATRIX, (num_words, config.projection_size), ("softmax.weight",)))
    return rules + [Rule(SOFTMAX_BIAS, (num_words,), ("softmax.bias",))]


def with_forget_bias(arrays: dict[str, np.ndarray], difference: float) -> dict[str, np.ndarray]:
    """Adds `difference` to the forget gate's biases, because software that reads this format always adds 1.

    The biases of a biLM that torch trained or fine-tuned include the 1 already.
    """
    if difference == 0:
        return arrays
    shifted = dict(arrays)
    for name in arrays:
        if name.endswith(("/LSTMCell/B", "/LSTMCell/bias")):
            input_gate, candidate, forget_gate, output_gate = np.split(arrays[name], 4)
            forget_gate = forget_gate + np.float32(difference)
            shifted[name] = np.concatenate([input_gate, candidate, forget_gate, output_gate])
    return shifted


def _char_cnn_rules(config: ElmoConfig) -> list[Rule]:
    d, n = config.char_embedding_size, config.num_filters
    rules = [_table_rule("char_embed", config)]
    for index, (width, count) in enumerate(config.char_filters):
        ours = f"token_encoder.convolutions.{index}"
        rules += [
            Rule(f"CNN/W_cnn_{index}", (1, width, d, count), (f"{ours}.weight",), (DROP_LEADING_AXIS, TRANSPOSE)),
            Rule(f"CNN/b_cnn_{index}", (count,), (f"{ours}.bias",)),
        ]
    for index in range(config.num_highway_layers):
        for theirs, name in (("carry", "gate"), ("transform", "transform")):
            ours = f"token_encoder.highways.{index}.{name}"
            rules += [
                Rule(f"CNN_high_{index}/W_{theirs}", (n, n), (f"{ours}.weight",), (TRANSPOSE,)),
                Rule(f"CNN_high_{index}/b_{theirs}", (n,), (f"{ours}.bias",)),
            ]
    if config.char_projection:
        size, ours = config.projection_size, "token_encoder.projection"
        rules += [
            Rule("CNN_proj/W_proj", (n, size), (f"{ours}.weight",), (TRANSPOSE,)),
            Rule("CNN_proj/b_proj", (size,), (f"{ours}.bias",)),
        ]
    return rules


def _table_rule(name: str, config: ElmoConfig) -> Rule:
    """The rule of the character or word table, which has no vector for padding in the file."""
    width = config.char_embedding_size if name == "char_embed" else config.projection_size
    return Rule(name, (config.vocab_size - 1, width), ("token_encoder.embedding.weight",), (PREPEND_ZERO_ROW,))


def _refuse_unknown_options(options: Mapping[str, Any], known: Iterable[Option], where: object) -> None:
    """Checks that every key of the architecture is known, because an unknown key may change the model."""
    paths = {option.path for option in known} | IGNORED_OPTIONS
    for section in ("lstm", "char_cnn"):
        known_keys = sorted({path[1] for path in paths if path[0] == section})
        value = options.get(section)
        if not isinstance(value, Mapping):
            continue
        unknown_keys = sorted(value.keys() - known_keys)
        if unknown_keys:
            raise ConversionError(
                f"{where}: `{section}` may have the keys {', '.join(known_keys)}, but also has {listed(unknown_keys)}, "
                "which may change the model in a way that is not known here."
            )
