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

from elmo_hf.model.configuration_elmo import ElmoConfig

from .contract import Checkpoint
from .readers.torch_files import read_matrix
from .refusals import require
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
    config, matrices = checkpoint.config, {layer: read_matrix(path) for layer, path in sorted(files.items())}
    expected = f"a finite matrix of {config.hidden_size} x {config.hidden_size}, the width of the layers, not all zeros"
    for layer, path in files.items():
        matrix = matrices[layer]
        is_legal = matrix.shape == (config.hidden_size,) * 2 and np.isfinite(matrix).all() and matrix.any()
        require(bool(is_legal), path, "", expected, f"{matrix.dtype} {matrix.shape}")
        most = config.num_hidden_layers
        require(layer <= most, path, "", f"for a layer from 0 to {most}", layer)
        has_softmax = config.num_softmax_words is not None
        require(not has_softmax, path, "", "for a model without a softmax", "one with a softmax over words")
    fields = config.to_diff_dict() | {"aligned_layers": [*matrices]}
    return replace(
        checkpoint,
        config=ElmoConfig(**fields),
        tensors=checkpoint.tensors | {"bilm.alignment": np.stack([*matrices.values()]).astype(np.float32)},
        sources=checkpoint.sources | {path.name: path for path in files.values()},
        make_reference=checkpoint.make_reference and partial(AlignedReference, checkpoint.make_reference, matrices),
    )


class AlignedReference(ReferenceElmo):
    """The witness with matrices on its layers."""

    def __init__(self, make_reference: Callable[[], ReferenceElmo], matrices: Mapping[int, np.ndarray]) -> None:
        """Takes the witness of the model without matrices, and the matrices by layer."""
        self.reference, self.matrices = make_reference(), matrices

    def embed(self, words: Sequence[str], state: State | None = None) -> np.ndarray:
        """Embeds as `ReferenceElmo.embed` does."""
        layers = self.reference.embed(words, state)
        for layer, matrix in self.matrices.items():
            layers[layer] = np.matmul(layers[layer], matrix.transpose())
        return layers
