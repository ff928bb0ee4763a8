"""Where a tokenizer's vocabulary comes from and goes to: text files of words, or a saved `tokenizer.json`.

Who makes a tokenizer gives a text file, one word a line in the order of the ids (`vocab.txt`, or `words.txt` for the
words that a softmax predicts). A tokenizer that was saved carries its vocabulary in `tokenizer.json`; when transformers
loads it, the path of that file, or the vocabulary itself, arrives among the arguments of the constructor.
"""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from .word_codec import read_vocabulary


def read_vocabulary_file(path: str) -> dict[str, int]:
    """Reads a text file with one word a line; ids are those of `read_vocabulary`.

    Raises:
        ValueError: if the file is not UTF-8.
    """
    try:
        with open(path, encoding="utf-8") as lines:
            return read_vocabulary(list(lines))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text: {error}.") from error


def write_vocabulary_file(path: str, words: Iterable[str]) -> None:
    """Writes such a file, `words` in the order of their ids."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{word}\n" for word in words)


def pop_saved_vocabulary(kwargs: dict[str, Any]) -> dict[str, int] | None:
    """Takes what transformers read out of `tokenizer.json` off `kwargs`; returns the vocabulary in it."""
    tokenizer_file = kwargs.pop("tokenizer_file", None)
    vocabulary = kwargs.pop("vocab", None)
    for key in ("tokenizer_object", "merges", "post_processor", "tokenizer_padding", "tokenizer_truncation"):
        kwargs.pop(key, None)
    if tokenizer_file is not None:
        return Tokenizer.from_file(tokenizer_file).get_vocab()
    return vocabulary if isinstance(vocabulary, dict) else None


def load_vocabulary(vocab_file: str | None, saved_vocabulary: dict[str, int] | None) -> dict[str, int]:
    """The vocabulary of a word-embedding ELMo: that of the file, if one is given, or the saved one.

    Raises:
        ValueError: if there is neither, or the file is not UTF-8.
    """
    if vocab_file is not None:
        return read_vocabulary_file(vocab_file)
    if saved_vocabulary is None:
        raise ValueError("a word-embedding ELMo needs its vocabulary: give `vocab_file`, one word a line.")
    return saved_vocabulary
