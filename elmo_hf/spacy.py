"""ELMo vectors in spaCy: `nlp.add_pipe("elmo")`, which finds this module by an entry point.

    nlp.add_pipe("elmo", config={"model": "elmo-small"})
    doc.tensor       (n, 2P)   the ELMo vector of each token, zeros on blanks, which the model does not read
    token.vector     (2P,)     its row
    span.vector      (2P,)     its tokens pooled: their mean or maximum, by the config's `pooling`
    doc.vector       (2P,)     all tokens pooled, the model's `pooler_output`
    similarity                 the cosine of two vectors

The model reads a doc as one text; to read each sentence by itself, make a doc of each. spaCy saves `doc.tensor` with a
doc, but not the hooks that compute vectors from `doc.tensor`. After `nlp.pipe(..., n_process=2)`, which loses the hooks
too, and after `Doc.from_bytes`, call `set_hooks(doc)`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch

from .embedding.window_vectors import Selection, embed_window
from .folder.loading import load_complete, load_tokenizer
from .model.layers_elmo import pooling_of
from .public import ElmoModel, ElmoTokenizer
from .text.batches import BATCH_POSITIONS


@Language.factory(
    "elmo", default_config={"model": "tiny", "batch_words": BATCH_POSITIONS, "device": "cpu"}, assigns=["doc.tensor"]
)
def make_elmo(nlp: Language, name: str, model: str, batch_words: int, device: str) -> "ElmoPipe":
    """Makes the component; spaCy calls it."""
    return ElmoPipe(model, batch_words, device)


class ElmoPipe:
    """The component. It loads the model for the first doc, or when spaCy loads a saved pipeline."""

    def __init__(self, model: str = "tiny", batch_words: int = BATCH_POSITIONS, device: str = "cpu") -> None:
        """Keeps the arguments.

        Args:
            model: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
            batch_words: the most positions of a batch, boundaries and padding included; a longer doc is alone.
            device: where the model runs, such as `"cuda"`.
        """
        self.model = model
        self.batch_words = batch_words
        self.device = device
        self._loaded: tuple[ElmoModel, ElmoTokenizer] | None = None

    def __call__(self, doc: Doc) -> Doc:
        """Sets the vectors of a doc."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 256) -> Iterator[Doc]:
        """Sets the vectors of docs, `batch_size` at a time; the model runs on batches of docs of similar length.

        Raises:
            ValueError: if the model cannot be loaded, or a vector is NaN.
        """
        for docs in minibatch(stream, batch_size):
            model, tokenizer = self._load()
            are_words = [_are_words(doc) for doc in docs]
            texts = [_words_of(doc) for doc in docs]
            for row, arrays in embed_window(model, tokenizer, texts, Selection("mix"), self.batch_words):
                tensor = np.zeros((len(docs[row]), model.config.hidden_size), dtype=np.float32)
                tensor[are_words[row]] = arrays["vectors"]
                docs[row].tensor = tensor
            for doc in docs:
                set_hooks(doc, model.config.pooling)
                yield doc

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Saves the model inside the saved pipeline."""
        for part in self._load():
            part.save_pretrained(path)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "ElmoPipe":
        """Loads the model that `to_disk` saved."""
        self._load(path)
        return self

    def _load(self, folder: str | Path | None = None) -> tuple[ElmoModel, ElmoTokenizer]:
        if self._loaded is None or folder is not None:
            name = folder or self.model
            self._loaded = load_complete(name).to(self.device), load_tokenizer(name)
        return self._loaded


def _are_words(part: Doc | Span) -> np.ndarray:
    """Which tokens the model reads: all but blanks."""
    return np.array([not token.is_space for token in part], dtype=bool)


def _words_of(doc: Doc) -> list[str]:
    return [token.text for token in doc if not token.is_space]


def set_hooks(doc: Doc, pooling: str = "mean") -> Doc:
    """Makes a doc, its spans and its tokens compute vectors and similarities from `doc.tensor`.

    Args:
        doc: a doc that went through the component; its hooks may be lost.
        pooling: the `pooling` of the model's config.

    Raises:
        ValueError: if there is no such pooling.
    """
    pool = pooling_of(pooling)

    def pooled(part: Doc | Span) -> np.ndarray:
        return pool(torch.tensor(part.tensor)[None], torch.tensor(_are_words(part))[None])[0].numpy()

    for hooks, vector in (
        (doc.user_hooks, pooled),
        (doc.user_span_hooks, pooled),
        (doc.user_token_hooks, lambda token: token.doc.tensor[token.i]),
    ):
        hooks |= {"vector": vector, "has_vector": lambda part: bool(part.vector.any()), "similarity": _similarity}
    return doc


def _similarity(one: Doc | Span | Token, other: Any) -> float:
    """The cosine; 0 if a vector is zero.

    Raises:
        ValueError: if the vectors have different widths, as those of a doc that did not go through the component.
    """
    product = one.vector @ other.vector
    norms = np.linalg.norm(one.vector) * np.linalg.norm(other.vector)
    if norms == 0:
        return 0.0
    return float(product / norms)
