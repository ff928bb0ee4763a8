"""Corpora out of files and datasets, sentence by sentence, and vocabularies out of corpora.

Every sentence is a list of words. A sentence that is a string is split on white space, because text for language models
comes tokenised (bilm-tf's form: one sentence per line), or by a word splitter. Blank lines are skipped. Files are read
by `sentences.py`; only folders and Hub datasets need the `datasets` library.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from io import StringIO
from pathlib import Path

from ..text.sentences import CONLLU_SUFFIX, JSON_SUFFIXES, Sentence, read_dataset, read_sentences, sentence_of
from ..tokenizer.encoded_texts import to_words
from ..tokenizer.word_codec import PADDING, SPECIAL_WORDS, read_vocabulary
from ..tokenizer.word_splitter import make_word_splitter

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# JSON's escapes can name half a character, which no file of text can hold.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def corpus_files(source: str) -> list[str]:
    """The files of a corpus: the file itself, or those that match a pattern; empty for a dataset.

    Args:
        source: a file, a pattern, a folder with a dataset, or the name of a Hub dataset.

    Raises:
        ValueError: if a pattern matches nothing, or `source` is neither a file nor a dataset's name.
    """
    paths = [source] if Path(source).is_file() or not has_magic(source) else sorted(glob(source, recursive=True))
    if paths and Path(paths[0]).is_file():
        return paths
    is_name = HUB_NAME.fullmatch(source) and not source.endswith((".txt", ".gz", CONLLU_SUFFIX, *JSON_SUFFIXES))
    if not is_name and not Path(source).is_dir():
        raise ValueError(f"there is no file {source}.")
    return []


def read_corpora(
    sources: Sequence[str], *, word_splitter: str = "whitespace", split: str = "train", encoding: str = "utf-8"
) -> Iterator[list[str]]:
    """Streams the words of the sentences of one corpus after the other, without blank ones.

    Arguments and errors are those of `read_sources` and `split_sentences`.
    """
    return split_sentences(read_sources(sources, split=split, encoding=encoding), word_splitter)


def read_sources(sources: Sequence[str], *, split: str = "train", encoding: str = "utf-8") -> Iterator[Sentence]:
    """Streams the sentences of one corpus after the other, as they are.

    Args:
        sources: files that `read_sentences` reads, patterns such as `"shards/*.txt.gz"`, folders with a dataset, or
            names of Hub datasets. A dataset has strings or lists of words in a column `words`, `tokens`, `text` or
            `sentence`; the first of them that has a value is read.
        split: the split to read of datasets.
        encoding: of the files.

    Raises:
        ValueError: if a pattern matches nothing, or a source has none of these columns or cannot be read.
    """
    for source in sources:
        files = corpus_files(source)
        if not files:
            yield from read_dataset(source, split, sentence_of)
        for file in files:
            yield from read_sentences(Path(file), encoding=encoding)


def split_sentences(sentences: Iterable[Sentence], word_splitter: str) -> Iterator[list[str]]:
    """Splits the sentences that are strings into words, and leaves out blank ones.

    `word_splitter` is `"whitespace"` or `"ptb"`.

    Raises:
        ValueError: if the splitter is unknown.
    """
    splitter = make_word_splitter(word_splitter)
    for sentence in sentences:
        if isinstance(sentence, str):
            is_split = word_splitter == "whitespace"
            sentence = sentence.split() if is_split else to_words(sentence, False, splitter.pre_tokenize_str).words
        if sentence:
            yield sentence


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
    is_text = LONE_SURROGATE.search(word) is None
    return is_text and not is_special and read_vocabulary(list(StringIO(word, newline=None))) == {word: 1, PADDING: 0}
