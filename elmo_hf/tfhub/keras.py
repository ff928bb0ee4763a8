"""ELMo as a layer of Keras 3, with its torch backend (`KERAS_BACKEND=torch`).

    hub.KerasLayer("https://tfhub.dev/google/elmo/3")    ->    KerasLayer("elmo-original")
    keras_elmo.ElmoEmbeddingLayer()                      ->    KerasLayer("elmo-original", trainable=True)

The torch backend passes only numbers to the layers of a model, so models read ids, which `encode` makes of texts:

    elmo = KerasLayer("elmo-original", trainable=True)
    model = keras.Sequential([elmo, keras.layers.Dense(2)])
    model.fit(elmo.encode(texts), labels)

Outside a model the layer takes texts too, and with `signature="tokens"` TF-Hub's lists of words with their lengths:

    layer = KerasLayer("elmo-original", signature="tokens", signature_outputs_as_dict=True)
    layer({"tokens": [["the", "cat"], ["dogs", ""]], "sequence_len": [2, 1]})["elmo"]

A saved model has the name of the ELMo's folder and all weights; loading it reads both.

Glossary: B texts, T words of the longest, C ids of a word, P projection.

Deliberate difference from `Module`: the layer keeps no state from call to call, so batches may come in any order.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from torch import Tensor

from ..model.configuration_elmo import require
from .module import INPUTS, Module, Tags, check_inputs, check_number, split_at_blanks, words_of_tokens


@keras.saving.register_keras_serializable("elmo_hf")
class KerasLayer(keras.layers.TorchModuleWrapper):
    """Maps texts to vectors by its `module`, a `Module`."""

    def __init__(
        self,
        handle: str | Path,
        trainable: bool = False,
        output_key: str | None = None,
        *,
        signature: str | None = None,
        signature_outputs_as_dict: bool = False,
        arguments: Mapping[str, Any] | None = None,
        tags: Tags = None,
        **keras_arguments: Any,
    ) -> None:
        """Loads a model.

        Args:
            handle: as `spec` of `Module`.
            trainable: whether the scalar mix trains.
            output_key: the output of `Module` that the layer returns; None means `"default"`.
            signature: `"default"`, which None means too, or `"tokens"`: what `encode` takes.
            signature_outputs_as_dict: whether the layer returns all outputs by name, in place of one.
            arguments: none: the signatures have only their texts.
            tags: as those of `Module`.
            **keras_arguments: arguments of every Keras layer, such as `name`.

        Raises:
            ValueError: as `Module`; if Keras has another backend; if there is no such output or signature, or if both
                an output and all outputs are asked for.
        """
        require(keras.config.backend() == "torch", "KERAS_BACKEND", "torch", keras.config.backend())
        require(not arguments, "arguments", "empty, as ELMo's signatures take only texts", arguments)
        super().__init__(Module(handle, trainable=trainable, tags=tags), **keras_arguments)
        self._arguments: dict[str, Any] = {
            "handle": str(handle),
            "trainable": trainable,
            "output_key": output_key,
            "signature": signature,
            "signature_outputs_as_dict": signature_outputs_as_dict,
        }
        num_layers = self.module.elmo.model.config.num_hidden_layers
        lstm_outputs = [f"lstm_outputs{layer}" for layer in range(1, num_layers + 1)]
        self._outputs = ["word_emb", *lstm_outputs, "elmo", "default"]
        is_output = output_key is None or output_key in self._outputs
        require(is_output, "output_key", f"one of {', '.join(self._outputs)}", output_key)
        is_signature = signature is None or signature in INPUTS
        require(is_signature, "signature", f"one of {', '.join(INPUTS)}", signature)
        if signature_outputs_as_dict:
            require(output_key is None, "output_key", "left out with `signature_outputs_as_dict`", output_key)
        self.module.elmo.stateful = False

    def encode(self, texts: Any) -> np.ndarray:
        """Ids `(B, T+2, C)` of texts.

        Args:
            texts: lists of words; or with the signature `default` strings, which are split at blanks, `(B,)` or
                `(B, 1)`; or with `tokens` the dictionary of that signature.

        Raises:
            ValueError: if there is no text, or if it is of the other signature.
        """
        sentences = self._split(texts)
        lists = texts["tokens"] if isinstance(texts, Mapping) else sentences
        num_positions = max(map(len, lists))
        return self.module.elmo.encode(sentences, num_positions).numpy()

    def _split(self, texts: Any) -> Sequence[Sequence[str]]:
        """The words of each text that `encode` takes."""
        reads_tokens = self._arguments["signature"] == "tokens"
        if isinstance(texts, Mapping):
            require(reads_tokens, "texts", 'strings or lists of words without `signature="tokens"`', texts)
            check_inputs(texts, "tokens")
            return words_of_tokens(**texts)
        values = texts
        if isinstance(texts, np.ndarray):
            is_column = texts.ndim == 1 or texts.shape[1:] == (1,)
            require(is_column, "texts", "an array `(B,)` or `(B, 1)`, or lists of words", texts.shape)
            values = texts.ravel().tolist()
        check_number(values)
        if not isinstance(values[0], str | bytes):
            return values
        require(not reads_tokens, "texts", 'lists of words with `signature="tokens"`', values)
        return split_at_blanks(values)

    def __call__(self, inputs: Any, **keras_arguments: Any) -> Any:
        """Takes ids, or outside a model what `encode` takes; returns the output `output_key`, or all by name."""
        if isinstance(inputs, keras.KerasTensor):
            self._refuse_strings(inputs)
        is_array_of_text = isinstance(inputs, np.ndarray) and inputs.dtype.kind in "OSU"
        if is_array_of_text or isinstance(inputs, Sequence | Mapping):
            inputs = self.encode(inputs)
        return super().__call__(inputs, **keras_arguments)

    def _refuse_strings(self, inputs: keras.KerasTensor) -> None:
        """Raises ValueError for an input of strings, `(B,)` or `(B, 1)`, as TensorFlow's models have it."""
        if inputs.dtype == "string" or len(inputs.shape) == 1:
            shape = (None, *self.module.elmo.model.config.id_shape)
            raise ValueError(
                "with its torch backend Keras passes no strings to the layers of a model, so leave out `input_shape` "
                f'and `dtype`, or put `keras.Input({shape}, dtype="int32")` in front of the layer, and give the model '
                f"the ids that `encode` makes of texts; found an input {inputs.shape} of {inputs.dtype}."
            )

    def call(self, inputs: Tensor, training: bool | None = None) -> Any:
        """Embeds ids, which Keras gives as floats to a `Sequential` without an `Input`; Keras calls this."""
        outputs = super().call(inputs.long(), training=training, as_dict=True)
        if self._arguments["signature_outputs_as_dict"]:
            return outputs
        return outputs[self._output_key]

    @property
    def _output_key(self) -> str:
        """The output that the layer returns, if it returns one."""
        return self._arguments["output_key"] or "default"

    def compute_output_shape(self, input_shape: tuple) -> Any:
        """The shape of the output for ids, or of each output; Keras calls this. None is a size not known yet."""
        if self._arguments["signature_outputs_as_dict"]:
            return {name: self._shape_of(name, input_shape) for name in self._outputs}
        return self._shape_of(self._output_key, input_shape)

    def _shape_of(self, output: str, input_shape: tuple) -> tuple:
        config = self.module.elmo.model.config
        num_texts, num_positions = input_shape[:2]
        num_words = None
        if num_positions is not None:
            num_words = num_positions - self.module.tokenizer.num_special_tokens_to_add()
        size = config.projection_size if output == "word_emb" else config.hidden_size
        return (num_texts, size) if output == "default" else (num_texts, num_words, size)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for a saved model."""
        return keras.layers.Layer.get_config(self) | self._arguments
