"""A first look at sentences: which are blank, whether a text is split into words already, and whether a line is one."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

from .fasta import Protein
from .values import Sentence

# How many sentences, and how many characters of each, are looked at.
LOOKED_AT, LOOKED_AT_CHARACTERS = 100, 10_000
# Words that are between blanks in split text, and attached to their neighbours in raw text.
# fmt: off
SPLIT_OFF = frozenset([
    ".", ",", ";", ":", "!", "?", "...", "'s", "n't", "``", "''", "-LRB-", "-RRB-", "<unk>", "<UNK>", "@-@", "@,@",
    "@.@",
])
# fmt: on
MARKS = (".", ",", ";", ":", "!", "?")
CLOSING = "\"')]}’”»"

# Of fewer texts, nothing is said of single words; longer texts without blanks may be sentences of Chinese or Thai.
FEWEST_TEXTS, LONGEST_WORD = 5, 12
# A text is cut into lines within sentences if more than half of its lines end so, and a tenth hold the end of one.
LEAST_PAIRS, LEAST_ENDS = 4, 0.1
TERMINAL = re.compile(r"[.!?:;…。！？]\W*$")


class Count(NamedTuple):
    """How many sentences were read, and how many of them are blank, and how many are proteins."""

    sentences: int = 0
    blank: int = 0
    proteins: int = 0

    def plus(self, sentences: Iterable[Sentence]) -> "Count":
        """The count of more sentences."""
        num_sentences, num_blank, num_proteins = self
        for sentence in sentences:
            num_sentences += 1
            num_blank += is_blank(sentence)
            num_proteins += isinstance(sentence, Protein)
        return Count(num_sentences, num_blank, num_proteins)


class Counted:
    """Sentences in their order, which are counted while they are read.

    Attributes:
        count: of the sentences so far.
    """

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        """Takes the sentences."""
        self._sentences = sentences
        self.count = Count()

    def __iter__(self) -> Iterator[Sentence]:
        """Gives the sentences once."""
        for sentence in self._sentences:
            self.count = self.count.plus([sentence])
            yield sentence


def is_blank(sentence: Sentence) -> bool:
    """Whether a sentence has no words."""
    return len(sentence) == 0 or (isinstance(sentence, str) and sentence.isspace())


def beginning_of(sentences: Iterator[Sentence]) -> tuple[list[str], Iterator[Sentence]]:
    """The result of `raw_texts`, and all sentences."""
    first = list(islice(sentences, LOOKED_AT))
    return raw_texts(first), chain(first, sentences)


def raw_texts(sentences: Iterable[Sentence]) -> list[str]:
    """The beginnings of the strings among the first sentences, for `looks_split`; lists of words are left out."""
    first = islice(sentences, LOOKED_AT)
    return [sentence[:LOOKED_AT_CHARACTERS] for sentence in first if isinstance(sentence, str)]


def looks_split(texts: Iterable[str]) -> bool:
    """Whether texts look split into words: marks stand alone more than twice as often as they end a word.

    In raw English one mark in a hundred stands alone; in split text one in thirty ends a word, as in `U.S.`
    """
    tokens = [token for text in texts for token in text.split()]
    alone = sum(token in SPLIT_OFF for token in tokens)
    at_ends = sum(token not in SPLIT_OFF and token.rstrip(CLOSING).endswith(MARKS) for token in tokens)
    return alone > 2 * at_ends


def are_single_words(texts: Iterable[str]) -> bool:
    """Whether most texts are one word, as in a table with one word a row; blank texts do not count."""
    filled = [text.strip() for text in texts if text.strip()]
    if len(filled) < FEWEST_TEXTS:
        return False
    num_single = sum(len(text.split()) == 1 for text in filled)
    median_length = sorted(map(len, filled))[len(filled) // 2]
    return 2 * num_single > len(filled) and median_length <= LONGEST_WORD


def are_unsplit(texts: Iterable[str]) -> bool:
    """Whether most texts are one word of several letters, as proteins without blanks; blank texts do not count."""
    filled = [text.strip() for text in texts if text.strip()]
    num_unsplit = sum(len(text) > 1 and len(text.split()) == 1 for text in filled)
    return 2 * num_unsplit > len(filled)


def have_headers(texts: Iterable[str]) -> bool:
    """Whether a text begins with `>`, as a header of FASTA does; text may quote so, but no residue is written so."""
    return any(text.startswith(">") for text in texts)


def num_ends(text: str) -> int:
    """How many sentences end within a text: a mark, then blanks and a capital."""
    return len(re.findall(r"[.!?][\"')\]”’»]*\s+[\"'(\[“‘«]*[A-Z]", text))


def are_wrapped(texts: Sequence[str]) -> bool:
    """Whether lines of running text are cut at a width, within sentences.

    Then most lines end without a mark before a line that begins with a small letter, and some lines hold an end of a
    sentence and the beginning of the next. Texts in small letters alone have no such beginnings.
    """
    pairs = [(line, following) for line, following in pairwise(texts) if line.strip() and following.strip()]
    if len(pairs) < LEAST_PAIRS:
        return False
    num_cut = sum(following.lstrip()[0].islower() and not TERMINAL.search(line) for line, following in pairs)
    num_with_ends = sum(num_ends(line) > 0 for line, _ in pairs)
    return num_cut > len(pairs) / 2 and num_with_ends >= LEAST_ENDS * len(pairs)
