"""The files of a saved tokenizer that may come from anyone: bounded, and naming no files."""

import inspect
import math
from pathlib import Path
from typing import Any, TypedDict

from huggingface_hub.dataclasses import validate_typed_dict
from huggingface_hub.errors import StrictDataclassError

from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .one_line import one_line
from .saved_config import MOST, refuse_misspelt
from .saved_json import MOST_JSON_BYTES, check_size, read_json

MOST_VOCABULARY_BYTES = 2**25
VOCABULARIES = ("tokenizer.json", "words.txt", "vector_words.txt")


class TokenizerFields(TypedDict, total=False):
    """Fields that transformers or a tokenizer would use as they are; a saved file may name no other files."""

    vocab_file: None
    words_file: None
    vector_words_file: None
    tokenizer_file: None
    fast_tokenizer_files: list[None] | None
    gguf_file: None
    init_inputs: list[None] | tuple[()] | None
    tokenizer_object: None

    max_word_length: int
    model_max_length: int | float | None
    model_input_names: list[str] | None
    clean_up_tokenization_spaces: bool | None
    split_special_tokens: bool | None
    chat_template: str | dict[str, str] | list[dict[str, str]] | None


def read_tokenizer(folder: Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, with the arguments of `from_pretrained`.

    Raises:
        ValueError: naming the file, or the folder, if there is no tokenizer or one of its files is damaged.
    """
    if not (folder / "tokenizer_config.json").is_file():
        raise ValueError(f"{folder} has no tokenizer_config.json; `tokenizer.save_pretrained` writes a tokenizer.")
    for path in sorted([*folder.glob("*"), *folder.glob("additional_chat_templates/*")]):
        most = MOST_VOCABULARY_BYTES if path.name in VOCABULARIES else MOST_JSON_BYTES
        if path.suffix in (".txt", ".jinja"):
            check_size(path, most)
        if path.name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
            _check_fields(path, read_json(path))
        if path.name in VOCABULARIES:
            _check_ids(path)
    try:
        return ElmoTokenizer.from_pretrained(folder, **kwargs)
    except (AttributeError, KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"tokenizer_config.json or tokenizer.json of {folder}: {one_line(error)}") from error


def _check_ids(path: Path) -> None:
    """Checks that a vocabulary has hardly more ids than words: a line that is there twice uses up an id."""
    num_words, largest = 0, math.inf
    if path.suffix == ".json":
        model = read_json(path, MOST_VOCABULARY_BYTES).get("model")
        ids = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(ids, dict) and all(isinstance(each, int) for each in ids.values()):
            num_words, largest = len(ids), max(ids.values(), default=0)
    else:
        words = path.read_bytes().split(b"\n")
        num_words, largest = len({*words}), len(words)
    if largest > 4 * num_words + 1000:
        raise ValueError(f"{path} must hold words with ids that leave few out, found {num_words:,} and {largest:,}.")


def _check_fields(path: Path, content: dict[str, Any]) -> None:
    try:
        used = {name: content[name] for name in content.keys() & TokenizerFields.__annotations__.keys()}
        validate_typed_dict(TokenizerFields, used)  # type: ignore[type-var]
        if path.name == "tokenizer_config.json":
            own = inspect.signature(ElmoTokenizer.__init__).parameters.keys()
            refuse_misspelt(content.keys() - own, own - content.keys())
        if content.get("max_word_length", 3) > MOST["max_word_length"]:
            raise ValueError(f"`max_word_length` must be at most {MOST['max_word_length']:,}")
    except (StrictDataclassError, ValueError) as error:
        raise ValueError(f"{path}: {one_line(error)}.") from error
