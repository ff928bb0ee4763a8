"""The files of a saved tokenizer, which may come from anyone: what they may hold, checked before anything uses it.

Of `tokenizer.json` an `ElmoTokenizer` takes the vocabulary and nothing else, so Rust never reads that file.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from ..model.config_fields import FLAG, NAMES, WHOLE, is_list, is_whole, refuse_misspelt, shorten, unknown_name
from ..model.saved_json import read_json
from .word_codec import MOST_VOCABULARY_BYTES, most_ids

logger = logging.get_logger(__name__)

MOST_ID = 10**8
MOST_TEMPLATE_BYTES = 2**20
TOKEN_FLAGS = ("lstrip", "rstrip", "normalized", "special", "single_word")


def _is_token(value: object) -> bool:
    """Whether a value is a string, or an `AddedToken` as it is saved."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    flags = [value.get(flag, True) for flag in TOKEN_FLAGS]
    is_written_token = isinstance(value.get("content"), str) and all(isinstance(flag, bool) for flag in flags)
    return is_written_token and value.keys() <= {"__type", "content", *TOKEN_FLAGS}


def _is_tokens(value: object) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    return is_list(value) and all(map(_is_token, value))


def _is_decoder(value: object) -> bool:
    return (
        isinstance(value, dict)
        and all(key.isdecimal() and len(key) < 9 for key in value)
        and all(isinstance(token, dict) and _is_token(token) for token in value.values())
    )


def _is_template(value: object) -> bool:
    """Whether a value is a chat template, or a list of named ones."""
    named = value if is_list(value) else [{"name": "default", "template": value}]
    return all(
        isinstance(each, dict)
        and each.keys() == {"name", "template"}
        and all(isinstance(text, str) for text in each.values())
        for each in named
    )


_TEXT = ("text", lambda value: isinstance(value, str))
_COUNT = ("a whole number", lambda value: is_whole(value, 0, 10**31))
_TOKENS = ("tokens", _is_tokens)
_LEAST, _MOST = WHOLE["max_word_length"]
# What `tokenizer_config.json` may hold; anything may be null.
FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("token_encoder", "alphabet", "word_splitter", "tokenizer_class", "name_or_path"), _TEXT),
    **dict.fromkeys(("backend", "processor_class", "padding_side", "truncation_side", "truncation_strategy"), _TEXT),
    **dict.fromkeys(("is_local", "local_files_only", "clean_up_tokenization_spaces", "split_special_tokens"), FLAG),
    **dict.fromkeys(("add_prefix_space", "add_bos_token", "add_eos_token", "verbose", "use_fast"), FLAG),
    "add_boundaries": FLAG,
    "do_lower_case": ("false", lambda value: value is False),
    **dict.fromkeys(("model_max_length", "max_len", "max_length", "stride", "pad_to_multiple_of"), _COUNT),
    **dict.fromkeys(("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"), _TOKENS),
    "pad_token_type_id": _COUNT,
    "max_word_length": (f"a whole number from {_LEAST} to {_MOST}", lambda value: is_whole(value, _LEAST, _MOST)),
    "model_input_names": NAMES,
    "added_tokens_decoder": ("an object of tokens by id", _is_decoder),
    "auto_map": ("an object or a list", lambda value: isinstance(value, dict) or is_list(value)),
    "chat_template": ("text, or a list of named texts", _is_template),
    "init_inputs": ("empty", lambda value: value == []),
}
# What transformers makes of a `tokenizer.json`, which only the tokenizers of other models need.
FROM_FOLDER = {"tokenizer_object", "merges", "post_processor", "tokenizer_padding", "tokenizer_truncation"}
FROM_FOLDER |= {"_json_padding", "_json_truncation", "_spm_precompiled_charsmap", "files_loaded"}
# Further arguments of the constructor: files and objects, which no saved field may name.
ARGUMENTS = {"vocab_file", "words_file", "tokenizer_file", "vocab", "gguf_file", "trust_remote_code", *FROM_FOLDER}
ARGUMENTS |= {"vector_words_file"}
# Arguments of `from_pretrained` that say where the files are.
LOADING = {"cache_dir", "force_download", "proxies", "token", "revision", "subfolder", "code_revision"}
FORBIDDEN = {*ARGUMENTS, "self", "cls", "fast_tokenizer_files"}


def check_names(kwargs: dict[str, Any]) -> None:
    """Refuses arguments that do not exist or have no effect; of a saved tokenizer, drops them with a warning.

    Raises:
        AttributeError: naming an argument that is the name of a method.
        ValueError: naming another one, or `do_lower_case=True`.
    """
    if kwargs.get("do_lower_case"):
        raise ValueError("`do_lower_case=True` is not supported: an ELMo reads case; lower the texts yourself.")
    names = {name for name in kwargs if not name.endswith("_token")}
    unknown = sorted(names - FIELDS.keys() - ARGUMENTS)
    if unknown and "name_or_path" not in kwargs:
        if hasattr(PreTrainedTokenizerFast, unknown[0]):  # what transformers raises too
            raise AttributeError(
                f"`{unknown[0]}` conflicts with the method of that name: it is no argument of `ElmoTokenizer`; "
                "options of a call go to the call."
            )
        raise unknown_name("`ElmoTokenizer`", unknown[0], FIELDS.keys() | {"vocab_file", "words_file"})
    for name in unknown:
        logger.warning(f"A saved tokenizer has a field that this version ignores: {name}.")
        del kwargs[name]


def pop_vocabulary(kwargs: dict[str, Any], is_needed: bool) -> dict[str, int] | None:
    """Removes what transformers read from a folder from `kwargs`; returns the vocabulary in it, if it is needed."""
    tokenizer_file = kwargs.pop("tokenizer_file", None)
    vocabulary = kwargs.pop("vocab", None)
    for key in FROM_FOLDER:
        kwargs.pop(key, None)
    if tokenizer_file is not None and is_needed:
        return read_vocabulary_in(tokenizer_file)
    return vocabulary if isinstance(vocabulary, dict) else None


def require_length(max_word_length: object) -> None:
    """Raises ValueError unless C is a whole number that a config may have too."""
    legal, is_legal = FIELDS["max_word_length"]
    if not is_legal(max_word_length):
        raise ValueError(f"`max_word_length` must be {legal}, found {shorten(max_word_length)}.")


def check_tokenizer_files(files: Mapping[str, str | None]) -> None:
    """Checks files by the names that transformers has for them; raises ValueError naming the file and the field."""
    for name, path in files.items():
        if path is None:
            continue
        if name == "tokenizer_config_file":
            content = read_json(path)
            for field, value in content.items():
                _check_field(path, field, value)
            refuse_misspelt(path, content.keys(), FIELDS.keys())
        elif name == "special_tokens_map_file":
            for field, value in read_json(path).items():
                is_legal = _is_token(value) or (field.endswith("_special_tokens") and _is_tokens(value))
                _require(path, field, value, field.endswith(("_token", "_special_tokens")) and is_legal, "tokens")
        elif name == "added_tokens_file":
            for field, value in read_json(path).items():
                _require(path, field, value, is_whole(value, 0, MOST_ID), f"an id from 0 to {MOST_ID}")
        elif name == "tokenizer_file":
            read_vocabulary_in(path)
        elif name.startswith("chat_template") and os.path.getsize(path) > MOST_TEMPLATE_BYTES:
            raise ValueError(f"{path} must have at most {MOST_TEMPLATE_BYTES:,} bytes.")


def read_vocabulary_in(path: str) -> dict[str, int]:
    """The ids by name in a `tokenizer.json`; raises ValueError naming the file and the field if they are damaged."""
    content = read_json(path, MOST_VOCABULARY_BYTES)
    tokens = content.get("added_tokens")
    is_legal = is_list(tokens) and all(
        isinstance(token, dict)
        and is_whole(token.get("id"), 0, MOST_ID)
        and _is_token({key: value for key, value in token.items() if key != "id"})
        for token in tokens
    )
    _require(path, "added_tokens", tokens, is_legal, "a list of tokens with ids")
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        raise ValueError(f"{path}: `model` must hold an object `vocab` of ids by name, found {shorten(vocabulary)}.")
    most = most_ids(len(vocabulary))
    expected = f"an id from 0 to {most}"
    for name, symbol_id in vocabulary.items():
        _require(path, name, symbol_id, is_whole(symbol_id, 0, most), expected)
    if len(set(vocabulary.values())) < len(vocabulary):
        raise ValueError(f"{path}: `vocab` gives two names the same id.")
    try:
        "".join(vocabulary).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{path}: `vocab` has a name that is no text: {error}.") from error
    return vocabulary


def _check_field(path: str, field: str, value: Any) -> None:
    if field in FORBIDDEN:
        _require(path, field, value, value is None and field in ARGUMENTS, "left out")
    elif field in FIELDS:
        legal, is_legal = FIELDS[field]
        _require(path, field, value, value is None or is_legal(value), legal)
    elif field.endswith("_token"):
        _require(path, field, value, value is None or _is_token(value), "a token")


def _require(path: str, field: str, value: Any, is_legal: bool, legal: str) -> None:
    if not is_legal:
        raise ValueError(f"{path}: `{shorten(field)[1:-1]}` must be {legal}, found {shorten(value)}.")
