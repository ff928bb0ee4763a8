"""A biLM in NumPy that reads a checkpoint's arrays directly: slow, simple, float64.

This biLM is the witness: the check of a conversion and the tests compare the model with it. The witness shares no code
with the model, the tokenizer or the conversion tables. It reads the arrays of AllenNLP's hdf5 file in their own layout,
and follows the equations of Peters et al. (2018, §3) and bilm-tf's `_build_ops` line by line, one word at a time.

    ids(w)   = [258] + utf8(w)[: M - 2] + [259] + [260] ...                          and + 1
    m        = act(max_t conv(x)_t + b),  m <- g . relu(m W_t + b_t) + (1 - g) . m   with g = sigmoid(m W_c + b_c)
    i,j,f,o  = [x_t, h] W_0 + B
    c        = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j)),  h = clip((sigmoid(o) tanh(c)) W_P)

A model of one direction has other names for its arrays, and is read as the forward half of a biLM.

Glossary: M characters per word, d character embedding, P projection, C cell, L layers; arrays are `(in, out)`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

State = dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]


class ReferenceElmo:
    """The biLM of one checkpoint with character input."""

    boundaries = ("<S>", "</S>")

    def __init__(
        self, options: Mapping[str, Any], arrays: Mapping[str, np.ndarray], with_boundaries: bool = True
    ) -> None:
        """Takes the parsed options, the arrays by name, and whether sentences have boundaries."""
        self.with_boundaries = with_boundaries
        self.lstm = options["lstm"]
        self.char_cnn = options["char_cnn"]
        self.arrays = {name_of_two(name): np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        self.directions = sorted({name.split("/")[0] for name in self.arrays if name.startswith("RNN_")})

    def embed(self, words: Sequence[str], state: State | None = None) -> np.ndarray:
        """Embeds one sentence.

        Args:
            words: n words without boundaries; this method adds boundaries unless the model has none.
            state: `(h, c)` by direction and layer, read at the start and overwritten at the end; None means zeros.

        Returns:
            `(L + 1, n + 2, 2P)`, or `(L + 1, n, 2P)` without boundaries; the first layer is the token vector twice.
            With one direction it is the token vector once, and 2P becomes P.
        """
        begin, end = self.boundaries
        sequence = [begin, *words, end] if self.with_boundaries else words
        vectors = np.stack([self.word_vector(word) for word in sequence])
        halves = []
        for name in self.directions:
            step = -1 if name == "RNN_1" else 1
            outputs = self.direction(name, vectors[::step], {} if state is None else state)
            halves.append(np.stack([vectors, *(layer[::step] for layer in outputs)]))
        return np.concatenate(halves, axis=-1)

    def character_ids(self, word: str) -> list[int]:
        """The M ids of a word, before the shift by one."""
        length = self.char_cnn.get("max_characters_per_token", 50)
        middle = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode("utf-8", "ignore"))[: length - 2])
        row = [258, *middle, 259]
        return row + [260] * (length - len(row))

    def word_vector(self, word: str) -> np.ndarray:
        """The context-free vector `(P,)` of a word."""
        x = self.arrays["char_embed"][self.character_ids(word)]  # (M, d); the file's table starts at id 0
        m = self.features(x)
        if "CNN_proj/W_proj" in self.arrays:
            m = m @ self.arrays["CNN_proj/W_proj"] + self.arrays["CNN_proj/b_proj"]
        return m

    def features(self, x: np.ndarray) -> np.ndarray:
        """Applies convolutions and highways to a word's character embeddings `(M, d)`; returns `(n,)`."""
        features = []
        for index, (width, _) in enumerate(self.char_cnn["filters"]):
            kernel, bias = self.arrays[f"CNN/W_cnn_{index}"][0], self.arrays[f"CNN/b_cnn_{index}"]
            windows = [x[t : t + width] for t in range(len(x) - width + 1)]
            peaks = np.max([np.tensordot(window, kernel, axes=2) + bias for window in windows], axis=0)
            features.append(np.maximum(peaks, 0) if self.char_cnn["activation"] == "relu" else np.tanh(peaks))
        m = np.concatenate(features)
        for index in range(self.char_cnn.get("n_highway") or 0):
            high = f"CNN_high_{index}"
            gate = sigmoid(m @ self.arrays[f"{high}/W_carry"] + self.arrays[f"{high}/b_carry"])
            new = np.maximum(m @ self.arrays[f"{high}/W_transform"] + self.arrays[f"{high}/b_transform"], 0)
            m = gate * new + (1 - gate) * m
        return m

    def direction(self, name: str, vectors: np.ndarray, state: State) -> list[np.ndarray]:
        """Runs one direction over `(T, P)` in the given order; returns L outputs `(T, P)`."""
        outputs = []
        for layer in range(self.lstm.get("n_layers", 1)):
            cell = f"{name}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            if f"{cell}/W_0" not in self.arrays:
                cell = f"{name}/RNN/LSTMCell"
            kernel, bias = self.arrays[f"{cell}/W_0"], self.arrays[f"{cell}/B"]
            projection = self.arrays.get(f"{cell}/W_P_0")
            zeros = np.zeros(vectors.shape[1]), np.zeros(len(bias) // 4)
            h, c = state.get((name, layer), zeros)
            steps = []
            for x in vectors:
                i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
                c = clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), self.lstm.get("cell_clip"))
                h = sigmoid(o) * np.tanh(c)
                if projection is not None:
                    h = clip(h @ projection, self.lstm.get("proj_clip"))
                steps.append(h + x if layer > 0 and self.lstm.get("use_skip_connections") else h)
            state[name, layer] = h, c
            vectors = np.stack(steps)
            outputs.append(vectors)
        return outputs


def name_of_two(name: str) -> str:
    """The name that an array of a model of one direction would have in a model of two."""
    if not name.startswith("rnn/"):
        return name
    for old, new in (("rnn/", "RNN_0/RNN/"), ("projection/kernel", "W_P_0"), ("kernel", "W_0"), ("bias", "B")):
        name = name.replace(old, new, 1)
    return name


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function."""
    return 1 / (1 + np.exp(-x))


def clip(x: np.ndarray, limit: float | None) -> np.ndarray:
    """Limits absolute values; 0 and None both switch the limit off."""
    return np.clip(x, -limit, limit) if limit else x
