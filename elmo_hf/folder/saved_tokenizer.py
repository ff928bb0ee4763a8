"""Loads a tokenizer from anyone, after checking that its files are not too large and name no other files."""

import inspect
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..model.configuration_elmo import LEAST_WORD_LENGTH, ElmoConfig
from ..model.tokenization_elmo import ElmoTokenizer
from .saved_config import refuse_large, refuse_misspelt
from .saved_json import check_size, naming, read_json

MOST_VOCABULARY_BYTES = 2**25
CONFIG = "tokenizer_config.json"
MODEL_CONFIG = "config.json"
# Keys by which transformers and the tokenizer would read other files, or take arguments by position.
FILE_NAMES = {"vocab_file", "words_file", "vector_words_file", "tokenizer_file", "fast_tokenizer_files", "gguf_file"}
FILE_NAMES |= {"init_inputs", "tokenizer_object"}
# The least values of numbers.
LEAST_NUMBERS = {"max_word_length": LEAST_WORD_LENGTH, "model_max_length": 1}


def read_tokenizer(folder: Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, with the arguments of `from_pretrained`.

    Raises:
        ValueError: if a file is missing or damaged, or the folder holds a model that reads ids of another shape; the
            message names folder and file.
    """
    with naming(f"{folder} has no complete tokenizer (tokenizer_config.json, tokenizer.json)"):
        for path in [*folder.glob("*"), *folder.glob("additional_chat_templates/*")]:
            if path.suffix in (".txt", ".jinja"):
                check_size(path, MOST_VOCABULARY_BYTES)
        for name in (CONFIG, "special_tokens_map.json", "added_tokens.json", "tokenizer.json"):
            if name == CONFIG or (folder / name).exists():
                content = read_json(folder / name, MOST_VOCABULARY_BYTES)
                with naming(name):
                    _check_content(name, content)
        tokenizer = ElmoTokenizer.from_pretrained(folder, **kwargs)
        refuse_large({"largest id": max(tokenizer.get_vocab().values())})
    if (folder / MODEL_CONFIG).exists():
        _check_fits_model(folder, tokenizer, kwargs)
    return tokenizer


def _check_fits_model(folder: Path, tokenizer: ElmoTokenizer, arguments: Collection[str]) -> None:
    """Raises ValueError if the tokenizer's file gives ids another shape than the model in its folder reads.

    What the caller gave as arguments is not the file's, and is not compared.
    """
    config = read_json(folder / MODEL_CONFIG)
    if config.get("model_type") != ElmoConfig.model_type:
        return  # a tokenizer may be saved beside another kind of model
    names = ["token_encoder"]
    if tokenizer.token_encoder == "char_cnn":
        names.append("max_word_length")
    of_file = [name for name in names if name not in arguments]
    for name in of_file:
        expected = config.get(name, getattr(ElmoConfig(), name))
        actual = getattr(tokenizer, name)
        if actual != expected:
            raise ValueError(
                f"{folder / CONFIG} must have the `{name}` of the model's {MODEL_CONFIG}, {expected!r:.50}, found "
                f"{actual!r}; put back the tokenizer's files that were saved with the model."
            )


def _check_content(name: str, content: dict[str, Any]) -> None:
    """Checks a JSON file of a tokenizer, given its name and its object; raises ValueError."""
    arguments = inspect.signature(ElmoTokenizer.__init__).parameters.keys()
    refuse_large({"max_word_length": content.get("max_word_length")})
    refuse_misspelt(content.keys() - arguments, arguments - content.keys() if name == CONFIG else ())
    for key, least in LEAST_NUMBERS.items():
        number = content.get(key, least)
        if type(number) is not int or number < least:
            raise ValueError(f"`{key}` must be an integer of at least {least}, found {number!r:.50}")
    file_keys = [key for key in sorted(FILE_NAMES & content.keys()) if content[key]]
    if file_keys:
        raise ValueError(f"it must not name other files, found `{file_keys[0]}`")
