"""Surprisal word by word, as a table for psycholinguists to compare with reading times.

It has one row for each word and boundary of each sentence: `sentence` (line of the file, from 0), `position` (0 is
`<S>`), `word`, `is_unknown` (scored as `<UNK>`), `forward_bits` and `backward_bits`. The forward model never predicts
`<S>`, the backward model never `</S>`; those cells are empty, and so are those of words that were not scored.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ..files import new_file
from ..language_model.scoring import Scores
from ..sentences import storable
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from ..tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD
from .arguments import check_table

SCHEMA = pa.schema(
    {
        "sentence": pa.int64(),
        "position": pa.int64(),
        "word": pa.string(),
        "is_unknown": pa.bool_(),
        "forward_bits": pa.float32(),
        "backward_bits": pa.float32(),
    }
)
NOTHING, MISSING = np.zeros(0, dtype=np.float32), np.array([np.nan], dtype=np.float32)


def write_table(
    path: Path, sentences: Sequence[tuple[int, Sequence[str]]], scores: Scores, tokenizer: ElmoTokenizer
) -> None:
    """Writes the table, which appears when it is complete.

    Args:
        path: `*.tsv` or `*.parquet`.
        sentences: line of the file and words of each sentence, in the order of the scores.
        scores: the scores of these sentences.
        tokenizer: the one that made the corpus.

    Raises:
        ValueError: if `check_table` refuses the path.
    """
    check_table(path)
    words = [word for _, sentence in sentences for word in (BEGIN_SENTENCE, *sentence, END_SENTENCE)]
    forward, backward = [NOTHING], [NOTHING]
    for index in range(len(sentences)):
        forward_bits, backward_bits = scores.surprisals(index)
        forward += [MISSING, forward_bits]
        backward += [backward_bits, MISSING]
    columns = {
        "sentence": [line for line, sentence in sentences for _ in range(len(sentence) + 2)],
        "position": [position for _, sentence in sentences for position in range(len(sentence) + 2)],
        "word": [storable(word) for word in words],
        "is_unknown": tokenizer.word_classes(words) == tokenizer.word_classes([UNKNOWN_WORD])[0],
        "forward_bits": pa.array(np.concatenate(forward), from_pandas=True),
        "backward_bits": pa.array(np.concatenate(backward), from_pandas=True),
    }
    table = pa.table(columns, schema=SCHEMA)
    with new_file(path) as partial:
        if path.suffix == ".parquet":
            pa.parquet.write_table(table, partial)
        else:
            pa.csv.write_csv(table, partial, pa.csv.WriteOptions(delimiter="\t", quoting_style="needed"))
