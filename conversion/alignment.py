"""Matrices that map a biLM's layers into the space of another language's model (Schuster et al. 2019).

    h_k <- A_k h_k

Glossary: k a layer, 0 for the token vector twice and 1 to L for the biLM's; h_k `(2P,)`; A_k `(2P, 2P)`. Nothing is
subtracted from h_k first. The authors' English matrices are identities divided by a layer's average norm.

Source: `demo.py` of CrossLingualContextualEmb, `np.matmul(embeddings, aligning.transpose())`. Its `.pth` files hold one
matrix each, of NumPy or torch.

Deliberate difference from AllenNLP's `ElmoTokenEmbedderMultiLang`: that class multiplies a fixed mix, in practice one
layer, by one matrix; here each layer has its own, before the mix.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from elmo_hf.public import ElmoConfig

from .contract import Checkpoint
from .readers.torch_files import read_matrix
from .refusals import ConversionError
from .witness.reference import ReferenceElmo, State


def align(checkpoint: Checkpoint, files: Mapping[int, Path]) -> Checkpoint:
    """Adds a matrix to each layer that has a file.

    Args:
        checkpoint: a checkpoint without a softmax.
        files: the matrix's file for each aligned layer.

    Raises:
        ConversionError: if a file is not a finite matrix `(2P, 2P)` or has only zeros, if there is no such layer, or if
            the checkpoint has a softmax, which reads layers that are not aligned.
    """
    config = checkpoint.config
    matrices = {}
    for layer, path in sorted(files.items()):
        matrices[layer] = read_matrix(path)
        _check_matrix(matrices[layer], layer, path, config)
    fields = config.to_diff_dict() | {"aligned_layers": [*matrices]}
    make_reference = None
    if checkpoint.make_reference is not None:
        make_reference = partial(AlignedReference, checkpoint.make_reference, matrices)
    return replace(
        checkpoint,
        config=ElmoConfig(**fields),
        tensors=checkpoint.tensors | {"bilm.alignment": np.stack([*matrices.values()]).astype(np.float32)},
        sources=checkpoint.sources | {path.name: path for path in files.values()},
        make_reference=make_reference,
    )


def _check_matrix(matrix: np.ndarray, layer: int, path: Path, config: ElmoConfig) -> None:
    size = config.hidden_size
    if matrix.shape != (size, size):
        raise ConversionError(
            f"{path} must hold a matrix of {size} x {size}, the width of the model's layers, but its shape is "
            f"{matrix.shape}."
        )
    if not np.isfinite(matrix).all():
        raise ConversionError(f"{path} must hold a finite matrix, but it has NaN or infinite numbers; get it again.")
    if not matrix.any():
        raise ConversionError(f"{path} must hold a matrix that is not all zeros, but it has only zeros; get it again.")
    if not 0 <= layer <= config.num_hidden_layers:
        raise ConversionError(
            f"{path} is the matrix for layer {layer}, but the model has only the layers from 0 to "
            f"{config.num_hidden_layers}."
        )
    if config.num_softmax_words is not None:
        raise ConversionError(
            f"{path} cannot be applied, because the model has a softmax, which reads layers that are not aligned; "
            "align the model without its softmax."
        )


class AlignedReference(ReferenceElmo):
    """The witness with matrices on its layers."""

    def __init__(self, make_reference: Callable[[], ReferenceElmo], matrices: Mapping[int, np.ndarray]) -> None:
        """Takes a function that makes the witness of the model without matrices, and the matrices by layer."""
        self.reference = make_reference()
        self.matrices = matrices

    def embed(self, words: Sequence[str], state: State | None = None) -> np.ndarray:
        """Embeds as `ReferenceElmo.embed` does."""
        layers = self.reference.embed(words, state)
        for layer, matrix in self.matrices.items():
            layers[layer] = np.matmul(layers[layer], matrix.transpose())
        return layers
