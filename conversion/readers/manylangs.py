"""ELMoForManyLangs' folders (HIT-SCIR, 44 languages): a config, two lexicons, two torch state dicts.

A linear layer maps a word's entry in a word table, the features of its character CNN, or both, to the word's vector;
characters are code points. `word_dim` or `char_dim` is 0 if that part is absent. The layout is torch's
(`torch_layout.py`).

`config.json` has the path of the file with the architecture on the machine that trained the model. Only its file name
is used: the file is in the folder or, for most published models, in ELMoForManyLangs' package (`PACKAGED`).

Deliberate difference from their reader: lines of the lexicons end at a line feed and are not stripped, so two symbols
that are white space stay different.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from elmo_hf.model.configuration_elmo import PADDING_ID
from elmo_hf.model.tokenization_elmo import BOS, CHARACTER_PREFIX, EOS, PADDING, WORD_PREFIX
from elmo_hf.public import ElmoConfig, ElmoTokenizer

from ..contract import Checkpoint, NamedFiles
from ..options import Option, clip_to_config, make_config, read_options
from ..refusals import ConversionError, listed, naming_file, shortened
from ..rules import PREPEND_ZERO_ROW, Rule, import_arrays, num_rows
from ..sources import Source, by_name
from ..witness.reference_torch import ReferenceManyLangs
from .torch_files import read_state_dict
from .torch_layout import cnn_rules, lstm_rules, projection_rules

ENCODER_OPTIONS: tuple[Option, ...] = (
    Option(("encoder", "projection_dim"), "projection_size"),
    Option(("encoder", "dim"), "cell_size"),
    Option(("encoder", "n_layers"), "num_hidden_layers"),
    Option(("encoder", "cell_clip"), "cell_clip", to_config=clip_to_config),
    Option(("encoder", "proj_clip"), "projection_clip", to_config=clip_to_config),
    Option(("token_embedder", "max_characters_per_token"), "max_word_length"),
)
CHARACTER_OPTIONS: tuple[Option, ...] = (
    Option(("token_embedder", "char_dim"), "char_embedding_size"),
    Option(("token_embedder", "filters"), "char_filters"),
    Option(("token_embedder", "n_highway"), "num_highway_layers"),
    Option(("token_embedder", "activation"), "char_activation"),
)
WORD_OPTION = Option(("token_embedder", "word_dim"), "word_embedding_size")

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
# Their `encoder.name` may be "lstm": torch's bidirectional LSTM, whose directions are joined after each layer.
KINDS = {"encoder": "elmo", "token_embedder": "cnn"}

CHARACTER_TABLE = "char_emb_layer.embedding.weight"
WORD_TABLE = "word_emb_layer.embedding.weight"


def name_symbols(characters: Mapping[str, int], words: Mapping[str, int], num_characters: int) -> dict[str, int]:
    """Builds a tokenizer's vocabulary, ids by name.

    `characters` and `words` have the index in the model's table, from 0; they are empty if the model lacks the table.
    """
    symbols = {WORD_PREFIX + word: 1 + num_characters + index for word, index in words.items()}
    symbols |= {CHARACTER_PREFIX + character: 1 + index for character, index in characters.items()}
    prefix = CHARACTER_PREFIX if characters else WORD_PREFIX
    for mark in (BOS, EOS):
        if prefix + mark in symbols:
            symbols[mark] = symbols.pop(prefix + mark)
    symbols[PADDING] = PADDING_ID
    return symbols


def read_manylangs(source: Source, named_files: NamedFiles, word_splitter: str | None) -> Checkpoint:
    """Reads a folder or an archive; no other files are used."""
    options, where = _architecture(source)
    token_path = _file(source, "token_embedder.pkl")
    encoder_path = _file(source, "encoder.pkl")
    token = read_state_dict(token_path)
    encoder = read_state_dict(encoder_path)
    paths = [token_path, encoder_path]
    table = ENCODER_OPTIONS
    characters: dict[str, int] = {}
    words: dict[str, int] = {}
    has_characters = bool(options["token_embedder"].get("char_dim"))
    has_words = bool(options["token_embedder"].get("word_dim"))
    if not has_characters and not has_words:
        raise ConversionError(
            f"{where} must have a `char_dim` or a `word_dim` above 0 in `token_embedder`, found neither, so the model "
            "would read neither char.dic nor word.dic; get the file again from the model's archive."
        )
    if has_characters:
        table += CHARACTER_OPTIONS
        characters = _lexicon(source, "char.dic", token, CHARACTER_TABLE)
        paths.append(source.files["char.dic"])
    if has_words:
        table += (WORD_OPTION,)
        words = _lexicon(source, "word.dic", token, WORD_TABLE)
        paths.append(source.files["word.dic"])
    num_characters = len(token[CHARACTER_TABLE]) if characters else 0
    num_words = len(token[WORD_TABLE]) if words else 0
    symbols = name_symbols(characters, words, num_characters)
    config = make_config(
        options,
        table,
        where,
        token_encoder="char_cnn" if has_characters else "word_embedding",
        alphabet="code_points",
        vocab_size=1 + num_words + num_characters,
        num_input_words=num_words if has_characters else 0,
        char_projection=True,
        cell_projection=True,
        use_skip_connections=True,
        forget_bias=0.0,
        bos_token_id=symbols.get("<bos>", 0),
        eos_token_id=symbols.get("<eos>", 0),
    )
    with naming_file(f"the lexicons char.dic and word.dic of {source.path}"):
        tokenizer = ElmoTokenizer(
            config.token_encoder,
            config.max_word_length,
            word_splitter or "whitespace",
            alphabet="code_points",
            vocab=symbols,
        )
    arrays = {f"token_embedder.{name}": array for name, array in token.items()}
    arrays |= {f"encoder.{name}": array for name, array in encoder.items()}
    notes = []
    if "classifier.pkl" in source.files:
        notes.append("classifier.pkl, the language model's softmax, is left out.")
    return Checkpoint(
        config,
        import_arrays(manylangs_rules(config), arrays, str(source.path)),
        tokenizer,
        by_name(*paths),
        partial(ReferenceManyLangs, options, token, encoder, characters, words),
        tuple(notes),
    )


def manylangs_rules(config: ElmoConfig) -> list[Rule]:
    """The table of one architecture; a foreign name is the file's name, a dot, and the name in its state dict."""
    has_characters = config.token_encoder == "char_cnn"
    rules = []
    num_features = 0
    if has_characters:
        num_features += config.num_filters
        table = "token_encoder.embedding.weight"
        shape = (config.num_characters, config.char_embedding_size)
        rules.append(Rule(f"token_embedder.{CHARACTER_TABLE}", shape, (table,), (PREPEND_ZERO_ROW,)))
        rules += cnn_rules(config, "token_embedder.convolutions.", "token_embedder.highways._layers.")
    if config.word_embedding_size is not None:
        num_features += config.word_embedding_size
        table = "token_encoder.word_embedding.weight" if has_characters else "token_encoder.embedding.weight"
        num_words = config.num_input_words if has_characters else config.vocab_size - 1
        shape = (num_words, config.word_embedding_size)
        rules.append(Rule(f"token_embedder.{WORD_TABLE}", shape, (table,), (PREPEND_ZERO_ROW,)))
    rules += projection_rules("token_embedder.projection", num_features, config.projection_size)
    return rules + lstm_rules(config, "encoder.")


def _architecture(source: Source) -> tuple[dict[str, Any], Path]:
    """Returns the architecture and the name of the file that holds it."""
    path = _file(source, "config.json")
    config_path = read_options(path).get("config_path")
    name = PurePosixPath(str(config_path).replace("\\", "/")).name
    if name in source.files:
        where = source.files[name]
        options = read_options(where)
    elif name in PACKAGED:
        where = path
        options = PACKAGED[name]
    else:
        raise ConversionError(
            f"{path}: `config_path` must name a file in the folder, or {' or '.join(PACKAGED)}, but is "
            f"{shortened(repr(config_path))}. Copy the file of that name from where the model was trained."
        )
    for section, kind in KINDS.items():
        part = options.get(section)
        if not isinstance(part, dict):
            raise ConversionError(f"{where}: `{section}` must be an object, but is {shortened(repr(part))}.")
        if part.get("name") != kind:
            raise ConversionError(
                f"{where}: `{section}.name` must be {kind!r}, as of every ELMo, but is "
                f"{shortened(repr(part.get('name')))}; models of other kinds cannot be converted."
            )
    return options, where


def _lexicon(source: Source, name: str, token: Mapping[str, np.ndarray], table: str) -> dict[str, int]:
    """Reads lines `symbol TAB row`: each symbol's index in the table."""
    path = _file(source, name)
    table_rows = num_rows(token[table].shape) if table in token else 0
    rows: dict[str, int] = {}
    with naming_file(path):
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=1):
            symbol, _, row = line.removesuffix("\r").rpartition("\t")
            is_row = "\t" in line and row.isdecimal() and int(row) < table_rows
            if not is_row:
                raise ConversionError(
                    f"{path}: line {number} must be a symbol, a tab and a row below {table_rows}, but is "
                    f"{shortened(repr(line))}."
                )
            rows[symbol] = int(row)
    if len(set(rows.values())) != len(rows):
        raise ConversionError(f"{path} must have a row of its own for each symbol, but has one row twice.")
    if "<oov>" not in rows:
        raise ConversionError(
            f"{path} must have a line for `<oov>`, which stands for all symbols that are not listed, but has none."
        )
    return rows


def _file(source: Source, name: str) -> Path:
    if name not in source.files:
        raise ConversionError(
            f"{source.path} must have the file {name}, as every ELMoForManyLangs model, but has "
            f"{listed(sorted(source.files))}. Copy the missing file into the folder."
        )
    return source.files[name]
