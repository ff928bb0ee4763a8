"""Vectors of many sentences in one file: hdf5 as AllenNLP wrote it, safetensors, NumPy's npz, parquet.

The suffix of the file selects the writer, which gets the records in the order of the sentences. In parquet each array
of a sentence is a column; elsewhere `17` names the vectors of sentence 17, and `17.scales` another array of it.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save_file

from ..disk.guarded_file import GuardedFile
from ..sentences import Sentence, storable

ROWS_PER_GROUP = 256
# A header of safetensors has at most 100 MB, and the entry of a tensor, with all its digits, below 100 bytes.
MOST_TENSORS = 1_000_000


@dataclass(frozen=True)
class Record:
    """One sentence and its vectors.

    Attributes:
        number: of the sentence in the whole input, from 0.
        sentence: raw text, or words.
        kept: the arrays kept of it, by name; `vectors` is `(L+1, words, 2P)`, `(words, 2P)` or `(2P,)`.
        line: the document and the index in it; None for the one document of a single file.
    """

    number: int
    sentence: Sentence
    kept: dict[str, np.ndarray]
    line: tuple[str, int] | None = None

    @property
    def text(self) -> str:
        """The sentence as one string that a file can hold, words joined by blanks."""
        return storable(self.sentence if isinstance(self.sentence, str) else " ".join(self.sentence))

    @property
    def named(self) -> dict[str, np.ndarray]:
        """The arrays by the names that they have among those of all sentences."""
        return {str(self.number) + (f".{name}" if name != "vectors" else ""): self.kept[name] for name in self.kept}


def write_hdf5(path: Path, records: Iterator[Record]) -> None:
    """Writes one dataset a sentence, named by its index, and `sentence_to_index`, a JSON object in one string.

    Source: `embed_file` of AllenNLP 0.9's `ElmoEmbedder`.
    """
    sentence_to_index = {}
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for record in records:
            for name, array in record.named.items():
                file.create_dataset(name, data=array)
            sentence_to_index[record.text] = str(record.number)
            target.check()
        dataset = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
        dataset[0] = json.dumps(sentence_to_index)


def write_safetensors(path: Path, records: Iterator[Record]) -> None:
    """Writes one tensor a sentence, named by its number; bits in uint16 as bfloat16."""
    arrays = {name: array for record in records for name, array in record.named.items()}
    if not any(array.dtype == np.uint16 for array in arrays.values()):
        save_file(arrays, path)
        return
    from safetensors.torch import save_file as save_tensors

    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    is_bits = {name: tensor.dtype == torch.uint16 for name, tensor in tensors.items()}
    save_tensors(
        {name: tensor.view(torch.bfloat16) if is_bits[name] else tensor for name, tensor in tensors.items()}, path
    )


def write_npz(path: Path, records: Iterator[Record]) -> None:
    """Writes one array a sentence, named by its number."""
    with path.open("wb") as file:
        np.savez(file, **{name: array for record in records for name, array in record.named.items()})  # type: ignore[arg-type]


def write_parquet(path: Path, records: Iterator[Record]) -> None:
    """Writes one row a sentence: `document` if there is one, `index`, `sentence`, and each array as nested lists."""
    writer = None
    try:
        while group := list(islice(records, ROWS_PER_GROUP)):
            lines = [record.line or ("", record.number) for record in group]
            columns = {"document": pa.array([storable(document) for document, _ in lines], pa.string())}
            columns = {} if group[0].line is None else columns
            columns["index"] = pa.array([index for _, index in lines], pa.int64())
            columns["sentence"] = pa.array([record.text for record in group], pa.string())
            for name in group[0].kept:
                columns[name] = _nested([record.kept[name] for record in group], is_fixed=name == "vectors")
            table = pa.table(columns)
            # A dictionary of numbers that differ takes most of the time, and makes the file a quarter larger.
            writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=["document"])
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


def _nested(arrays: list[np.ndarray], is_fixed: bool) -> pa.Array:
    """Lists of lists with the numbers inside, without a Python number for each; `is_fixed`: one innermost length."""
    flat = [array.reshape(-1) for array in arrays]
    column: pa.Array = pa.array(flat[0] if len(flat) == 1 else np.concatenate(flat))
    if is_fixed:
        column = pa.FixedSizeListArray.from_arrays(column, arrays[0].shape[-1])
    for axis in reversed(range(arrays[0].ndim - is_fixed)):
        lengths = [array.shape[axis] for array in arrays for _ in range(math.prod(array.shape[:axis]))]
        column = pa.ListArray.from_arrays(_offsets(lengths), column)
    return column


def _offsets(lengths: list[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
