"""The sentences of a text with the places of their words, as corpora of reading times count them.

Eye-tracking corpora number the *regions* of a text: what stands between two blanks, such as `river.` or `don't`. A
tokenizer may split a region into several words, each with a surprisal of its own; those of a region add up to its
surprisal. Corpora number sentences and regions from the start of a document, so the places are counted both ways. Blank
lines separate documents.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..sentences import Sentence
from ..tokenizer.text_to_words import to_words
from ..tokenizer.word_splitter import make_word_splitter

# The word splitter takes these four characters for letters, as Unicode does; Python takes them for blanks.
REGION = re.compile(r"[\S\x1c-\x1f]+")


class PlacedSentence(NamedTuple):
    """A sentence that is not blank, and its places; all count from 0.

    Attributes:
        line: its line of the file.
        words: its n words.
        regions: for each word, its region in the sentence.
        document: its document.
        document_sentence: its place among the document's sentences.
        document_region: the place of its first region among the document's.
    """

    line: int
    words: list[str]
    regions: Sequence[int]
    document: int = 0
    document_sentence: int = 0
    document_region: int = 0


def place_sentences(sentences: Iterable[Sentence], word_splitter: str) -> Iterator[PlacedSentence]:
    """Splits the sentences that are strings into words, leaves out blank ones, and counts.

    Args:
        sentences: the lines of a text, in order; of words that are split already, each is a region.
        word_splitter: `"whitespace"` or `"ptb"`.
    """
    splitter = make_word_splitter(word_splitter)
    document, number, region = 0, 0, 0
    for line, sentence in enumerate(sentences):
        if isinstance(sentence, str) and word_splitter == "whitespace":
            sentence = sentence.split()
        if isinstance(sentence, str):
            found = to_words(sentence, False, splitter.pre_tokenize_str)
            words = found.words
            starts = [match.start() for match in REGION.finditer(sentence)]
            regions = [bisect_right(starts, start) - 1 for start, _ in found.offsets]
        else:
            words, regions = list(sentence), list(range(len(sentence)))
        if words:
            yield PlacedSentence(line, words, regions, document, number, region)
            number, region = number + 1, region + regions[-1] + 1
        elif number:
            document, number, region = document + 1, 0, 0
