"""The check behind `--check`: whether a written folder and the source's witness give the same numbers."""

from pathlib import Path

import numpy as np
import torch

from elmo_hf.folder.loading import load_complete, load_tokenizer

from .checkpoint import Checkpoint, Reference
from .errors import ConversionError

# Sentences of different lengths and scripts, with one word longer than the 48 bytes that the model reads.
CHECK_SENTENCES = (
    "The ferry left the harbour at 7:45 , ten minutes late .".split(),
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64. Golden cases with random weights differ by at most 5e-6, real weights by a little more.
CHECK_TOLERANCE = 1e-4


def check_folder(folder: Path, checkpoint: Checkpoint) -> float:
    """Compares the folder's model with the checkpoint's witness; returns the largest absolute difference.

    Raises:
        ConversionError: if there is no witness, or the difference is larger than `CHECK_TOLERANCE`.
    """
    if checkpoint.make_reference is None:
        raise ConversionError("`--check` compares with a reference that reads characters; this model reads word ids.")
    difference = largest_difference(folder, checkpoint.make_reference())
    if not difference <= CHECK_TOLERANCE:  # a NaN fails too
        raise ConversionError(
            f"the converted model differs from its checkpoint by {difference:.2e}, more than "
            f"{CHECK_TOLERANCE:.0e}; nothing was written. Please report this checkpoint's options."
        )
    return difference


def largest_difference(folder: Path, reference: Reference) -> float:
    """Largest absolute difference between the folder's model and the witness, over all layers of `CHECK_SENTENCES`."""
    model = load_complete(folder)
    inputs = load_tokenizer(folder)(
        [list(words) for words in CHECK_SENTENCES], is_split_into_words=True, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states).double().numpy()
    differences = []
    for row, words in enumerate(CHECK_SENTENCES):
        expected = reference.embed(words)
        differences.append(np.abs(layers[:, row, : expected.shape[1]] - expected).max())
    return float(np.max(differences))  # unlike max, it keeps a NaN
