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
# Of raw English between blanks, one word in eight ends in a mark, and of its vocabulary one in three. Of English that
# is split into words, and of its vocabulary, fewer than one in a hundred do, such as `U.S.`
LEAST_ATTACHED = 0.05

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


class Marks(NamedTuple):
    """The marks among words that were split at blanks, or of a vocabulary.

    Attributes:
        num_words: how many words there are, marks included.
        num_alone: how many of them are split off, such as a mark alone.
        attached: those that end in a mark, such as `river.`
    """

    num_words: int
    num_alone: int
    attached: list[str]

    @classmethod
    def of(cls, words: Iterable[str]) -> "Marks":
        """Counts the marks of words."""
        num_words = 0
        num_alone = 0
        attached = []
        for word in words:
            num_words += 1
            if word in SPLIT_OFF:
                num_alone += 1
            elif word.rstrip(CLOSING).endswith(MARKS):
                attached.append(word)
        return cls(num_words, num_alone, attached)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> "Marks":
        """Counts the marks of the words between blanks."""
        return cls.of(word for text in texts for word in text.split())

    @property
    def are_alone(self) -> bool:
        """Whether marks are split off: they stand alone more than twice as often as they end a word."""
        return self.num_alone > 2 * len(self.attached)

    @property
    def are_attached(self) -> bool:
        """Whether words look like raw text between blanks: many end in a mark, and fewer marks stand alone.

        In raw French some marks stand alone.
        """
        return len(self.attached) > self.num_alone and self.share_attached >= LEAST_ATTACHED

    @property
    def share_attached(self) -> float:
        """The share of the words that end in a mark; 0 for no words."""
        return len(self.attached) / self.num_words if self.num_words else 0.0

    @property
    def example(self) -> str:
        """The longest word that is letters and a mark, because short ones may be abbreviations."""
        plain = [word for word in self.attached if word[:-1].isalpha()]
        return max(plain or self.attached, key=len)


def looks_split(texts: Iterable[str]) -> bool:
    """Whether texts look split into words: marks stand alone.

    In raw English one mark in a hundred stands alone; in split text one in thirty ends a word, as in `U.S.`
    """
    return Marks.of_texts(texts).are_alone


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
