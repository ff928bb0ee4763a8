"""AllenNLP's `ElmoEmbedder`: sentences to arrays of all layers."""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import h5py
import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..disk.guarded_file import GuardedFile
from ..disk.whole_files import new_file
from .bilm import _ElmoBiLm
from .character_encoder import remove_sentence_boundaries
from .character_ids import batch_to_ids
from .pretrained import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE

OUTPUT_FORMATS = {
    "all": lambda layers: layers,
    "top": lambda layers: layers[-1],
    "average": lambda layers: layers.mean(0),
}


class ElmoEmbedder(nn.Module):
    """Embeds sentences as arrays of all layers."""

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
    ) -> None:
        """Loads a checkpoint from paths or addresses; the default is the original model.

        Args:
            options_file: path or address of `options.json`.
            weight_file: path or address of `weights.hdf5`.
            cuda_device: index of the GPU; -1 means the CPU.

        Raises:
            ConversionError: if a file is missing or has another format.
        """
        super().__init__()
        self.cuda_device = cuda_device
        self._device = f"cuda:{cuda_device}" if cuda_device >= 0 else "cpu"
        self.elmo_bilm = _ElmoBiLm(options_file, weight_file).to(self._device)

    def batch_to_embeddings(self, batch: list[list[str]]) -> tuple[Tensor, Tensor]:
        """Embeds B lists of words: `(B, L+1, T, 2P)`, and the mask `(B, T)`."""
        output = self.elmo_bilm(batch_to_ids(batch).to(self._device))
        layers = [remove_sentence_boundaries(layer, output["mask"]) for layer in output["activations"]]
        return torch.stack([vectors for vectors, _ in layers], dim=1), layers[0][1]

    def embed_sentence(self, sentence: list[str]) -> np.ndarray:
        """Embeds n words: `(L+1, n, 2P)`."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: list[list[str]]) -> list[np.ndarray]:
        """Embeds lists of n words: `(L+1, n, 2P)` each. A batch without words does not change the state."""
        if not any(batch):
            return [
                np.zeros((self.elmo_bilm.num_layers, 0, self.elmo_bilm.get_output_dim()), np.float32) for _ in batch
            ]
        vectors, _ = self.batch_to_embeddings(batch)
        arrays = vectors.detach().cpu().numpy()
        return [array[:, : len(words)] for array, words in zip(arrays, batch, strict=True)]

    def embed_sentences(self, sentences: Iterable[list[str]], batch_size: int = 64) -> Iterator[np.ndarray]:
        """Embeds any number of lists of words, one batch at a time."""
        iterator = iter(sentences)
        while batch := list(itertools.islice(iterator, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embeds a file of sentences, with blanks between words, into an hdf5 file with one dataset a sentence.

        Args:
            input_file: open for reading.
            output_file_path: the new file; it replaces an older one only when it is complete.
            output_format: `"all"` layers, the `"top"` layer, or the `"average"` of all.
            batch_size: sentences in a batch.
            forget_sentences: whether to leave out `sentence_to_index`, a JSON object in one string.
            use_sentence_keys: whether to name a dataset by its sentence instead of its index.

        Raises:
            ValueError: with `use_sentence_keys`, if lines are blank or equal.
        """
        pick = OUTPUT_FORMATS[output_format]
        sentences = [line.strip() for line in input_file]
        keys = sentences if use_sentence_keys else [str(index) for index in range(len(sentences))]
        if len({"", *keys}) <= len(keys):
            raise ValueError(
                "a line is blank, or two are equal, so they cannot be keys; leave out `use_sentence_keys`."
            )
        with (
            new_file(Path(output_file_path)) as partial,
            GuardedFile(partial) as target,
            h5py.File(target, "w") as file,
        ):
            vectors = self.embed_sentences((sentence.split() for sentence in sentences), batch_size)
            for key, layers in tqdm(zip(keys, vectors, strict=True), total=len(keys), unit=" sentences"):
                file.create_dataset(key, data=pick(layers))
                target.check()
            if not forget_sentences and not use_sentence_keys:
                index = json.dumps(dict(zip(sentences, keys, strict=True)))
                file.create_dataset("sentence_to_index", data=[index], dtype=h5py.string_dtype())
