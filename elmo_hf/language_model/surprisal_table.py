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
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from ..disk.tables import write_text_table
from ..disk.whole_files import new_file
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


def write_table(
    path: Path,
    sentences: Sequence[PlacedSentence],
    scores: Scores,
    tokenizer: ElmoTokenizer,
    unit: str = "bits",
    skips_unknown: bool = False,
    by_region: bool = False,
) -> None:
    """Writes the table; the file exists only once it is complete.

    Args:
        path: `*.parquet`, or a table of text as in `write_text_table`, `*.csv` or `*.tsv`.
        sentences: the sentences in the order of the scores.
        scores: the scores of these sentences.
        tokenizer: the one that made the corpus.
        unit: `"bits"` or `"nats"`.
        skips_unknown: whether the surprisals of unknown words are left empty.
        by_region: whether a row is a region, and not a word.
    """
    save_table(path, surprisal_table(sentences, scores, tokenizer, unit, skips_unknown, by_region))


def save_table(path: Path, table: pa.Table) -> None:
    """Writes a table as the suffix says, `*.parquet`, `*.csv` or `*.tsv`; it exists only once it is complete."""
    if path.suffix == ".parquet":
        with new_file(path) as partial:
            pa.parquet.write_table(table, partial)
    else:
        write_text_table(path, table)


def surprisal_table(
    sentences: Sequence[PlacedSentence],
    scores: Scores,
    tokenizer: ElmoTokenizer,
    unit: str = "bits",
    skips_unknown: bool = False,
    by_region: bool = False,
) -> pa.Table:
    """The table; arguments are those of `write_table`."""
    words = [word for each in sentences for word in (BEGIN_SENTENCE, *each.words, END_SENTENCE)]
    is_unknown = tokenizer.word_classes(words) == tokenizer.word_classes([UNKNOWN_WORD])[0]
    lengths = [len(each.words) + 2 for each in sentences]
    places = {
        name: pa.array(np.repeat([getattr(each, name) for each in sentences], lengths))
        for name in PlacedSentence._fields
        if name not in ("words", "regions")
    }
    columns = {
        "sentence": places["line"],
        "position": pa.array(np.concatenate([np.arange(length) for length in lengths])),
        "word": pa.array([storable(word) for word in words], pa.string()),
        "is_unknown": pa.array(is_unknown),
    }
    found = {"forward": (scores.forward, scores.starts[:-1]), "backward": (scores.backward, scores.starts[1:])}
    for name, (log_probs, missing) in found.items():
        values = np.insert(-log_probs, missing, np.nan) / np.float32(NATS_PER[unit])
        values[is_unknown & skips_unknown] = np.nan
        columns[f"{name}_{unit}"] = pa.array(values, from_pandas=True)
    regions = pa.array([region for each in sentences for region in (None, *each.regions, None)], pa.int64())
    columns |= {"document": places["document"], "document_sentence": places["document_sentence"], "region": regions}
    columns["document_region"] = pa.compute.add(regions, places["document_region"])
    if by_region:
        return _add_up_regions(pa.table(columns), unit)
    return pa.table(columns)


def _add_up_regions(table: pa.Table, unit: str) -> pa.Table:
    keys = ["sentence", "document", "document_sentence", "region", "document_region"]
    bits = [f"{direction}_{unit}" for direction in ("forward", "backward")]
    with_nulls = pa.compute.ScalarAggregateOptions(skip_nulls=False)
    sums = [("word", "list"), ("word", "count"), ("is_unknown", "max"), *((name, "sum", with_nulls) for name in bits)]
    found = table.filter(pa.compute.is_valid(table["region"])).group_by(keys, use_threads=False).aggregate(sums)
    found = found.sort_by([("sentence", "ascending"), ("region", "ascending")])  # groups come in any order
    # A word splitter does not change letters, and a region contains no blank.
    words = pa.array(["".join(words) for words in found["word_list"].to_pylist()], pa.string())
    columns = {name: found[name] for name in keys} | {"word": words, "num_words": found["word_count"]}
    columns["is_unknown"] = found["is_unknown_max"]
    return pa.table(columns | {name: found[f"{name}_sum"].cast(pa.float32()) for name in bits})
