"""Surprisal word by word, as a table for psycholinguists to compare with reading times.

The table has one row for each word and boundary of each sentence. All places count from 0:

    sentence, position               line of the file; position in it, where 0 is `<S>`
    word, is_unknown                 the word, and whether it is scored as `<UNK>`
    forward_bits, backward_bits      surprisal; or forward_nats, backward_nats
    document, document_sentence      the document, and the place of the sentence in it
    region, document_region          the place between blanks, in the sentence and in the document (`PlacedSentence`)

Cells are empty where there is no value: forward for `<S>` and backward for `</S>`, which are not predicted, words that
were not scored, and the regions of boundaries.

A table by region has one row for each region instead: its text as `word`, `num_words`, whether a word in it is unknown,
and the sum of the words' surprisals, which is empty if one of them is empty.

Eye-tracking corpora number the *regions* of a text: the stretches between blanks, such as `river.` or `don't`. A
tokenizer may split a region into several words; their surprisals add up to the region's. Corpora number sentences
and regions within a document, so the table has both numbers. Blank lines separate documents.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ..model.tokenization_elmo import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    UNKNOWN_WORD,
    ElmoTokenizer,
    make_word_splitter,
    to_words,
)
from ..text.sentences import Sentence, storable
from .scoring import Scores

NATS_PER = {"bits": math.log(2), "nats": 1.0}
# For Python these four characters are blanks; for the word splitter, as in Unicode, they are not.
REGION = re.compile(r"[\S\x1c-\x1f]+")


class PlacedSentence(NamedTuple):
    """A sentence that is not blank, and its places in the text; all places count from 0."""

    line: int  # the number of its line in the file
    words: list[str]  # the sentence's n words
    regions: Sequence[int]  # for each word, its region in the sentence
    document: int = 0  # the number of the document
    document_sentence: int = 0  # the number of the sentence in the document
    document_region: int = 0  # the number, in the document, of the sentence's first region


def place_sentences(sentences: Iterable[Sentence], word_splitter: str) -> Iterator[PlacedSentence]:
    """Splits strings into words, leaves out blank sentences, and counts the places.

    Args:
        sentences: the lines of a text, in order; in a list of words, each word is a region.
        word_splitter: `"whitespace"` or `"ptb"`.
    """
    splitter = make_word_splitter(word_splitter)
    document = 0
    document_sentence = 0
    document_region = 0
    for line, sentence in enumerate(sentences):
        if isinstance(sentence, str) and word_splitter == "whitespace":
            sentence = sentence.split()
        if isinstance(sentence, str):
            encoded = to_words(sentence, False, splitter.pre_tokenize_str)
            words = encoded.words
            starts = [match.start() for match in REGION.finditer(sentence)]
            regions = [bisect_right(starts, start) - 1 for start, _ in encoded.offsets]
        else:
            words = list(sentence)
            regions = list(range(len(words)))
        if words:
            yield PlacedSentence(line, words, regions, document, document_sentence, document_region)
            document_sentence += 1
            document_region += regions[-1] + 1
        elif document_sentence > 0:
            document += 1
            document_sentence = 0
            document_region = 0


def surprisal_table(
    sentences: Sequence[PlacedSentence],
    scores: Scores,
    tokenizer: ElmoTokenizer,
    unit: str = "bits",
    skips_unknown: bool = False,
    by_region: bool = False,
) -> pa.Table:
    """The table that the module's docstring describes.

    Args:
        sentences: the sentences in the order of the scores.
        scores: the scores of these sentences.
        tokenizer: the one that made the corpus.
        unit: `"bits"` or `"nats"`.
        skips_unknown: whether the surprisals of unknown words are left empty.
        by_region: whether a row is a region, and not a word.
    """
    lengths = [len(sentence.words) + 2 for sentence in sentences]
    words: list[str] = []
    region_of_word: list[int | None] = []
    for sentence in sentences:
        words += [BEGIN_SENTENCE, *sentence.words, END_SENTENCE]
        region_of_word += [None, *sentence.regions, None]
    (unknown_class,) = tokenizer.word_classes([UNKNOWN_WORD])
    is_unknown = tokenizer.word_classes(words) == unknown_class
    is_left_empty = is_unknown if skips_unknown else np.zeros_like(is_unknown)

    def for_each_word(numbers: list[int]) -> pa.Array:
        """The number of each sentence, in each row of the sentence."""
        return pa.array(np.repeat(numbers, lengths))

    regions = pa.array(region_of_word, pa.int64())
    first_regions = for_each_word([sentence.document_region for sentence in sentences])
    # Forward, the first word of a sentence is not predicted, which is `<S>`; backward, the last one.
    forward = _surprisals(scores.forward, scores.starts[:-1], is_left_empty, unit)
    backward = _surprisals(scores.backward, scores.starts[1:], is_left_empty, unit)
    table = pa.table(
        {
            "sentence": for_each_word([sentence.line for sentence in sentences]),
            "position": pa.array(np.concatenate([np.arange(length) for length in lengths])),
            "word": pa.array([storable(word) for word in words], pa.string()),
            "is_unknown": pa.array(is_unknown),
            f"forward_{unit}": forward,
            f"backward_{unit}": backward,
            "document": for_each_word([sentence.document for sentence in sentences]),
            "document_sentence": for_each_word([sentence.document_sentence for sentence in sentences]),
            "region": regions,
            "document_region": pa.compute.add(regions, first_regions),
        }
    )
    if by_region:
        return _add_up_regions(table, unit)
    return table


def _surprisals(log_probs: np.ndarray, boundaries: np.ndarray, is_left_empty: np.ndarray, unit: str) -> pa.Array:
    """A column of surprisals, one for each word and boundary, empty at a boundary that is not predicted.

    Args:
        log_probs: `(W + M,)`, the scores of one direction.
        boundaries: `(M,)`, before which of `log_probs` the boundary of each sentence stands that is not predicted.
        is_left_empty: `(W + 2M,)`, further rows that are to be empty.
        unit: `"bits"` or `"nats"`.
    """
    surprisals = np.insert(-log_probs, boundaries, np.nan) / np.float32(NATS_PER[unit])
    surprisals[is_left_empty] = np.nan
    return pa.array(surprisals, from_pandas=True)


def _add_up_regions(table: pa.Table, unit: str) -> pa.Table:
    """A row for each region, out of the table with a row for each word."""
    keys = ["sentence", "document", "document_sentence", "region", "document_region"]
    surprisals = [f"forward_{unit}", f"backward_{unit}"]
    with_nulls = pa.compute.ScalarAggregateOptions(skip_nulls=False)
    aggregations: list[Any] = [("word", "list"), ("word", "count"), ("is_unknown", "max")]
    aggregations += [(name, "sum", with_nulls) for name in surprisals]
    of_regions = table.filter(pa.compute.is_valid(table["region"]))
    sums = of_regions.group_by(keys, use_threads=False).aggregate(aggregations)
    sums = sums.sort_by([("sentence", "ascending"), ("region", "ascending")])  # groups come in any order
    columns = {name: sums[name] for name in keys}
    # A word splitter does not change letters, and a region contains no blank.
    columns["word"] = pa.array(["".join(words) for words in sums["word_list"].to_pylist()], pa.string())
    columns["num_words"] = sums["word_count"]
    columns["is_unknown"] = sums["is_unknown_max"]
    for name in surprisals:
        columns[name] = sums[f"{name}_sum"].cast(pa.float32())
    return pa.table(columns)
