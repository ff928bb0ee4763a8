"""ELMoForManyLangs' `Embedder` under its old interface: change the import line.

    from elmoformanylangs import Embedder    ->    from elmo_hf.dropins.manylangs import Embedder

State: as there, sentences are sorted by falling length into batches, and row r of a batch starts from the last state
of row r in earlier batches and calls. `embedder.elmo.stateful = False` starts each sentence from zeros instead.

Glossary: T words of a sentence, L layers, P projection.

Deliberate differences: batches run in their sorted order; ELMoForManyLangs shuffles them, so more than one batch has
other numbers there each time. A sentence without words has an array without rows.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from elmo_hf.conversion.model import open_model

from ..model.configuration_elmo import require
from .stateful_words import StatefulWords


class Embedder:
    """Embeds lists of words.

    Attributes:
        elmo: the model with its state.
        batch_size: the most sentences of a batch.
    """

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        """Loads a model; errors are those of `open_model`.

        Args:
            model_dir: a folder or archive of ELMoForManyLangs, or whatever `open_model` takes.
            batch_size: the most sentences of a batch.
        """
        self.elmo, self.batch_size = StatefulWords(*open_model(model_dir)), batch_size

    @torch.inference_mode()
    def sents2elmo(self, sents: Sequence[Sequence[str]], output_layer: int = -1) -> list[np.ndarray]:
        """Embeds lists of words.

        Args:
            sents: the lists of words.
            output_layer: 0 for the token layer, 1 to L for the biLM's; -1 for the mean of all, -2 for all.

        Returns:
            for each sentence `(T, 2P)`, or for all layers `(L+1, T, 2P)`, float32, in the order of `sents`.

        Raises:
            ValueError: if a sentence is a string, or there is no such layer.
        """
        most = self.elmo.model.config.num_hidden_layers
        require(-2 <= output_layer <= most, "output_layer", f"-2 to {most}", output_layer)
        order = sorted(range(len(sents)), key=lambda index: -len(sents[index]))
        arrays = [np.empty(0)] * len(sents)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            ids = self.elmo.encode([sents[index] for index in batch], len(sents[batch[0]]))
            for index, layers in zip(batch, self.elmo(ids).layers.float().cpu().numpy().swapaxes(0, 1), strict=True):
                words = layers[:, : len(sents[index])]
                arrays[index] = {-1: words.mean(axis=0), -2: words}.get(output_layer, words[output_layer])
        return arrays
