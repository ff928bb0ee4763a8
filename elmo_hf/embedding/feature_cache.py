"""Computes the biLM's layers of a dataset once and keeps them beside the tokenized texts.

While the biLM is frozen, a text has the same layers in every epoch, and running the biLM is most of the work of
training a model for a task. A dataset with a column `bilm_layers` trains the same model without running it: mixes, task
encoder and classifier learn as before, and the trained model still reads texts.

    tokenized dataset -> add_bilm_layers -> the dataset with `bilm_layers` (T, L+1, 2P) in each row
    tokenized dataset, file of `elmo-hf embed --layers all` -> add_embedded_layers -> the same column

Glossary: T positions of a row, boundaries included, C characters per word, P projection, L layers, n words.

Size: 4 (L+1) 2P bytes a word in float32, 12 kB with the original model; half as much in float16. `datasets` keeps the
column in a file, which is read through the page cache.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import datasets
import h5py
import numpy as np
from datasets.fingerprint import Hasher

from ..files import sha256_of_file, sha256_of_model
from ..tasks.task_model import ElmoTaskModel
from ..tokenizer.tokenization_elmo import ElmoTokenizer

# Rows that are sorted by length together, so that there is little padding.
WINDOW_ROWS = 1024
# Settings that change a biLM's layers but not the shapes of its weights.
SETTINGS = ("char_activation", "cell_clip", "projection_clip", "use_skip_connections", "forget_bias")


def add_bilm_layers(
    dataset: datasets.Dataset,
    model: ElmoTaskModel,
    tokenizer: ElmoTokenizer,
    *,
    batch_size: int = 32,
    dtype: str = "float32",
    folder: str | Path | None = None,
) -> datasets.Dataset:
    """Adds the layers that a model with a frozen biLM would compute for each row.

    Args:
        dataset: tokenized texts or pairs of texts, not padded.
        model: for the task, on the device to run on; its classifier is not used.
        tokenizer: the one that made `input_ids`.
        batch_size: rows that run at once.
        dtype: of the numbers kept, `"float32"` or `"float16"`; the model computes in its own.
        folder: where to keep the result, under a name that depends on dataset and biLM; None: where `datasets` decides,
            which is in memory if the dataset was not read from a file.

    Returns:
        the dataset with `bilm_layers`, in NumPy format. A kept result for the same dataset and biLM is used again.
    """
    layer_shape = (model.config.num_hidden_layers + 1, model.config.hidden_size)

    def compute(rows: dict[str, list[Any]]) -> dict[str, list[np.ndarray]]:
        lengths = [len(ids) for ids in rows["input_ids"]]
        layers: list[np.ndarray] = [np.empty(0)] * len(lengths)
        by_length = np.argsort(lengths, kind="stable")
        for chosen in np.split(by_length, range(batch_size, len(lengths), batch_size)):
            texts = {"input_ids": [np.asarray(rows["input_ids"][row], dtype=np.int64) for row in chosen]}
            batch = tokenizer.pad(texts, padding_side="right", return_tensors="pt").to(model.device)
            computed = model.compute_bilm_layers(**batch).float().cpu().numpy().astype(dtype)
            for row, values in zip(chosen, computed, strict=True):
                layers[row] = values[: lengths[row]]
        return {"bilm_layers": layers, "input_ids": _compact(rows["input_ids"])}

    settings = json.dumps([dtype, model.num_texts, *(getattr(model.config, name) for name in SETTINGS)])
    weights = [*model.elmo.token_encoder.state_dict().values(), *model.elmo.bilm.state_dict().values()]
    # The default fingerprint would depend on all weights, the classifier's too.
    fingerprint = Hasher.hash([dataset._fingerprint, sha256_of_model(settings, weights)])
    return dataset.map(
        compute,
        batched=True,
        batch_size=WINDOW_ROWS,
        features=_features(dataset, model, layer_shape, dtype),
        new_fingerprint=fingerprint,
        cache_file_name=None if folder is None else str(Path(folder) / f"{fingerprint}.arrow"),
        desc="Running the biLM",
    ).with_format("numpy")


def add_embedded_layers(
    dataset: datasets.Dataset, model: ElmoTaskModel, tokenizer: ElmoTokenizer, *files: str | Path
) -> datasets.Dataset:
    """Adds the layers that `elmo-hf embed --layers all` wrote to an `.hdf5` file.

    Args:
        dataset: tokenized texts, not padded; row i is sentence i of each file.
        model: for the task, with the biLM that made the files.
        tokenizer: the one that made `input_ids`.
        *files: one `.hdf5` file; for pairs of texts, one of the first texts and one of the second.

    Returns:
        the dataset with `bilm_layers`, in NumPy format; boundaries have zeros, which no model for a task reads.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if a file has a different number of sentences, words or layers.
    """
    layer_shape = (model.config.num_hidden_layers + 1, model.config.hidden_size)
    paths = [Path(path) for path in files]
    if len(paths) != model.num_texts:
        raise ValueError(f"{type(model).__name__} reads {model.num_texts} text(s) a row, found {len(paths)} files.")
    with contextlib.ExitStack() as stack:
        vectors = [stack.enter_context(_open_embedded(path, len(dataset))) for path in paths]
        dtype = str(vectors[0]["0"].dtype) if len(dataset) else "float32"

        def read(rows: dict[str, list[Any]], indices: list[int]) -> dict[str, list[np.ndarray]]:
            layers = []
            for ids, index in zip(rows["input_ids"], indices, strict=True):
                special = tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True)
                words = _words_of(vectors, index, layer_shape)
                if len(words) != special.count(0):
                    raise ValueError(
                        f"row {index} of the dataset has {special.count(0)} words and its vectors in "
                        f"{' and '.join(path.name for path in paths)} are of {len(words)}; embed the same words."
                    )
                values = np.zeros((len(special), *layer_shape), dtype=dtype)
                values[np.array(special) == 0] = words
                layers.append(values)
            return {"bilm_layers": layers, "input_ids": _compact(rows["input_ids"])}

        return dataset.map(
            read,
            batched=True,
            with_indices=True,
            features=_features(dataset, model, layer_shape, dtype),
            new_fingerprint=Hasher.hash([dataset._fingerprint, *map(sha256_of_file, paths)]),
            desc="Reading vectors",
        ).with_format("numpy")


def _open_embedded(path: Path, num_sentences: int) -> h5py.File:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    if not h5py.is_hdf5(path):
        raise ValueError(f"{path} must be an .hdf5 file of `elmo-hf embed --layers all`.")
    file = h5py.File(path, "r")
    if "0.scales" in file or "0.positions" in file:
        file.close()
        raise ValueError(f"{path} holds int8 or chosen words; embed all words in float32 or float16.")
    found = sum(name.isdigit() for name in file)
    if found != num_sentences:
        file.close()
        raise ValueError(
            f"{path} holds {found} sentences and the dataset {num_sentences} rows; the numbers must be equal."
        )
    return file


def _words_of(vectors: list[h5py.File], index: int, layer_shape: tuple[int, int]) -> np.ndarray:
    """Reads the layers of all words of one row's texts: `(n, L+1, 2P)`."""
    arrays = [file[str(index)][()] for file in vectors]
    for file, array in zip(vectors, arrays, strict=True):
        if array.ndim != 3 or (array.shape[0], array.shape[2]) != layer_shape:
            raise ValueError(
                f"sentence {index} of {file.filename} must have shape (layers + 1, words, 2 * projection) = "
                f"({layer_shape[0]}, words, {layer_shape[1]}), found {array.shape}; `elmo-hf embed` writes it with "
                "`--layers all`."
            )
    return np.concatenate(arrays, axis=1).transpose(1, 0, 2)


def _compact(input_ids: list[Any]) -> list[np.ndarray]:
    """Converts ids to arrays, which `datasets` stores without Python numbers."""
    return [np.asarray(ids) for ids in input_ids]


def _features(
    dataset: datasets.Dataset, model: ElmoTaskModel, layer_shape: tuple[int, int], dtype: str
) -> datasets.Features:
    """Types of the columns: arrays with one entry per word, which are read without Python numbers."""
    features = datasets.Features(dataset.features)
    features["bilm_layers"] = datasets.Array3D((None, *layer_shape), dtype)
    if model.config.token_encoder == "char_cnn":
        id_type = "int16" if model.config.vocab_size <= 1 << 15 else "int32"
        features["input_ids"] = datasets.Array2D((None, *model.config.id_shape), id_type)
    return features
