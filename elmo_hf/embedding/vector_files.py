"""Vectors of many sentences in one file: hdf5 as AllenNLP wrote it, safetensors, NumPy's npz, parquet.

The suffix of the file selects the writer, which gets the records in the order of the sentences. In parquet each array
of a sentence is a column; in other formats `17` is the name of the vectors of sentence 17, `17.scales` of its scales.
Only parquet holds `chosen_words`, because arrays of safetensors and hdf5 as AllenNLP wrote it are numbers.

A protein is found by its name (`protein_names.py`), as in SeqVec's files, and by its number:

    .npz            `P12345`; the n-th protein is the n-th array
    .safetensors    `P12345`; the metadata `sentence_to_index`, a JSON object, has the number of each name
    .hdf5           `17`, the same array as `P12345`, and `sentence_to_index`. A name that is a number or a path (`a/b`)
                    is in `sentence_to_index` alone, because hdf5 would find another array, or none
    .parquet        column `sentence`
"""

import json
import math
import zipfile
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
from .protein_names import is_name_in_hdf5

ROWS_PER_GROUP = 256
# A header of safetensors has at most 100 MB, and the entry of a tensor, with all its digits, below 100 bytes.
MOST_TENSORS = 1_000_000
ENTRY_BYTES = 100
# The arrays of a sentence, and the ending of their names after its number.
SUFFIXES = {"vectors": "", "scales": ".scales", "positions": ".positions"}


@dataclass(frozen=True)
class Record:
    """One sentence and its vectors."""

    number: int  # the sentence's number in the whole input, from 0
    text: str  # the sentence as one string that a file can hold; a protein's name
    arrays: dict[str, np.ndarray]  # its arrays by name; `vectors` is `(L+1, words, 2P)`, `(words, 2P)` or `(2P,)`
    line: tuple[str, int]  # the document and the index in it
    is_protein: bool = False

    @property
    def key(self) -> str:
        """The name of its vectors in .npz and .safetensors: the number of a sentence, or the name of a protein."""
        return self.text if self.is_protein else str(self.number)

    def named(self, key: str) -> dict[str, np.ndarray]:
        """The arrays of numbers by their names in a file, which begin with a key."""
        return {f"{key}{suffix}": self.arrays[name] for name, suffix in SUFFIXES.items() if name in self.arrays}


def write_hdf5(path: Path, records: Iterator[Record]) -> None:
    """Writes one dataset a sentence, named by its index, and `sentence_to_index`, a JSON object in one string.

    A protein's dataset has its name, too.

    Source: `embed_file` of AllenNLP 0.9's `ElmoEmbedder`.
    """
    sentence_to_index = {}
    with GuardedFile(path) as target, h5py.File(target, "w") as file:
        for record in records:
            arrays = record.named(str(record.number))
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
            if record.is_protein and is_name_in_hdf5(record.text):
                for protein_name, name in zip(record.named(record.text), arrays, strict=True):
                    file[protein_name] = file[name]
            sentence_to_index[record.text] = str(record.number)
            target.check()
        dataset = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
        dataset[0] = json.dumps(sentence_to_index)


def write_safetensors(path: Path, records: Iterator[Record], most: int = MOST_TENSORS) -> None:
    """Writes one tensor a sentence, named by its key; uint16 holds the bits of bfloat16.

    Raises:
        ValueError: if the header would be too long.
    """
    arrays: dict[str, np.ndarray] = {}
    protein_to_index: dict[str, str] = {}
    for record in records:
        arrays |= record.named(record.key)
        if record.is_protein:
            protein_to_index[record.text] = str(record.number)
    size = ENTRY_BYTES * len(arrays)
    metadata = None
    if protein_to_index:
        metadata = {"sentence_to_index": json.dumps(protein_to_index)}
        # Each name stands in the entries of its arrays, and once in the metadata.
        size += sum(len(json.dumps(name)) for name in arrays) + len(json.dumps(metadata))
    if size > ENTRY_BYTES * most:
        raise ValueError(
            f"a .safetensors file holds at most {most:,} arrays, fewer with long names, because its header is limited, "
            f"found {len(arrays):,}; choose another format."
        )
    if all(array.dtype != np.uint16 for array in arrays.values()):
        save_arrays(arrays, path, metadata)  # takes a quarter of the time for each array
        return
    tensors = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(array)
        tensors[name] = tensor.view(torch.bfloat16) if tensor.dtype == torch.uint16 else tensor
    save_file(tensors, path, metadata)


def write_npz(path: Path, records: Iterator[Record]) -> None:
    """Writes one array a sentence, named by its key, in order; `numpy.savez` would take some names as arguments."""
    with zipfile.ZipFile(path, "w") as file:
        for record in records:
            for name, array in record.named(record.key).items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


def write_parquet(path: Path, records: Iterator[Record]) -> None:
    """Writes one row a sentence: `document`, `index` in it, `sentence`, and each array as nested lists."""
    with ExitStack() as stack:
        writer = None
        while group := list(islice(records, ROWS_PER_GROUP)):
            table = _parquet_rows(group)
            # Parquet's dictionaries would take most of the time for numbers, and make the file a quarter larger.
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema, use_dictionary=["document"]))
            writer.write_table(table)


def _parquet_rows(records: list[Record]) -> pa.Table:
    columns = {
        "document": pa.array([storable(record.line[0]) for record in records], pa.string()),
        "index": pa.array([record.line[1] for record in records], pa.int64()),
        "sentence": pa.array([record.text for record in records], pa.string()),
    }
    for name in records[0].arrays:
        arrays = [record.arrays[name] for record in records]
        columns[name] = _nested(arrays, is_fixed=name == "vectors")
    return pa.table(columns)


def write_chunk(path: Path, records: Iterator[Record]) -> None:
    """Writes consecutive sentences and their arrays for `read_chunk`."""
    arrays: dict[str, np.ndarray] = {}
    texts = []  # of each sentence its text and its chosen words
    is_protein = []
    for record in records:
        arrays |= record.named(str(record.number))
        chosen_words = record.arrays["chosen_words"].tolist() if "chosen_words" in record.arrays else []
        texts.append((record.text, chosen_words))
        is_protein.append(record.is_protein)
    if any(is_protein):
        arrays["is_protein"] = np.array(is_protein, dtype=np.uint8)
    arrays["texts"] = np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8)
    save_arrays(arrays, path)


def read_chunk(path: Path, first: int, lines: Iterable[tuple[str, int]]) -> Iterator[Record]:
    """The sentences of a chunk, numbered from `first`, with their documents and indices.

    Their arrays are read through the page cache on use, so memory does not grow with the joined file.
    """
    arrays = {name: tensor.numpy() for name, tensor in load_file(path).items()}
    texts = json.loads(arrays["texts"].tobytes())
    is_protein = [0] * len(texts)
    if "is_protein" in arrays:
        is_protein = arrays["is_protein"].tolist()
    for row, ((text, chosen_words), line) in enumerate(zip(texts, lines, strict=True)):
        number = first + row
        record_arrays = {}
        for name, suffix in SUFFIXES.items():
            key = f"{number}{suffix}"
            if key in arrays:
                record_arrays[name] = arrays[key]
        if "positions" in record_arrays:
            record_arrays["chosen_words"] = np.array(chosen_words, dtype=str)
        yield Record(number, text, record_arrays, line, is_protein[row] == 1)


WRITERS: dict[str, Callable[[Path, Iterator[Record]], None]] = {
    ".hdf5": write_hdf5,
    ".h5": write_hdf5,
    ".safetensors": write_safetensors,
    ".npz": write_npz,
    ".parquet": write_parquet,
}


def _nested(arrays: list[np.ndarray], is_fixed: bool) -> pa.Array:
    """Makes nested lists of numbers without Python numbers; with `is_fixed` all innermost lists are equally long."""
    numbers = [array.reshape(-1) for array in arrays]
    column: pa.Array = pa.array(numbers[0] if len(numbers) == 1 else np.concatenate(numbers))
    num_list_axes = arrays[0].ndim
    if is_fixed:
        column = pa.FixedSizeListArray.from_arrays(column, arrays[0].shape[-1])
        num_list_axes -= 1
    for axis in reversed(range(num_list_axes)):
        lengths = []
        for array in arrays:
            num_lists = math.prod(array.shape[:axis])
            lengths += [array.shape[axis]] * num_lists
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        column = pa.ListArray.from_arrays(offsets, column)
    return column
