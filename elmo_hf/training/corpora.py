"""Corpora from text files, JSON lines and Hub datasets, read sentence by sentence through the `datasets` library.

Every sentence is a list of words. A sentence that is a string is split on white space, because text for language models
comes tokenised (bilm-tf's form: one sentence per line), or by a word splitter. Blank lines are skipped.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import escape
from io import StringIO
from itertools import groupby
from typing import Any

from datasets import load_dataset

from ..tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, PADDING, UNKNOWN_WORD, read_vocabulary
from ..tokenizer.word_splitter import make_word_splitter
from .corpus_files import JSON_SUFFIXES, corpus_files

SPECIAL_WORDS = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD)
COLUMNS = ("words", "tokens", "text", "sentence")
# The builders of `datasets` and their settings; "utf-8-sig" skips the byte order mark that Windows writes.
KINDS: dict[str, dict[str, str]] = {"text": {"encoding": "utf-8-sig"}, "json": {}}


def read_corpora(
    sources: Sequence[str], *, word_splitter: str = "whitespace", split: str = "train"
) -> Iterator[list[str]]:
    """Streams the sentences of one corpus after the other.

    Args:
        sources: files, patterns such as `"shards/*.txt.gz"`, folders with a dataset, or names of Hub datasets. Files
            are JSON lines (`.jsonl`, `.json`) or text with one sentence per line, plain or `.gz`. JSON lines and
            datasets have strings or lists of words in a column `words`, `tokens`, `text` or `sentence`; the first of
            them that has a value is read.
        word_splitter: how to split strings into words, `"whitespace"` or `"ptb"`.
        split: the split to read of datasets.

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
    """Counts how often each word occurs."""
    counts: Counter[str] = Counter()
    for words in sentences:
        counts.update(words)
    return counts


def make_vocabulary(counts: Counter[str], max_size: int | None = None, min_count: int = 1) -> list[str]:
    """The words of a softmax in the order of its classes: `<S>`, `</S>`, `<UNK>`, then words by falling frequency.

    Words of equal frequency are sorted by code points. Words that cannot be a line of a vocabulary file, such as one
    with a line break, are left out.

    Args:
        counts: how often each word occurs.
        max_size: largest size of the vocabulary, the three included; None means unlimited.
        min_count: least occurrences of a word.

    Raises:
        ValueError: if no word is left.
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
    """Whether a vocabulary file can hold the word as an ordinary word."""
    is_special = word in (*SPECIAL_WORDS, PADDING)
    return not is_special and read_vocabulary(list(StringIO(word, newline=None))) == {word: 1, PADDING: 0}


def _checked_words(value: Any, source: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{source} must hold strings or lists of words, found {str(value)[:80]}.")
    return value


def _examples(source: str, split: str) -> Iterator[dict[str, Any]]:
    """Streams the lines of the files, or the examples of the dataset."""
    paths = corpus_files(source)
    try:
        if not paths:
            yield from load_dataset(source, split=split, streaming=True)
            return
        for kind, files in groupby(paths, _kind):
            # `datasets` takes file names as patterns.
            names = [escape(file) for file in files]
            yield from load_dataset(kind, data_files=names, split="train", streaming=True, **KINDS[kind])
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{source} cannot be read as a corpus: {error}") from error


def _kind(path: str) -> str:
    return "json" if path.removesuffix(".gz").endswith(JSON_SUFFIXES) else "text"
