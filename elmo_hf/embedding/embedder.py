"""A function from a batch of texts to vectors, for libraries that move the data: datasets, Ray Data, Spark, pandas.

    ray.data.read_text("corpus/").map_batches(Embedder("elmo-small"), batch_size=1024).write_parquet("vectors/")

Only the model's name is sent to workers; each worker loads the model at its first batch and keeps it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..folder.loading import load_shared, version_of
from ..text.batches import BATCH_POSITIONS
from ..text.sentences import sentence_of
from .chosen_words import ChosenWords
from .window_vectors import POOLED, Selection, embed_window


class Embedder:
    """Adds a column of vectors to a batch of rows."""

    def __init__(
        self,
        model: str = "tiny",
        *,
        column: str = "text",
        layers: str | int = "mix",
        dtype: str = "float32",
        words: str | None = None,
        batch_words: int = BATCH_POSITIONS,
        device: str = "cpu",
    ) -> None:
        """Keeps the arguments; no model is loaded yet.

        Args:
            model: a folder that every worker can read, a Hub name, or a short name, such as `"tiny"` or `"original"`.
            column: the name of the texts' column: strings, or lists of words.
            layers: what to keep, as in `elmo-hf embed --layers`; the number of a layer may be an int.
            dtype: `"float32"`, `"float16"` or `"int8"`.
            words: which words to keep, as in `elmo-hf embed --words`.
            batch_words: the most positions of a batch, padding included; a longer text is alone.
            device: where the model runs, such as `"cuda"`.

        Raises:
            ValueError: if an argument is illegal.
        """
        self.model = str(model)
        self.column = column
        self.batch_words = batch_words
        self.device = device
        self.selection = Selection(str(layers), dtype, None if words is None else ChosenWords(words))
        self.selection.check()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Embeds the texts of n rows; the order and size of the batch change at most the last bits.

        Args:
            batch: columns by name, each an array or a list.

        Returns:
            these columns and `vectors`: `(n, 2P)` for pooled layers, else a list of n arrays `(words, 2P)` or `(L+1,
            words, 2P)`; with int8 also `scales`, to multiply vectors with; with `words` also `positions`, the
            places of these words in their texts.

        Raises:
            ValueError: if a value is not a text, or if the model cannot be loaded or has no layer of this number.
        """
        model, tokenizer = load_shared(self.model, self.device)
        sentences = []
        for value in batch[self.column]:
            text = value.tolist() if isinstance(value, np.ndarray) else value
            sentences.append(sentence_of({"text": text}, ["text"]))
        # An empty batch has the columns of others; they come from a sentence that is dropped again.
        window = sentences or [""]
        arrays = dict(embed_window(model, tokenizer, window, self.selection, self.batch_words))
        columns: dict[str, Any] = dict(batch)
        for name in arrays[0]:
            column: Any = [arrays[row][name] for row in range(len(window))]
            if self.selection.layers in POOLED:
                column = np.array(column)
            columns[name] = column[: len(sentences)]
        return columns

    def __getstate__(self) -> dict[str, Any]:
        """The arguments and the version of the folder; `datasets` computes again if one of them changes."""
        return self.__dict__ | {"version": version_of(self.model)}
