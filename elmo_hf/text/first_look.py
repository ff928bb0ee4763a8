"""A first look at raw text: whether it is split into words already, and whether a line is a sentence."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from .values import Sentence

# How many sentences, and how many characters of each, are looked at.
LOOKED_AT, LOOKED_AT_CHARACTERS = 100, 10_000
# Words that are between blanks in split text, and attached to their neighbours in raw text.
SPLIT_OFF = frozenset(". , ; : ! ? ... 's n't `` '' -LRB- -RRB- <unk> <UNK> @-@ @,@ @.@".split())
MARKS = (".", ",", ";", ":", "!", "?")
CLOSING = "\"')]}’”»"


def beginning_of(sentences: Iterator[Sentence]) -> tuple[list[str], Iterator[Sentence]]:
    """The result of `raw_texts`, and all sentences."""
    first = list(islice(sentences, LOOKED_AT))
    return raw_texts(first), chain(first, sentences)


def raw_texts(sentences: Iterable[Sentence]) -> list[str]:
    """The beginnings of the strings among the first sentences, for `looks_split`; lists of words are left out."""
    return [each[:LOOKED_AT_CHARACTERS] for each in islice(sentences, LOOKED_AT) if isinstance(each, str)]


def looks_split(texts: Iterable[str]) -> bool:
    """Whether texts look split into words: marks stand alone more than twice as often as they end a word.

    In raw English one mark in a hundred stands alone; in split text one in thirty ends a word, as in `U.S.`
    """
    tokens = [token for text in texts for token in text.split()]
    alone = sum(token in SPLIT_OFF for token in tokens)
    at_ends = sum(token not in SPLIT_OFF and token.rstrip(CLOSING).endswith(MARKS) for token in tokens)
    return alone > 2 * at_ends


def num_ends(text: str) -> int:
    """How many sentences end within a text: a mark, then blanks and a capital."""
    return len(re.findall(r"[.!?][\"')\]”’»]*\s+[\"'(\[“‘«]*[A-Z]", text))
