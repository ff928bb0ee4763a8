"""The files of a saved tokenizer that may come from anyone: bounded, and naming no files."""

import inspect
from pathlib import Path
<<<<<<< HEAD
from typing import Any
=======
from typing import Any, Literal, TypedDict

from huggingface_hub.dataclasses import validate_typed_dict
from huggingface_hub.errors import StrictDataclassError
>>>>>>> 620829c (Tokenizer and model: fewer refusals, each by one function; texts of a call in one module; refusals in one table a room)

from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .saved_config import refuse_large, refuse_misspelt
from .saved_json import check_size, naming, read_json

MOST_VOCABULARY_BYTES = 2**25
<<<<<<< HEAD
MOST_ID = 10**7
CONFIG = "tokenizer_config.json"
# Names under which transformers and the tokenizer would take other files, or arguments by their places.
FILE_NAMES = {"vocab_file", "words_file", "vector_words_file", "tokenizer_file", "fast_tokenizer_files", "gguf_file"}
FILE_NAMES |= {"init_inputs", "tokenizer_object"}
=======
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

    token_encoder: Literal["char_cnn", "word_embedding"]
    alphabet: Literal["bytes", "code_points"]
    word_splitter: Literal["ptb", "whitespace"]
    add_boundaries: bool
    max_word_length: int
    model_max_length: int | float | None
    model_input_names: list[str] | None
    clean_up_tokenization_spaces: bool | None
    split_special_tokens: bool | None
    chat_template: str | dict[str, str] | list[dict[str, str]] | None
>>>>>>> 620829c (Tokenizer and model: fewer refusals, each by one function; texts of a call in one module; refusals in one table a room)


def read_tokenizer(folder: Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, with the arguments of `from_pretrained`.

    Raises:
        ValueError: naming the folder, and the file if it is missing or damaged.
    """
<<<<<<< HEAD
    own = inspect.signature(ElmoTokenizer.__init__).parameters.keys()
    with naming(f"{folder} has no complete tokenizer (tokenizer_config.json, tokenizer.json)"):
        for path in [*folder.glob("*"), *folder.glob("additional_chat_templates/*")]:
            if path.suffix in (".txt", ".jinja"):
                check_size(path, MOST_VOCABULARY_BYTES)
        for name in (CONFIG, "special_tokens_map.json", "added_tokens.json", "tokenizer.json"):
            if name != CONFIG and not (folder / name).exists():
                continue
            content = read_json(folder / name, MOST_VOCABULARY_BYTES)
            with naming(name):
                refuse_large({"max_word_length": content.get("max_word_length")})
                refuse_misspelt(content.keys() - own, own - content.keys() if name == CONFIG else ())
                named = [each for each in sorted(FILE_NAMES & content.keys()) if content[each]]
                if named:
                    raise ValueError(f"it must not name other files, found `{named[0]}`")
        tokenizer = ElmoTokenizer.from_pretrained(folder, **kwargs)
        largest = max(tokenizer.get_vocab().values())
        if largest > MOST_ID:  # lists of words have an entry for each id
            raise ValueError(f"the ids of tokenizer.json must be at most {MOST_ID:,}, found {largest:,}")
    return tokenizer
=======
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
        names = ", ".join(("tokenizer_config.json", *VOCABULARIES))
        raise ValueError(f"the tokenizer in {folder} ({names}): {one_line(error)}") from error


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
>>>>>>> 620829c (Tokenizer and model: fewer refusals, each by one function; texts of a call in one module; refusals in one table a room)
