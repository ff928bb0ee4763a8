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

from elmo_hf.model.configuration_elmo import PADDING_ID, ElmoConfig
from elmo_hf.model.tokenization_elmo import BOS, CHARACTER, EOS, PADDING, WORD, ElmoTokenizer

from ..contract import Checkpoint, Given
from ..options import Option, clip_to_config, make_config, read_options
from ..refusals import listed, reading, require
from ..rules import PREPEND_ZERO_ROW, Rule, import_arrays
from ..sources import Source
from ..witness.reference_torch import ReferenceManyLangs
from .torch_files import read_state_dict
from .torch_layout import cnn_rules, lstm_rules, projection_rules

ENCODER_OPTIONS = (
    Option(("encoder", "projection_dim"), "projection_size"),
    Option(("encoder", "dim"), "cell_size"),
    Option(("encoder", "n_layers"), "num_hidden_layers"),
    Option(("encoder", "cell_clip"), "cell_clip", to_config=clip_to_config),
    Option(("encoder", "proj_clip"), "projection_clip", to_config=clip_to_config),
    Option(("token_embedder", "max_characters_per_token"), "max_word_length"),
)
CHARACTER_OPTIONS = (
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
NAMES = {"encoder": "elmo", "token_embedder": "cnn"}

CHARACTERS, WORDS = "char_emb_layer.embedding.weight", "word_emb_layer.embedding.weight"


def name_symbols(characters: Mapping[str, int], words: Mapping[str, int], num_characters: int) -> dict[str, int]:
    """Builds a tokenizer's vocabulary, ids by name.

    `characters` and `words` have the index in the model's table, from 0; they are empty if the model lacks the table.
    """
    symbols = {WORD + word: 1 + num_characters + index for word, index in words.items()}
    symbols |= {CHARACTER + character: 1 + index for character, index in characters.items()}
    prefix = CHARACTER if characters else WORD
    marks = {mark: symbols.pop(prefix + mark) for mark in (BOS, EOS) if prefix + mark in symbols}
    return symbols | marks | {PADDING: PADDING_ID}


def read_manylangs(source: Source, given: Given) -> Checkpoint:
    """Reads a folder or an archive."""
    options, where = _architecture(source)
    token = read_state_dict(_file(source, "token_embedder.pkl"))
    encoder = read_state_dict(_file(source, "encoder.pkl"))
    has_characters, has_words = (bool(options["token_embedder"].get(f"{part}_dim")) for part in ("char", "word"))
    characters = _lexicon(source, "char.dic", token, CHARACTERS) if has_characters else {}
    words = _lexicon(source, "word.dic", token, WORDS) if has_words else {}
    num_characters, num_words = len(token[CHARACTERS]) if characters else 0, len(token[WORDS]) if words else 0
    symbols = name_symbols(characters, words, num_characters)
    config = make_config(
        options,
        ENCODER_OPTIONS + CHARACTER_OPTIONS * has_characters + (WORD_OPTION,) * has_words,
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
    arrays = {f"token_embedder.{name}": array for name, array in token.items()}
    arrays |= {f"encoder.{name}": array for name, array in encoder.items()}
    used = ["token_embedder.pkl", "encoder.pkl", *["char.dic"] * has_characters, *["word.dic"] * has_words]
    with reading(f"the lexicons char.dic and word.dic of {source.path}"):
        tokenizer = ElmoTokenizer(
            config.token_encoder,
            config.max_word_length,
            given.word_splitter or "whitespace",
            alphabet="code_points",
            vocab=symbols,
        )
    softmax = ("classifier.pkl, the language model's softmax, is left out.",) * ("classifier.pkl" in source.files)
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
        rules.append(Rule(f"token_embedder.{CHARACTERS}", shape, (table,), (PREPEND_ZERO_ROW,)))
        rules += cnn_rules(config, "token_embedder.convolutions.", "token_embedder.highways._layers.")
    if config.word_embedding_size is not None:
        table = f"token_encoder.{'word_embedding' if has_characters else 'embedding'}.weight"
        num_words = config.num_input_words if has_characters else config.vocab_size - 1
        shape = (num_words, config.word_embedding_size)
        rules.append(Rule(f"token_embedder.{WORDS}", shape, (table,), (PREPEND_ZERO_ROW,)))
    rules += projection_rules("token_embedder.projection", num_features, config.projection_size)
    return rules + lstm_rules(config, "encoder.")


def _architecture(source: Source) -> tuple[dict[str, Any], Path]:
    """Returns the architecture and the name of the file that holds it."""
    path = _file(source, "config.json")
    named = read_options(path).get("config_path")
    name = PurePosixPath(str(named).replace("\\", "/")).name
    expected = f"the name of a file in the folder, or {' or '.join(PACKAGED)}"
    require(name in PACKAGED or name in source.files, path, "config_path", expected, f"{named!r:.200}")
    where = source.files.get(name, path)
    options = read_options(where) if name in source.files else PACKAGED[name]
    for section, kind in NAMES.items():
        part = options.get(section)
        found = part.get("name") if isinstance(part, dict) else part
        require(found == kind, where, f"{section}.name", f"{kind!r}, as of every ELMo", f"{found!r:.200}")
    return options, where


def _lexicon(source: Source, name: str, token: Mapping[str, np.ndarray], table: str) -> dict[str, int]:
    """Reads lines `symbol TAB row`: each symbol's index in the table."""
    path = _file(source, name)
    num_rows = (*token.get(table, np.empty(0)).shape, 0)[0]
    rows: dict[str, int] = {}
    with reading(path):
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=1):
            symbol, _, row = line.removesuffix("\r").rpartition("\t")
            is_row = "\t" in line and row.isdecimal() and int(row) < num_rows
            require(is_row, path, f"line {number}", f"a symbol, a tab and a row below {num_rows}", f"{line!r:.200}")
            rows[symbol] = int(row)
    require(len(set(rows.values())) == len(rows), path, "", "a lexicon with a row for each symbol", "one row twice")
    require("<oov>" in rows, path, "<oov>", "there, the symbol for all that are not", "nothing")
    return rows


def _file(source: Source, name: str) -> Path:
    expected = f"a folder with {name}, as every ELMoForManyLangs model"
    require(name in source.files, source.path, "", expected, listed(sorted(source.files)))
    return source.files[name]
