"""Surprisal word by word, as a table: what psycholinguists put beside reading times.

One row for each word of each sentence and for its two boundaries: `sentence` (line of the file, from 0), `position` (0
is `<S>`), `word`, `is_unknown` (scored as `<UNK>`), `forward_bits` and `backward_bits`. `<S>` is never predicted
forward, `</S>` never backward; those cells are empty, as are those of words that were not scored.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ..language_model.scoring import Scores
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from ..tokenizer.word_codec import BEGIN_SENTENCE, END_SENTENCE, UNKNOWN_WORD

SUFFIXES = (".tsv", ".parquet")
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


def check_table(path: Path) -> None:
    """Checks a table's name before the work begins.

    Raises:
        ValueError: if the suffix is none of `SUFFIXES`, or there is no such folder.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must end in {' or '.join(SUFFIXES)}.")
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}.")


def write_table(
    path: Path, sentences: Sequence[tuple[int, Sequence[str]]], scores: Scores, tokenizer: ElmoTokenizer
) -> None:
    """Writes the table, under a temporary name first.

    Args:
        path: `*.tsv` or `*.parquet`.
        sentences: number in the file and words of each sentence, in the order of the scores.
        scores: of these sentences.
        tokenizer: that made the corpus.

    Raises:
        ValueError: if the suffix is none of `SUFFIXES`.
    """
    check_table(path)
    words = [word for _, sentence in sentences for word in (BEGIN_SENTENCE, *sentence, END_SENTENCE)]
    forward, backward = [NOTHING], [NOTHING]
    for index in range(len(sentences)):
        forward_bits, backward_bits = scores.surprisals(index)
        forward += [MISSING, forward_bits]
        backward += [backward_bits, MISSING]
    columns = {
        "sentence": [number for number, sentence in sentences for _ in range(len(sentence) + 2)],
        "position": [position for _, sentence in sentences for position in range(len(sentence) + 2)],
        "word": words,
        "is_unknown": tokenizer.word_classes(words) == tokenizer.word_classes([UNKNOWN_WORD])[0],
        "forward_bits": pa.array(np.concatenate(forward), from_pandas=True),
        "backward_bits": pa.array(np.concatenate(backward), from_pandas=True),
    }
    table = pa.table(columns, schema=SCHEMA)
    partial = path.with_name(f".{path.name}.partial")
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, partial)
    else:
        pa.csv.write_csv(table, partial, pa.csv.WriteOptions(delimiter="\t", quoting_style="needed"))
    partial.replace(path)
