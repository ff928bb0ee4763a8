"""A small corpus, the model run alone on a sentence, and every output format of `embed` read back."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.shards import EmbeddingOptions, embed_documents
from elmo_hf.embedding.window_vectors import Selection

SUFFIXES = [".hdf5", ".safetensors", ".npz", ".parquet"]
LAYERS = ["all", "top", "mix", "average", "sum", "concat", "pooled", "pooled_sum", "1"]
SENTENCES = [
    "The ferry left the harbour at 7:45, ten minutes late.",
    "",
    "Yes",
    "naïve Übung 日本語 " + "ü" * 40,
    "No.",
    "The ferry left the harbour at 7:45, ten minutes late.",
]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES)
# A sum of floats in another order, as of a batch with padding, differs in the last bits: relative to numbers above 1.
TOLERANCE = 1e-6


def embed_file(model: ElmoModel, tokenizer: ElmoTokenizer, source: Any, output: str, **options: Any) -> int:
    """Embeds a list of documents, or a stream; into a folder if the output ends with a slash, else into one file."""
    parts = {field.name: options.pop(field.name) for field in fields(Selection) if field.name in options}
    reading = {"split_into_words": options.pop("split_into_words", False)}
    reading["protein_names"] = options.pop("protein_names", None)
    documents = Documents(["-"], stream=source, **reading)
    if isinstance(source, list):
        documents = Documents.find(source, output, **reading)
    selection = Selection(**parts)
    count = embed_documents(model, tokenizer, documents, output, selection, EmbeddingOptions(**options))
    return count.sentences


@torch.no_grad()
def embed_alone(
    model: ElmoModel, tokenizer: ElmoTokenizer, sentences: list[str] | list[list[str]], layers: str
) -> list[np.ndarray]:
    """The vectors of sentences that the model reads one at a time, boundaries cut off, with each kind spelled out.

    The mix is that of `mixed_model`.
    """
    found = []
    for sentence in sentences:
        inputs = tokenizer([sentence], is_split_into_words=isinstance(sentence, list), return_tensors="pt")
        output = model.eval()(**inputs, output_hidden_states=True)
        start = tokenizer.num_special_tokens_to_add() // 2
        every = torch.stack([layer[0, start : len(layer[0]) - start] for layer in output.hidden_states])
        mix = 1.5 * (0.2 * every[0] + 0.5 * every[1] + 0.3 * every[2])
        kinds = {
            "all": every,
            "top": every[-1],
            "mix": mix,
            "average": (every[0] + every[1] + every[2]) / 3,
            "sum": every[0] + every[1] + every[2],
            "concat": torch.cat([every[0], every[1], every[2]], dim=1),
            "pooled": mix.sum(dim=0) / max(len(mix), 1),
            "1": every[1],
            "pooled_sum": every.sum(dim=(0, 1)) / max(len(mix), 1),
        }
        found.append(kinds[layers].float().numpy())
    return found


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of a file by its name, bfloat16 as float32; nested lists keep no shape if they are empty."""
    if path.suffix in (".hdf5", ".h5"):
        with h5py.File(path, "r") as file:
            return {name: file[name][()] for name in file if name != "sentence_to_index"}
    if path.suffix == ".safetensors":
        tensors = load_file(path).items()
        return {name: (each.float() if each.dtype == torch.bfloat16 else each).numpy() for name, each in tensors}
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    table, arrays = pq.read_table(path), {}
    for name in ("vectors", "scales", "positions", "chosen_words"):
        if name in table.column_names:
            number = table.schema.field(name).type
            while hasattr(number, "value_type"):
                number = number.value_type
            rows = zip(table["index"].to_pylist(), table[name].to_pylist(), strict=True)
            suffix = "" if name == "vectors" else f".{name}"
            arrays |= {f"{index}{suffix}": np.array(row, dtype=number.to_pandas_dtype()) for index, row in rows}
    return arrays


def read_vectors(path: str | Path, first: int = 0) -> list[np.ndarray]:
    """The vectors of every sentence by its number, which must run from `first`."""
    arrays = read_arrays(Path(path))
    assert sorted(arrays, key=int) == [str(number) for number in range(first, first + len(arrays))]
    return [arrays[name] for name in sorted(arrays, key=int)]


def assert_all_close(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = TOLERANCE) -> None:
    assert len(found) == len(expected)
    for index, (array, exact) in enumerate(zip(found, expected, strict=True)):
        assert array.size == exact.size, index
        differences = np.abs(array.reshape(exact.shape) - exact) / np.maximum(1, np.abs(exact))
        assert differences.max(initial=0) <= tolerance, f"sentence {index}: {differences.max()}"
