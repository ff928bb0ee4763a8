"""Texts as features of scikit-learn: one row for each text, its `pooler_output`.

    make_pipeline(ElmoVectorizer("elmo-small"), LogisticRegression()).fit(texts, labels)

The vectorizer has nothing to fit, so `transform` works without `fit`. It keeps only the model's name, so clones and
pickles are small; the model is loaded on first use, and all vectorizers of a process share the last one.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from .embedding.window_vectors import Selection, embed_window
from .folder.loading import load_shared
from .text.batches import BATCH_POSITIONS


class ElmoVectorizer(TransformerMixin, BaseEstimator):
    """Turns texts into ELMo vectors.

    A text's vector is the model's `pooler_output`: by the config's `pooling` the mean or the maximum of the ELMo
    vectors of its words; zeros for a text without words.
    """

    def __init__(self, model: str | Path = "tiny", *, batch_words: int = BATCH_POSITIONS, device: str = "cpu") -> None:
        """Keeps the arguments; nothing is loaded yet.

        Args:
            model: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
            batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
            device: where the model runs, such as `"cuda"`.
        """
        self.model = model
        self.batch_words = batch_words
        self.device = device

    def fit(self, X: Iterable[str], y: Any = None) -> "ElmoVectorizer":
        """Loads the model and ignores `X` and `y`; raises ValueError if it cannot be loaded."""
        load_shared(self.model, self.device)
        return self

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """Embeds n texts.

        Args:
            X: a list or Series of texts, or a table with one column of them.

        Returns:
            `(n, 2P)` float32; a data frame after `set_output(transform="pandas")`.

        Raises:
            ValueError: if `X` is one string or has several columns, a value is not a text, or a vector is NaN.
        """
        if isinstance(X, str | bytes):
            raise ValueError(f"`X` must be a list of texts, found one text, {X!r:.50}; put it into a list.")
        texts = list(np.asarray(X).squeeze(axis=1) if len(getattr(X, "shape", ())) == 2 else X)
        model, tokenizer = load_shared(self.model, self.device)
        vectors = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
        words = [tokenizer.tokenize(text) for text in texts]
        for row, arrays in embed_window(model, tokenizer, words, Selection("pooled"), self.batch_words):
            vectors[row] = arrays["vectors"]
        return vectors

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns, `elmo0`, `elmo1` and so on; `input_features` is ignored."""
        size = load_shared(self.model, self.device)[0].config.hidden_size
        return np.array([f"elmo{column}" for column in range(size)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags
