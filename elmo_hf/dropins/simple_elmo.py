"""simple_elmo's `ElmoModel` under its old interface: change the import line.

    from simple_elmo import ElmoModel    ->    from elmo_hf.dropins.simple_elmo import ElmoModel

Written from simple_elmo's documentation and from its outputs (0.9.2), which it equals: shapes, state and padding.

State: each call starts from zeros. Its sentences run in batches of `max_batch_size`, and row r of a batch starts from
the last state of row r in earlier batches. Before that, `warmup` runs the first batch once.

Padding: behind a sentence, up to the longest of its batch, the lowest layer has the token vector of padding ids and the
others have zeros; behind that, all are zero. A sentence's vector is the sum of all these, divided by its length
(Euclidean), so with `"average"` and `"all"` it depends on the other sentences of its batch.

Glossary: n sentences, T words of the longest, L layers, P projection.

Deliberate differences: a sentence whose sum is zero has a vector of zeros, not NaN. `get_elmo_vector_average` with
`layers="all"` sums each layer's words; simple_elmo sums words of different layers there, because it reads the axes
`(L+1, T)` as `(T, L+1)`. There are no TensorFlow sessions, so a `session` carries no state from call to call. There is
no `get_elmo_substitutes`: `predict_words` of `language_model/cloze.py` has the words, docs/cloze.md the loop.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from elmo_hf.conversion.model import open_model

from ..model.configuration_elmo import require
from .stateful_words import StatefulWords

LAYERS = {
    "average": lambda layers: layers.mean(dim=0),
    "top": lambda layers: layers[-1],
    "all": lambda layers: layers.transpose(0, 1),
}


class ElmoModel:
    """A model that embeds lists of words.

    Attributes, after `load`:
        elmo: the model with its state.
        batch_size: the most sentences of a batch.
        vector_size: 2P.
        n_layers: L+1, the lowest layer included.
        max_chars: the most characters of a word, its two boundaries included.
        vocab: None, as in simple_elmo without `full=True`.
    """

    elmo: StatefulWords
    batch_size: int
    vector_size: int
    n_layers: int
    max_chars: int
    vocab: None = None

    def load(
        self,
        directory: str | Path,
        max_batch_size: int = 32,
        limit: int = 100,
        full: bool = False,
        top: bool = False,
    ) -> str:
        """Loads a model and returns simple_elmo's sentence about it.

        Args:
            directory: simple_elmo's archive or folder, or whatever `open_model` takes.
            max_batch_size: the most sentences of a batch.
            limit: ignored: no words are cached, because equal words of a batch are computed once.
            full: must be False: in simple_elmo it loads the language models, for `get_elmo_substitutes`.
            top: must be False: before simple_elmo 0.6 it chose the top layer.

        Raises:
            ValueError: as `open_model`; or if `full` or `top` is true.
        """
        if full:
            raise ValueError(
                "`full=True` is for simple_elmo's `get_elmo_substitutes`, which this class lacks; leave it out for "
                "vectors. For substitutes convert the TensorFlow checkpoint, load the new folder as "
                "`ElmoForPreTraining`, and call its `predict_words` for each word."
            )
        if top:
            raise ValueError(
                '`top=True` chose the layer before simple_elmo 0.6; leave it out, and give `layers="top"` to '
                "`get_elmo_vectors` and `get_elmo_vector_average`."
            )
        model, tokenizer = open_model(directory)
        self.elmo = StatefulWords(model, tokenizer)
        self.batch_size = max_batch_size
        self.vector_size = model.config.hidden_size
        self.n_layers = model.config.num_hidden_layers + 1
        self.max_chars = model.config.max_word_length
        return "The model is now loaded."

    @torch.inference_mode()
    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> np.ndarray:
        """Embeds n lists of words.

        Args:
            texts: the lists of words.
            warmup: whether to run the first batch once before, for its state.
            layers: the `"average"` of all, the `"top"`, or `"all"`.
            session: ignored, with a warning: in simple_elmo, calls with one session carry the state on.

        Returns:
            `(n, T, 2P)`, or for all layers `(n, L+1, T, 2P)`, float64.

        Raises:
            ValueError: if there is no text, if a text is a string, or `layers` is none of these.
        """
        require(layers in LAYERS, "layers", f"one of {', '.join(LAYERS)}", layers)
        require(len(texts) > 0, "texts", "at least one list of words", texts)
        if session is not None:
            warnings.warn(
                "`session` has no effect: nothing here runs in TensorFlow. The call starts from the zero state, while "
                "simple_elmo goes on from the last call with this session.",
                stacklevel=2,
            )
        self.elmo.reset_states()
        batches = [texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size)]
        found = [LAYERS[layers](self._embed(batch)) for batch in batches[: int(warmup)] + batches][int(warmup) :]
        longest = max(each.shape[-2] for each in found)
        padded = [nn.functional.pad(each, (0, 0, 0, longest - each.shape[-2])) for each in found]
        return torch.cat(padded).double().cpu().numpy()

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> np.ndarray:
        """One vector of length 1 for each of n lists of words; arguments and errors are those of `get_elmo_vectors`.

        Returns:
            `(n, 2P)`, or for all layers `(n, L+1, 2P)`, where the layers of a text together have length 1; float64.
        """
        sums = self.get_elmo_vectors(texts, warmup, layers, session).sum(axis=-2)
        lengths = np.sqrt((sums**2).sum(axis=tuple(range(1, sums.ndim)), keepdims=True))
        return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)

    def _embed(self, batch: Sequence[Sequence[str]]) -> torch.Tensor:
        """All layers `(L+1, B, T, 2P)` of a batch."""
        ids = self.elmo.encode(batch, max(map(len, batch)))
        words = self.elmo(ids)
        padding = self.elmo.model.token_encoder(torch.zeros_like(ids[:1, 0], device=words.mask.device))
        lowest = torch.where(words.mask.unsqueeze(-1), words.layers[0], padding.repeat(1, 2))
        return torch.cat([lowest.unsqueeze(0), words.layers[1:]])
