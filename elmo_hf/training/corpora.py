"""Corpora out of text files, JSON lines and Hub datasets, through the `datasets` library, sentence by sentence.

Every sentence is a list of words. A sentence that is a string is split on white space, because text for language models
comes tokenised (bilm-tf's form: one sentence a line), or by a word splitter. Blank lines are left out.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import escape, glob, has_magic
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

from datasets import load_dataset

from ..tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, PADDING, UNKNOWN_WORD, read_vocabulary
from ..tokenizer.word_splitter import make_word_splitter

SPECIAL_WORDS = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD)
COLUMNS = ("words", "tokens", "text", "sentence")
# How each kind of file is named, and read by `datasets`; "utf-8-sig" skips the byte order mark that Windows puts first.
KINDS: dict[str, dict[str, str]] = {"text": {"encoding": "utf-8-sig"}, "json": {}}
JSON_SUFFIXES = (".jsonl", ".json")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def read_corpora(
    sources: Sequence[str], *, word_splitter: str = "whitespace", split: str = "train"
) -> Iterator[list[str]]:
    """Reads sentences from one corpus after the other, streaming.

    Args:
        sources: each a file, a pattern such as `"shards/*.txt.gz"`, a folder with a dataset, or the name of a Hub
            dataset. Files are JSON lines (`.jsonl`, `.json`) or text with one sentence a line, plain or `.gz`. Of JSON
            lines and datasets the first column is read that is called `words`, `tokens`, `text` or `sentence` and is
            not empty; it holds strings, or lists of words.
        word_splitter: how a string becomes words, `"whitespace"` or `"ptb"`.
        split: of datasets.

    Raises:
        ValueError: if a pattern matches nothing, or a source has none of these columns or cannot be read.
    """
    splitter = make_word_splitter(word_splitter)
    for source in sources:
        for example in _examples(source, split):
            if not any(column in example for column in COLUMNS):
                raise ValueError(
                    f"{source} must have a column {', '.join(map(repr, COLUMNS))}, found {', '.join(sorted(example))}."
                )
            value = next((example[column] for column in COLUMNS if example.get(column) is not None), "")
            if not isinstance(value, str):
                words = _checked_words(value, source)
            elif word_splitter == "whitespace":
                words = value.split()
            else:
                words = [word for word, _ in splitter.pre_tokenize_str(value)]
            if words:
                yield words


def count_words(sentences: Iterable[Sequence[str]]) -> Counter[str]:
    """How often each word occurs."""
    counts: Counter[str] = Counter()
    for words in sentences:
        counts.update(words)
    return counts


def make_vocabulary(counts: Counter[str], max_size: int | None = None, min_count: int = 1) -> list[str]:
    """The words of a softmax, one for each of its classes: `<S>`, `</S>`, `<UNK>`, then words by falling frequency.

    Words of equal frequency are in the order of their code points. A word that cannot be a line of a vocabulary file,
    such as one with a line break, is left out.

    Args:
        counts: how often each word occurs.
        max_size: most words, the three included; None: no limit.
        min_count: least occurrences of a word.

    Raises:
        ValueError: if there is no word left.
    """
    frequent = [(-count, word) for word, count in counts.items() if count >= min_count and _is_line(word)]
    words = [word for _, word in sorted(frequent)]
    vocabulary = [*SPECIAL_WORDS, *words][:max_size]
    if len(vocabulary) <= len(SPECIAL_WORDS):
        raise ValueError(
            f"no word is left for the vocabulary: {len(counts)} distinct words, `min_count` {min_count}, "
            f"`max_size` {max_size}."
        )
    return vocabulary


def _is_line(word: str) -> bool:
    """Whether a vocabulary file gives the word back, as a word like any other."""
    is_special = word in (*SPECIAL_WORDS, PADDING)
    return not is_special and read_vocabulary(list(StringIO(word, newline=None))) == {word: 1, PADDING: 0}


def _checked_words(value: Any, source: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{source} must hold strings or lists of words, found {str(value)[:80]}.")
    return value


def _examples(source: str, split: str) -> Iterator[dict[str, Any]]:
    """Every line of the files, or every row of the dataset, as `datasets` streams it."""
    paths = [source] if Path(source).is_file() or not has_magic(source) else sorted(glob(source, recursive=True))
    is_dataset = not Path(paths[0] if paths else source).is_file()
    if not paths:
        raise ValueError(f"{source} matches no file.")
    is_name = HUB_NAME.fullmatch(source) and not source.endswith((".txt", ".gz", *JSON_SUFFIXES))
    if is_dataset and not is_name and not Path(source).is_dir():
        raise ValueError(f"there is no file {source}.")
    try:
        if is_dataset:
            yield from load_dataset(source, split=split, streaming=True)
            return
        for kind, files in groupby(paths, _kind):
            # `datasets` takes names for patterns.
            names = [escape(file) for file in files]
            yield from load_dataset(kind, data_files=names, split="train", streaming=True, **KINDS[kind])
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{source} cannot be read as a corpus: {error}") from error


def _kind(path: str) -> str:
    return "json" if path.removesuffix(".gz").endswith(JSON_SUFFIXES) else "text"
