"""ELMoForManyLangs' folders (HIT-SCIR, 44 languages): a config, two lexicons, two torch state dicts.

A linear layer maps a word's entry in a word table, the features of its character CNN, or both, to the word's vector;
characters are code points. `word_dim` or `char_dim` is 0 if that part is absent. The layout is torch's
(`torch_layout.py`).

`config.json` names the file with the architecture by its path on the machine that trained the model. Only the file name
counts: the file is in the folder or, for most published models, in their package (`PACKAGED`).

Deliberate difference from their reader: lines of the lexicons end at a line feed and are not stripped, so different
white-space symbols stay different.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.tokenizer.code_point_symbols import name_symbols
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer

from ..checkpoint import Checkpoint, Given
from ..errors import ConversionError, quoted
from ..files import read_json, read_lines
from ..limits import MAX_LAYERS
from ..options import (
    ACTIVATION,
    CLIP,
    FILTERS,
    LAYERS,
    SIZE,
    WORD_LENGTH,
    Option,
    clip_to_config,
    make_config,
    read_fields,
    whole,
)
from ..rules import PrependZeroRow, Rule, import_arrays
from ..sources import Source
from ..witness.reference_torch import ReferenceManyLangs
from .state_dicts import read_state_dict
from .torch_layout import cnn_rules, lstm_rules, projection_rules

ENCODER_OPTIONS = (
    Option(("encoder", "projection_dim"), "projection_size", SIZE),
    Option(("encoder", "dim"), "cell_size", SIZE),
    Option(("encoder", "n_layers"), "num_hidden_layers", LAYERS),
    Option(("encoder", "cell_clip"), "cell_clip", CLIP, to_config=clip_to_config),
    Option(("encoder", "proj_clip"), "projection_clip", CLIP, to_config=clip_to_config),
    Option(("token_embedder", "max_characters_per_token"), "max_word_length", WORD_LENGTH),
)
CHARACTER_OPTIONS = (
    Option(("token_embedder", "char_dim"), "char_embedding_size", SIZE),
    Option(("token_embedder", "filters"), "char_filters", FILTERS),
    Option(("token_embedder", "n_highway"), "num_highway_layers", whole(0, MAX_LAYERS)),
    Option(("token_embedder", "activation"), "char_activation", ACTIVATION),
)
WORD_OPTION = Option(("token_embedder", "word_dim"), "word_embedding_size", SIZE)

# From `elmoformanylangs/configs` at commit b3de5f1, where both files have the same content.
_PACKAGED = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}
PACKAGED = {name: _PACKAGED for name in ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")}
NAMES = {("encoder", "elmo"): "a biLM with projections", ("token_embedder", "cnn"): "a character CNN"}

# `LstmbiLm` of their `modules/lstm.py`; no published model has one.
LSTM_ENCODER = (
    ", torch's bidirectional LSTM, whose directions meet after the first layer and read padding: it is a language "
    "model of neither one direction nor two, and gives no layers to mix."
)

CHARACTERS, WORDS = "char_emb_layer.embedding.weight", "word_emb_layer.embedding.weight"


def read_manylangs(source: Source, given: Given) -> Checkpoint:
    """Reads a folder or an archive.

    Raises:
        ConversionError: if it is incomplete or damaged, or its architecture is not an ELMo's.
    """
    options, where = _read_options(source)
    token = read_state_dict(_file(source, "token_embedder.pkl"))
    encoder = read_state_dict(_file(source, "encoder.pkl"))
    characters = _lexicon(source, "char.dic", token, CHARACTERS) if _dim(options, "char_dim", where) > 0 else {}
    words = _lexicon(source, "word.dic", token, WORDS) if _dim(options, "word_dim", where) > 0 else {}
    num_characters = len(token[CHARACTERS]) if characters else 0
    symbols = name_symbols(characters, words, num_characters)
    config = _config(options, where, symbols, token, encoder)
    arrays = {f"token_embedder.{name}": array for name, array in token.items()}
    arrays |= {f"encoder.{name}": array for name, array in encoder.items()}
    try:
        tokenizer = ElmoTokenizer(
            config.token_encoder,
            config.max_word_length,
            given.word_splitter or "whitespace",
            alphabet="code_points",
            vocab=symbols,
        )
    except ValueError as error:
        raise ConversionError(f"the lexicons char.dic and word.dic of {source.path}: {error}") from error
    used = ["token_embedder.pkl", "encoder.pkl", *["char.dic"] * bool(characters), *["word.dic"] * bool(words)]
    softmax = ("classifier.pkl, the language model's softmax, is not carried.",) * ("classifier.pkl" in source.files)
    return Checkpoint(
        config,
        import_arrays(manylangs_rules(config), arrays, str(source.path)),
        tokenizer,
        source.to_digest(*(source.files[name] for name in used)),
        partial(ReferenceManyLangs, options, token, encoder, characters, words),
        softmax,
    )


def manylangs_rules(config: ElmoConfig) -> list[Rule]:
    """The table of one architecture; a foreign name is the file's name, a dot, and the name in its state dict."""
    has_characters = config.token_encoder == "char_cnn"
    rules, num_features = [], config.word_embedding_size or 0
    if has_characters:
        num_features += config.num_filters
        table = "token_encoder.embedding.weight"
        shape = (config.num_characters, config.char_embedding_size)
        rules.append(Rule(f"token_embedder.{CHARACTERS}", shape, (table,), (PrependZeroRow(),)))
        rules += cnn_rules(config, "token_embedder.convolutions.", "token_embedder.highways._layers.")
    if config.word_embedding_size is not None:
        table = f"token_encoder.{'word_embedding' if has_characters else 'embedding'}.weight"
        num_words = config.num_input_words if has_characters else config.vocab_size - 1
        shape = (num_words, config.word_embedding_size)
        rules.append(Rule(f"token_embedder.{WORDS}", shape, (table,), (PrependZeroRow(),)))
    rules += projection_rules("token_embedder.projection", num_features, config.projection_size)
    return rules + lstm_rules(config, "encoder.")


def _read_options(source: Source) -> tuple[dict[str, Any], str]:
    """Returns the architecture and the name of the file that holds it."""
    path = _file(source, "config.json")
    training = read_json(path)
    if not isinstance(training, dict) or not isinstance(training.get("config_path"), str):
        raise ConversionError(f"{path} must name the file with the architecture as `config_path`.")
    name = PurePosixPath(training["config_path"].replace("\\", "/")).name
    if name in source.files:
        options, where = read_json(source.files[name]), str(source.files[name])
    elif name in PACKAGED:
        options, where = PACKAGED[name], f"{name} of ELMoForManyLangs"
    else:
        raise ConversionError(
            f"{path} names the architecture {quoted(name)}, which is not in {source.path}. Put that file beside it; "
            f"only {' and '.join(PACKAGED)} are not needed."
        )
    for (section, legal), meaning in NAMES.items():
        part = options.get(section) if isinstance(options, dict) else None
        found = part.get("name") if isinstance(part, dict) else None
        if found != legal:
            why = LSTM_ENCODER if (section, found) == ("encoder", "lstm") else "."
            raise ConversionError(f"{where}: `{section}.name` must be {legal!r}, {meaning}, found {quoted(found)}{why}")
    return options, where


def _config(
    options: Mapping[str, Any],
    where: str,
    symbols: Mapping[str, int],
    token: Mapping[str, np.ndarray],
    encoder: Mapping[str, np.ndarray],
) -> ElmoConfig:
    has_characters, has_words = _dim(options, "char_dim", where) > 0, _dim(options, "word_dim", where) > 0
    if not has_characters and not has_words:
        raise ConversionError(f"{where}: `char_dim` and `word_dim` are both 0, so nothing is read.")
    table = ENCODER_OPTIONS + CHARACTER_OPTIONS * has_characters + (WORD_OPTION,) * has_words
    num_words = len(token[WORDS]) if has_words else 0
    return make_config(
        where,
        len(token) + len(encoder),
        token_encoder="char_cnn" if has_characters else "word_embedding",
        alphabet="code_points",
        vocab_size=1 + num_words + (len(token[CHARACTERS]) if has_characters else 0),
        num_input_words=num_words if has_characters else 0,
        char_projection=True,
        cell_projection=True,
        use_skip_connections=True,
        forget_bias=0.0,
        bos_token_id=symbols.get("<bos>", 0),
        eos_token_id=symbols.get("<eos>", 0),
        **read_fields(options, table, where),
    )


def _dim(options: Mapping[str, Any], name: str, where: str) -> int:
    value = options["token_embedder"].get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConversionError(
            f"{where}: `token_embedder.{name}` must be a whole number, 0 for none, found {quoted(value)}."
        )
    return value


def _lexicon(source: Source, name: str, token: Mapping[str, np.ndarray], table: str) -> dict[str, int]:
    """Reads lines `symbol TAB row`: each symbol's index in the table."""
    path = _file(source, name)
    if table not in token or token[table].ndim != 2:
        raise ConversionError(f"{source.path} has {name}, but `{table}` is no table in token_embedder.pkl.")
    num_rows, rows = len(token[table]), {}
    symbols: dict[int, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        symbol, tab, row = line.removesuffix("\r").rpartition("\t")
        if not tab or not row.isdecimal() or len(row) > 9 or int(row) >= num_rows:
            raise ConversionError(
                f"{path}, line {number}: must be a symbol, a tab and a row below {num_rows}, found {line[:80]!r}."
            )
        other = symbols.setdefault(int(row), symbol)
        if other != symbol:
            raise ConversionError(f"{path}, line {number}: row {row} is that of {quoted(other)} already.")
        rows[symbol] = int(row)
    if "<oov>" not in rows:
        raise ConversionError(f"{path} lacks `<oov>`, the symbol for everything that is not in it.")
    return rows


def _file(source: Source, name: str) -> Path:
    if name not in source.files:
        raise ConversionError(f"{source.path} lacks {name}, which every ELMoForManyLangs model needs.")
    return source.files[name]
