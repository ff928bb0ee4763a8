"""Computes the biLM's layers of a dataset once and keeps them beside the tokenized texts.

While the biLM is frozen, a text has the same layers in every epoch, and the biLM takes most of the training time. With
a column `bilm_layers` in the dataset, the biLM does not run: mixes, task encoder and classifier learn as before, and
the trained model still takes texts.

    tokenized dataset -> add_bilm_layers -> the dataset with `bilm_layers` (T, L+1, 2P) in each row

Glossary: T positions of a row, boundaries included, P projection, L layers.

Size: 4 (L+1) 2P bytes a word in float32, 12 kB with the original model; half as much in float16. `datasets` keeps the
column in a file, which is read through the page cache.

In a folder of the caller's, NAME.arrow has its SHA-256 beside it, in NAME.arrow.sha256 as `sha256sum` writes it. A file
without one was kept by an earlier version, and gets it at its next use if that is possible. At each use the whole file
is read once for it.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets.fingerprint import Hasher

from ..disk.checksums import parse_sums, sha256_of_file, sha256_of_model, sum_lines
from ..disk.whole_files import move_into_place, new_file, remove_leftovers, workplace
from ..model.heads_elmo import ElmoTaskModel
from ..public import ElmoTokenizer

# Rows that are sorted by length together, which keeps padding small.
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
        model: the task's model, on the device to run on; its classifier is not used.
        tokenizer: the one that made `input_ids`.
        batch_size: rows that run at once.
        dtype: the type of the numbers kept, `"float32"` or `"float16"`; the model computes in its own type.
        folder: the folder for the result, a file whose name depends on dataset and biLM, and which gets it when it is
            complete; None: `datasets` decides, and keeps the result in memory if the dataset was not read from a file.

    Returns:
        the dataset with `bilm_layers`, in NumPy format. A kept result for the same dataset and biLM is used again.

    Raises:
        ValueError: if the kept result in `folder` cannot be read, has another number of rows, or was changed.
        OSError: if there is no room for the result.
    """
    # Arrays with one entry a word, which are read without Python numbers.
    features = datasets.Features(dataset.features)
    layer_shape = (model.config.num_hidden_layers + 1, model.config.hidden_size)
    features["bilm_layers"] = datasets.Array3D((None, *layer_shape), dtype)
    if model.config.token_encoder == "char_cnn":
        id_type = "int16" if model.config.vocab_size <= 1 << 15 else "int32"
        features["input_ids"] = datasets.Array2D((None, *model.config.id_shape), id_type)

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
        return {"bilm_layers": layers, "input_ids": [np.asarray(ids) for ids in rows["input_ids"]]}

    settings = json.dumps([dtype, model.num_texts, *(getattr(model.config, name) for name in SETTINGS)])
    weights = [*model.elmo.token_encoder.state_dict().values(), *model.elmo.bilm.state_dict().values()]
    # The default fingerprint would depend on all weights, including the classifier's.
    fingerprint = Hasher.hash([dataset._fingerprint, sha256_of_model(settings, weights)])
    run = partial(
        dataset.map,
        compute,
        batched=True,
        batch_size=WINDOW_ROWS,
        features=features,
        new_fingerprint=fingerprint,
        desc="Running the biLM",
    )
    if folder is None:
        return run().with_format("numpy")
    file = Path(folder) / f"{fingerprint}.arrow"
    _remove_leftovers(file.parent)
    if not file.exists():
        _compute_kept(run, file)
    _check_kept(file, len(dataset))
    return run(cache_file_name=str(file), load_from_cache_file=True).with_format("numpy")


def _remove_leftovers(folder: Path) -> None:
    """Removes what killed processes left of any results: after a change of dataset or biLM, none has these names."""
    for pattern in (".*.arrow.lock", ".*.arrow.partial", ".*.arrow.sha256.lock", ".*.arrow.sha256.partial"):
        for path in sorted(folder.glob(pattern)):
            remove_leftovers(folder / path.stem.removeprefix("."))


def _compute_kept(run: Callable[..., datasets.Dataset], file: Path) -> None:
    """Computes a result that is kept, unless another process did it meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # `datasets` writes beside its file under a random name, which it leaves if its process is killed.
    with workplace(file, must_wait=True) as folder:
        if not file.exists():
            computed = folder / file.name
            run(cache_file_name=str(computed))
            # Before the result has its name, so that a stopped process leaves none without its checksum.
            _write_sum(file, sha256_of_file(computed))
            move_into_place(computed, file)


def _check_kept(file: Path, num_rows: int) -> None:
    """Refuses a kept result that was changed or cut: its numbers, or the rows before the cut, would pass for right."""
    advice = f"remove {file}, and the biLM computes its layers again"
    try:
        num_kept = len(datasets.Dataset.from_file(str(file)))
    except PermissionError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{file} is damaged ({error}); {advice}.") from error
    if num_kept != num_rows:
        raise ValueError(f"{file} must have the layers of {num_rows:,} texts, found {num_kept:,}; {advice}.")
    digest = sha256_of_file(file)
    sum_file = _sum_file_of(file)
    if not sum_file.exists():
        with suppress(OSError):  # the folder may be read-only or full, and what was read is right
            _write_sum(file, digest)
    elif parse_sums(sum_file.read_bytes()) != {file.name: digest}:
        raise ValueError(f"{file} must have the SHA-256 in {sum_file.name}, found {digest}; {advice}.")


def _sum_file_of(file: Path) -> Path:
    """Where the checksum of a kept result stands."""
    return file.with_name(f"{file.name}.sha256")


def _write_sum(file: Path, digest: str) -> None:
    """Writes the checksum of a kept result."""
    with new_file(_sum_file_of(file)) as written:
        written.write_text(sum_lines({file.name: digest}), encoding="utf-8")
