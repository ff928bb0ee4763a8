"""The witness for torch checkpoints: rearranges their arrays into TensorFlow's layout, for `reference.py`.

This file shares nothing with the conversion tables: the rearrangements are written out for each array.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .reference import ReferenceElmo

Arrays = Mapping[str, np.ndarray]


def lstm_arrays(encoder: Arrays, num_layers: int) -> dict[str, np.ndarray]:
    """Turns torch's gates i, f, j, o into TensorFlow's i, j, f, o, whose forget bias lacks the 1."""
    arrays = {}
    for theirs, direction in (("forward", "RNN_0"), ("backward", "RNN_1")):
        for layer in range(num_layers):
            cell, ours = f"{theirs}_layer_{layer}", f"{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            both = np.hstack([encoder[f"{cell}.input_linearity.weight"], encoder[f"{cell}.state_linearity.weight"]])
            i, f, j, o = np.split(both.astype(np.float64), 4)
            arrays[f"{ours}/W_0"] = np.vstack([i, j, f, o]).T
            i, f, j, o = np.split(encoder[f"{cell}.state_linearity.bias"].astype(np.float64), 4)
            arrays[f"{ours}/B"] = np.hstack([i, j, f - 1, o])
            arrays[f"{ours}/W_P_0"] = encoder[f"{cell}.state_projection.weight"].T
    return arrays


def cnn_arrays(token: Arrays, convolution: str, highways: str, options: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Rearranges convolutions and highways; torch's gate is on the old value, TensorFlow's on the new value."""
    arrays = {}
    for index in range(len(options["filters"])):
        arrays[f"CNN/W_cnn_{index}"] = token[f"{convolution}{index}.weight"].transpose(2, 1, 0)[np.newaxis]
        arrays[f"CNN/b_cnn_{index}"] = token[f"{convolution}{index}.bias"]
    for index in range(options.get("n_highway") or 0):
        transform, old_gate = np.split(token[f"{highways}{index}.weight"], 2)
        arrays[f"CNN_high_{index}/W_transform"], arrays[f"CNN_high_{index}/W_carry"] = transform.T, -old_gate.T
        transform, old_gate = np.split(token[f"{highways}{index}.bias"], 2)
        arrays[f"CNN_high_{index}/b_transform"], arrays[f"CNN_high_{index}/b_carry"] = transform, -old_gate
    return arrays


def allennlp_reference(options: Mapping[str, Any], state: Arrays) -> ReferenceElmo:
    """The witness of a trained AllenNLP model; names in `state` lack the prefix `_elmo_lstm.`."""
    token = {name.removeprefix("_token_embedder."): array for name, array in state.items()}
    encoder = {name.removeprefix("_elmo_lstm."): array for name, array in state.items()}
    arrays = {"char_embed": token["_char_embedding_weights"][1:]}
    arrays |= cnn_arrays(token, "char_conv_", "_highways._layers.", options["char_cnn"])
    arrays |= {"CNN_proj/W_proj": token["_projection.weight"].T, "CNN_proj/b_proj": token["_projection.bias"]}
    return ReferenceElmo(options, arrays | lstm_arrays(encoder, options["lstm"].get("n_layers", 1)))


class ReferenceManyLangs(ReferenceElmo):
    """The biLM of an ELMoForManyLangs folder.

    The word's vector comes before the characters' features; either may be absent. As in ELMoForManyLangs, `<eow>`
    begins a word and `<bow>` ends it.
    """

    boundaries = ("<bos>", "<eos>")

    def __init__(
        self,
        config: Mapping[str, Any],
        token: Arrays,
        encoder: Arrays,
        characters: Mapping[str, int],
        words: Mapping[str, int],
    ) -> None:
        """Takes the parsed config, both state dicts and both lexicons."""
        lstm, self.token_embedder = config["encoder"], config["token_embedder"]
        arrays = lstm_arrays(encoder, lstm["n_layers"])
        if characters:
            arrays["char_embed"] = token["char_emb_layer.embedding.weight"]
            arrays |= cnn_arrays(token, "convolutions.", "highways._layers.", self.token_embedder)
        if words:
            arrays["word_embed"] = token["word_emb_layer.embedding.weight"]
        arrays |= {"W": token["projection.weight"].T, "b": token["projection.bias"]}
        super().__init__({"lstm": {**lstm, "use_skip_connections": True}, "char_cnn": self.token_embedder}, arrays)
        self.characters, self.words = characters, words

    def word_vector(self, word: str) -> np.ndarray:
        """The context-free vector `(P,)` of a word."""
        word = word[: self.token_embedder["max_characters_per_token"] - 2]
        parts = []
        if self.words:
            parts.append(self.arrays["word_embed"][self.words.get(word, self.words["<oov>"])])
        if self.characters:
            parts.append(self.features(self.arrays["char_embed"][self.character_ids(word)]))
        return np.concatenate(parts) @ self.arrays["W"] + self.arrays["b"]

    def character_ids(self, word: str) -> list[int]:
        """The ids of a word's characters."""
        names: Sequence[str] = [word] if word in self.boundaries else word
        symbols = ["<eow>", *names, "<bow>"]
        symbols += ["<pad>"] * (self.token_embedder["max_characters_per_token"] - len(symbols))
        return [self.characters.get(symbol, self.characters["<oov>"]) for symbol in symbols]
