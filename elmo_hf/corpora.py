"""Corpora out of text files, JSON lines and Hub datasets, through the `datasets` library, sentence by sentence.

Every sentence is a list of words. A sentence that is a string is split on white space, because text for language models
comes tokenised (bilm-tf's form: one sentence a line), or by a word splitter. Blank lines are left out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from datasets import load_dataset

from .word_codec import BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD
from .word_splitter import make_word_splitter

SPECIAL_WORDS = (BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD)
COLUMNS = ("words", "tokens", "text", "sentence")


def read_corpora(
    sources: Sequence[str], *, word_splitter: str = "whitespace", split: str = "train"
) -> Iterator[list[str]]:
    """Reads sentences from one corpus after the other, streaming.

    Args:
        sources: each a file, a pattern such as `"shards/*.txt.gz"`, or the name of a Hub dataset. Files are JSON lines
            (`.jsonl`, `.json`) or text with one sentence a line, plain or `.gz`. Of JSON lines and Hub datasets the
            first column is read that is called `words`, `tokens` (lists of words), `text` or `sentence`.
        word_splitter: how a string becomes words, `"whitespace"` or `"ptb"`.
        split: of Hub datasets.

    Raises:
        ValueError: if a pattern matches nothing, or a source has none of these columns or cannot be read.
    """
    splitter = make_word_splitter(word_splitter)
    for source in sources:
        for example in _examples(source, split):
            column = next((column for column in COLUMNS if column in example), None)
            if column is None:
                raise ValueError(
                    f"{source} must have a column {', '.join(map(repr, COLUMNS))}, found {', '.join(sorted(example))}."
                )
            value = example[column]
            if isinstance(value, str):
                words = (
                    value.split()
                    if word_splitter == "whitespace"
                    else [word for word, _ in splitter.pre_tokenize_str(value)]
                )
            else:
                words = list(value or [])
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

    Words of equal frequency are in the order of their code points.

    Args:
        counts: how often each word occurs.
        max_size: most words, the three included; None: no limit.
        min_count: least occurrences of a word.

    Raises:
        ValueError: if there is no word left.
    """
    frequent = [(-count, word) for word, count in counts.items() if count >= min_count and word not in SPECIAL_WORDS]
    words = [word for _, word in sorted(frequent)]
    vocabulary = [*SPECIAL_WORDS, *words][:max_size]
    if len(vocabulary) <= len(SPECIAL_WORDS):
        raise ValueError(
            f"no word is left for the vocabulary: {len(counts)} distinct words, `min_count` {min_count}, "
            f"`max_size` {max_size}."
        )
    return vocabulary


def _examples(source: str, split: str) -> Iterator[dict[str, Any]]:
    paths = sorted(glob(source)) if has_magic(source) else [source]
    is_file = has_magic(source) or Path(source).is_file()
    if not paths:
        raise ValueError(f"{source} matches no file.")
    if not is_file and (Path(source).suffix or len(Path(source).parts) > 2):
        raise ValueError(f"there is no file {source}.")
    try:
        if is_file:
            suffixes = [suffix for suffix in Path(paths[0]).suffixes if suffix != ".gz"]
            kind = "json" if suffixes[-1:] in ([".jsonl"], [".json"]) else "text"
            yield from load_dataset(kind, data_files=paths, split="train", streaming=True)
        else:
            yield from load_dataset(source, split=split, streaming=True)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{source} cannot be read as a corpus: {error}") from error
