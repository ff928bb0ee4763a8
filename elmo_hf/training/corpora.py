"""Corpora out of files and datasets, sentence by sentence, and vocabularies and alphabets out of corpora.

Files are read by `sentences.py`; only folders and Hub datasets need the `datasets` library. Text for language models is
already split (in bilm-tf's form: one sentence per line, words separated by blanks), or is split later.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from io import StringIO
from pathlib import Path

from ..model.tokenization_elmo import (
    BEGIN_WORD,
    BOS,
    CHARACTER_PREFIX,
    END_WORD,
    EOS,
    FILLER,
    PADDING,
    SPECIAL_WORDS,
    UNKNOWN,
    read_vocabulary,
)
from ..text.formats import Format
from ..text.sentences import Sentence, may_be_dataset, read_dataset, read_sentences, storable


def read_sources(
    sources: Sequence[str], encoding: str = "utf-8", column: str | None = None, input_format: Format | None = None
) -> Iterator[Sentence]:
    """Streams the sentences of one corpus after the other, as they are.

    Args:
        sources: files that `read_sentences` reads, patterns such as `"shards/*.txt.gz"`, folders with a dataset, or
            names of Hub datasets. Of a dataset the split `train` is read, with strings or lists of words in a column
            `words`, `tokens`, `text` or `sentence` (the first one that has a value).
        encoding: the encoding of the files.
        column: the column of tables and datasets, or the key of objects; None: one of those above.
        input_format: the format of the files; None: as their names or first lines show.

    Raises:
        ValueError: before anything is read, if a source is neither a file nor a dataset's name; later, if a dataset has
            none of these columns or a source cannot be read.
    """
    files_of_sources = [_files(source) for source in sources]  # checks all names before anything is read
    for source, files in zip(sources, files_of_sources, strict=True):
        for file in files:
            yield from read_sentences(Path(file), encoding, column, input_format)
        if not files:
            yield from read_dataset(source, "train", column)


def _files(source: str) -> list[str]:
    """The file of this name, or the files that match a pattern; empty for a dataset."""
    if os.path.exists(source) and not os.path.isdir(source):  # a file, or a pipe such as /dev/fd/63
        return [source]
    paths = sorted(path for path in glob(source, recursive=True) if os.path.isfile(path))
    if not paths and not may_be_dataset(source):
        raise ValueError(f"there is no file {source}.")
    return paths


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
    frequent = [word for word, count in counts.items() if count >= min_count and _is_line(word)]
    frequent.sort(key=lambda word: (-counts[word], word))
    vocabulary = [*SPECIAL_WORDS, *frequent]
    if max_size is not None:
        del vocabulary[max_size:]
    if len(vocabulary) <= len(SPECIAL_WORDS):
        raise ValueError(f"no word is left of {len(counts)}, with `min_count` {min_count} and `max_size` {max_size}.")
    return vocabulary


def make_alphabet(words: Iterable[str]) -> dict[str, int]:
    """The ids of a model that reads code points, by the names of `code_point_codec.py`.

    Padding is 0; 1 to 6 are `<bos>`, `<eos>`, `<oov>`, `<pad>`, `<eow>` and `<bow>`; then come all code points of the
    words, except the special words of a vocabulary, in the order of Unicode.
    """
    letters: set[str] = set()
    for word in set(words) - {*SPECIAL_WORDS, PADDING}:
        letters.update(word)
    characters = (UNKNOWN, FILLER, BEGIN_WORD, END_WORD, *sorted(letters))
    names = [PADDING, BOS, EOS]
    names += [CHARACTER_PREFIX + character for character in characters]
    return {name: number for number, name in enumerate(names)}


def _is_line(word: str) -> bool:
    """Whether a vocabulary file can hold the word as an ordinary word."""
    is_special = word in (*SPECIAL_WORDS, PADDING)
    if is_special or storable(word) != word:
        return False
    lines = list(StringIO(word, newline=None))
    return read_vocabulary(lines) == {word: 1, PADDING: 0}
