"""ELMo as a layer of Keras 3, with its torch backend (`KERAS_BACKEND=torch`).

    hub.KerasLayer("https://tfhub.dev/google/elmo/3")    ->    KerasLayer("elmo-original")
    keras_elmo.ElmoEmbeddingLayer()                      ->    KerasLayer("elmo-original", trainable=True)

The torch backend passes only numbers to the layers of a model, so models read ids, which `encode` makes of texts:

    elmo = KerasLayer("elmo-original", trainable=True)
    model = keras.Sequential([elmo, keras.layers.Dense(2)])
    model.fit(elmo.encode(texts), labels)

A saved model has the name of the ELMo's folder and all weights; loading it reads both.

Glossary: B texts, T words of the longest, C ids of a word, P projection.

Deliberate difference from `Module`: the layer keeps no state from call to call, so batches may come in any order.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from torch import Tensor

from ..model.configuration_elmo import require
from .module import Module, split_at_blanks


@keras.saving.register_keras_serializable("elmo_hf")
class KerasLayer(keras.layers.TorchModuleWrapper):
    """Maps texts to vectors by its `module`, a `Module`."""

    def __init__(
        self, handle: str | Path, trainable: bool = False, output_key: str = "default", **keras_arguments: Any
    ) -> None:
        """Loads a model.

        Args:
            handle: as `spec` of `Module`.
            trainable: whether the scalar mix trains.
            output_key: the output of `Module` that the layer returns.
            **keras_arguments: arguments of every Keras layer, such as `name`.

        Raises:
            ValueError: as `Module`; or if Keras has another backend.
        """
        require(keras.config.backend() == "torch", "KERAS_BACKEND", "torch", keras.config.backend())
        super().__init__(Module(handle, trainable=trainable), **keras_arguments)
        self._arguments: dict[str, Any] = {"handle": str(handle), "trainable": trainable, "output_key": output_key}
        self.module.elmo.stateful = False

    def encode(self, texts: Sequence[Any]) -> np.ndarray:
        """Ids `(B, T+2, C)` of texts: strings, which are split at blanks, `(B,)` or `(B, 1)`, or lists of words."""
        values = texts.ravel().tolist() if isinstance(texts, np.ndarray) else texts
        sentences = split_at_blanks(values) if isinstance(values[0], str | bytes) else values
        return self.module.elmo.encode(sentences, max(map(len, sentences))).numpy()

    def __call__(self, inputs: Any, **keras_arguments: Any) -> Any:
        """Takes ids, or outside a model what `encode` takes; returns the output `output_key`."""
        is_text = isinstance(inputs, Sequence) or (isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OSU")
        return super().__call__(self.encode(inputs) if is_text else inputs, **keras_arguments)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Embeds ids, which Keras gives as floats to a `Sequential` without an `Input`; Keras calls this."""
        return super().call(inputs.long(), training=training, as_dict=True)[self._arguments["output_key"]]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        """The shape of the output for ids; Keras calls this. None is a size that is not known yet."""
        output_key, config = self._arguments["output_key"], self.module.elmo.model.config
        num_texts, num_positions = input_shape[:2]
        num_words = num_positions and num_positions - self.module.tokenizer.num_special_tokens_to_add()
        size = config.projection_size if output_key == "word_emb" else config.hidden_size
        return (num_texts, size) if output_key == "default" else (num_texts, num_words, size)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for a saved model."""
        return keras.layers.Layer.get_config(self) | self._arguments
