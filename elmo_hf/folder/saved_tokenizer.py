"""Loads a tokenizer from anyone, after checking that its files are not too large and name no other files."""

import inspect
from pathlib import Path
from typing import Any

from ..model.tokenization_elmo import ElmoTokenizer
from .saved_config import refuse_large, refuse_misspelt
from .saved_json import check_size, naming, read_json

MOST_VOCABULARY_BYTES = 2**25
CONFIG = "tokenizer_config.json"
# Keys by which transformers and the tokenizer would read other files, or take arguments by position.
FILE_NAMES = {"vocab_file", "words_file", "vector_words_file", "tokenizer_file", "fast_tokenizer_files", "gguf_file"}
FILE_NAMES |= {"init_inputs", "tokenizer_object"}


def read_tokenizer(folder: Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, with the arguments of `from_pretrained`.

    Raises:
        ValueError: if a file is missing or damaged; the message names folder and file.
    """
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
                for number, least in (("max_word_length", 3), ("model_max_length", 1)):
                    if type(found := content.get(number, least)) is not int or found < least:
                        raise ValueError(f"`{number}` must be an integer of at least {least}, found {found!r:.50}")
                named = [each for each in sorted(FILE_NAMES & content.keys()) if content[each]]
                if named:
                    raise ValueError(f"it must not name other files, found `{named[0]}`")
        tokenizer = ElmoTokenizer.from_pretrained(folder, **kwargs)
        refuse_large({"largest id": max(tokenizer.get_vocab().values())})
    return tokenizer
