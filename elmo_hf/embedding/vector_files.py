"""Vectors of many sentences in one file: hdf5 as AllenNLP wrote it, safetensors, NumPy's npz, parquet.

The suffix of the file selects the writer, which gets the records in the order of the sentences. In parquet each array
of a sentence is a column; in other formats `17` is the name of the vectors of sentence 17, `17.scales` of its scales.
Only parquet holds `chosen_words`, because arrays of safetensors and hdf5 as AllenNLP wrote it are numbers.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from ..disk.guarded_file import GuardedFile
from ..text.sentences import storable

ROWS_PER_GROUP = 256
# A header of safetensors has at most 100 MB, and the entry of a tensor, with all its digits, below 100 bytes.
MOST_TENSORS = 1_000_000
# The arrays of a sentence, and the ending of their names after its number.
SUFFIXES = {"vectors": "", "scales": ".scales", "positions": ".positions"}


@dataclass(frozen=True)
class Record:
    """One sentence and its vectors."""

    number: int  # the sentence's number in the whole input, from 0
    text: str  # the sentence as one string that a file can hold
    arrays: dict[str, np.ndarray]  # its arrays by name; `vectors` is `(L+1, words, 2P)`, `(words, 2P)` or `(2P,)`
    line: tuple[str, int]  # the document and the index in it

    @property
    def named(self) -> dict[str, np.ndarray]:
        """The arrays of numbers by their names in a file of all sentences."""
        return {f"{self.number}{end}": self.arrays[name] for name, end in SUFFIXES.items() if name in self.arrays}


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


def write_safetensors(path: Path, records: Iterator[Record], most: int = MOST_TENSORS) -> None:
    """Writes one tensor a sentence, named by its number; uint16 holds the bits of bfloat16."""
    arrays = {name: array for record in records for name, array in record.named.items()}
    if len(arrays) > most:
        raise ValueError(
            f"a .safetensors file holds at most {most:,} arrays, because its header is limited, found "
            f"{len(arrays):,}; choose another format."
        )
    if all(array.dtype != np.uint16 for array in arrays.values()):
        save_arrays(arrays, path)  # takes a quarter of the time for each array
        return
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    is_bits = {name: tensor.dtype == torch.uint16 for name, tensor in tensors.items()}
    save_file({name: each.view(torch.bfloat16) if is_bits[name] else each for name, each in tensors.items()}, path)


def write_npz(path: Path, records: Iterator[Record]) -> None:
    """Writes one array a sentence, named by its number."""
    with path.open("wb") as file:
        np.savez(file, **{name: array for record in records for name, array in record.named.items()})  # type: ignore[arg-type]


def write_parquet(path: Path, records: Iterator[Record]) -> None:
    """Writes one row a sentence: `document`, `index` in it, `sentence`, and each array as nested lists."""
    with ExitStack() as stack:
        writer = None
        while group := list(islice(records, ROWS_PER_GROUP)):
            columns = {"document": pa.array([storable(record.line[0]) for record in group], pa.string())}
            columns["index"] = pa.array([record.line[1] for record in group], pa.int64())
            columns["sentence"] = pa.array([record.text for record in group], pa.string())
            for name in group[0].arrays:
                columns[name] = _nested([record.arrays[name] for record in group], is_fixed=name == "vectors")
            table = pa.table(columns)
            # Parquet's dictionaries would take most of the time for numbers, and make the file a quarter larger.
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema, use_dictionary=["document"]))
            writer.write_table(table)


def write_chunk(path: Path, records: Iterator[Record]) -> None:
    """Writes consecutive sentences and their arrays for `read_chunk`."""
    kept = [*records]
    arrays = {name: array for record in kept for name, array in record.named.items()}
    words = (record.arrays.get("chosen_words", np.array([])).tolist() for record in kept)
    texts = json.dumps([(record.text, own) for record, own in zip(kept, words, strict=True)]).encode()
    save_arrays(arrays | {"texts": np.frombuffer(texts, dtype=np.uint8)}, path)


def read_chunk(path: Path, first: int, lines: Iterable[tuple[str, int]]) -> Iterator[Record]:
    """The sentences of a chunk, numbered from `first`, with their documents and indices.

    Their arrays are read through the page cache on use, so memory does not grow with the joined file.
    """
    arrays = {name: tensor.numpy() for name, tensor in load_file(path).items()}
    texts = json.loads(arrays["texts"].tobytes())
    for number, ((text, words), line) in enumerate(zip(texts, lines, strict=True), first):
        own = {name: f"{number}{suffix}" for name, suffix in SUFFIXES.items()}
        found = {name: arrays[each] for name, each in own.items() if each in arrays}
        found |= {"chosen_words": np.array(words, dtype=str)} if "positions" in found else {}
        yield Record(number, text, found, line)


WRITERS: dict[str, Callable[[Path, Iterator[Record]], None]] = {
    ".hdf5": write_hdf5,
    ".h5": write_hdf5,
    ".safetensors": write_safetensors,
    ".npz": write_npz,
    ".parquet": write_parquet,
}


def _nested(arrays: list[np.ndarray], is_fixed: bool) -> pa.Array:
    """Makes nested lists of numbers without Python numbers; with `is_fixed` all innermost lists are equally long."""
    flat = [array.reshape(-1) for array in arrays]
    column: pa.Array = pa.array(flat[0] if len(flat) == 1 else np.concatenate(flat))
    if is_fixed:
        column = pa.FixedSizeListArray.from_arrays(column, arrays[0].shape[-1])
    for axis in reversed(range(arrays[0].ndim - is_fixed)):
        lengths = [array.shape[axis] for array in arrays for _ in range(math.prod(array.shape[:axis]))]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        column = pa.ListArray.from_arrays(offsets, column)
    return column
