"""Vectors of many sentences in one file: hdf5 as AllenNLP wrote it, safetensors, NumPy's npz, parquet.

The suffix of the file selects the writer, which gets the records in the order of the sentences.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from ..guarded_file import GuardedFile
from ..sentences import Sentence, storable

ROWS_PER_GROUP = 256


@dataclass(frozen=True)
class Record:
    """One sentence and its vectors.

    Attributes:
        index: of the sentence in the input, from 0.
        sentence: raw text, or words.
        vectors: `(L+1, words, 2P)`, `(words, 2P)` or `(2P,)`.
    """

    index: int
    sentence: Sentence
    vectors: np.ndarray

    @property
    def text(self) -> str:
        """The sentence as one string that a file can hold, words joined by blanks."""
        return storable(self.sentence if isinstance(self.sentence, str) else " ".join(self.sentence))


def write_hdf5(path: Path, records: Iterator[Record]) -> None:
    """Writes one dataset a sentence, named by its index, and `sentence_to_index`, a JSON object in one string.

    Source: `embed_file` of AllenNLP 0.9's `ElmoEmbedder`.
    """
    sentence_to_index = {}
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for record in records:
            file.create_dataset(str(record.index), data=record.vectors)
            sentence_to_index[record.text] = str(record.index)
            target.check()
        dataset = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
        dataset[0] = json.dumps(sentence_to_index)


def write_safetensors(path: Path, records: Iterator[Record]) -> None:
    """Writes one tensor a sentence, named by its index."""
    save_file({str(record.index): record.vectors for record in records}, path)


def write_npz(path: Path, records: Iterator[Record]) -> None:
    """Writes one array a sentence, named by its index."""
    with path.open("wb") as file:
        np.savez(file, **{str(record.index): record.vectors for record in records})  # type: ignore[arg-type]


def write_parquet(path: Path, records: Iterator[Record]) -> None:
    """Writes one row a sentence: `index`, `sentence`, and `vectors` as nested lists."""
    writer = None
    try:
        for group in _groups(records, ROWS_PER_GROUP):
            table = pa.table(
                {
                    "index": pa.array([record.index for record in group], pa.int64()),
                    "sentence": pa.array([record.text for record in group], pa.string()),
                    "vectors": _nested(group),
                }
            )
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is None:
            pq.write_table(pa.table({"index": pa.array([], pa.int64()), "sentence": pa.array([], pa.string())}), path)
    finally:
        if writer is not None:
            writer.close()


WRITERS: dict[str, Callable[[Path, Iterator[Record]], None]] = {
    ".hdf5": write_hdf5,
    ".h5": write_hdf5,
    ".safetensors": write_safetensors,
    ".npz": write_npz,
    ".parquet": write_parquet,
}


def _groups(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _nested(group: list[Record]) -> pa.Array:
    """Lists of lists with the numbers inside, without a Python number for each."""
    arrays = [record.vectors for record in group]
    width, depth = arrays[0].shape[-1], arrays[0].ndim
    column: pa.Array = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
    column = pa.FixedSizeListArray.from_arrays(column, width)
    if depth == 1:
        return column
    num_rows = [array.shape[-2] for array in arrays for _ in range(array.shape[0] if depth == 3 else 1)]
    column = pa.ListArray.from_arrays(_offsets(num_rows), column)
    if depth == 2:
        return column
    return pa.ListArray.from_arrays(_offsets([array.shape[0] for array in arrays]), column)


def _offsets(lengths: list[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
