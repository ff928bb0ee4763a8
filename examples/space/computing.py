"""The numbers that the page shows: the layers of every word, their mix, nearest occurrences, maps, surprisal.

The model runs once for a text and once for the corpus. Their layers are kept, so a mix is a sum and needs no model.

Glossary: N words of a text, L layers, D = 2P features, V views: the layers 0 to L, and the mix.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, compress
from pathlib import Path

import numpy as np
import torch

from elmo_hf import ElmoForPreTraining, ElmoModel, ElmoPreTrainedModel, ElmoTokenizer
from elmo_hf.cli.split_notes import is_cut
from elmo_hf.folder.loading import load_complete, load_tokenizer, open_folder
from elmo_hf.folder.model_names import TINY
from elmo_hf.folder.saved_config import read_config
from elmo_hf.model.tokenization_elmo import UNKNOWN_WORD

MODELS = os.environ.get("ELMO_MODEL", TINY).split(",")
CORPUS = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
MAX_CHARACTERS = 2000
MAX_WORDS = 400  # boundaries included
NUM_NEAREST = 5  # of each view
ROUNDING = 1e-5  # the cosines of equal vectors may differ by this
NUM_SAME = 10  # occurrences of the clicked word itself, at most


@dataclass(frozen=True)
class Layers:
    """Texts and their layers; words count through all texts."""

    texts: list[list[str]]
    places: list[tuple[int, int]]  # of each word: its text, and its index there
    layers: np.ndarray  # `(L+1, N, D)`; layer 0 depends on the word alone

    def word(self, index: int) -> str:
        """A word."""
        text, place = self.places[index]
        return self.texts[text][place]


@dataclass(frozen=True)
class Comparison:
    """One word of a text beside K words of the corpus, in V views."""

    words: list[int]  # in the corpus, the most similar in the mix first
    similarities: np.ndarray  # `(V, K)` cosines
    is_near: np.ndarray  # `(V, K)`, whether fewer than `NUM_NEAREST` words of the corpus are nearer in a view
    points: np.ndarray  # `(V, 1 + K, 2)`, the clicked word and the others on a plane
    variances: list[float]  # the share of the variance that each plane shows, 0 if there is none


@lru_cache(maxsize=2)
def load(name: str) -> tuple[ElmoPreTrainedModel, ElmoTokenizer]:
    """A model, with its softmax if it has one, and its tokenizer.

    Raises:
        ValueError: if there is no such model, or if it is not an ELMo.
    """
    try:
        config, _ = read_config(open_folder(name))
        is_language_model = ElmoForPreTraining.__name__ in (config.architectures or ())
        model = load_complete(name, ElmoForPreTraining if is_language_model else ElmoModel)
        return model, load_tokenizer(name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"The model {name!r} cannot be loaded: {reason}") from error


def read_text(name: str, text: str | None) -> tuple[str, ...]:
    """The sentences of a visitor's text, one a line, for one of the page's models.

    Raises:
        ValueError: if the page does not have the model, if the text is empty or too long, or if the model would read
            only the beginning of a word.
    """
    if name not in MODELS:
        raise ValueError(f"The model {name!r:.50} is not on this page, which has {', '.join(MODELS)}.")
    text = text or ""  # a program that calls the page may leave it out
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise ValueError("The text is empty. Type at least one word.")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"The text has {len(text):,} characters, this page reads {MAX_CHARACTERS:,} at most: shorten it."
        )
    _, tokenizer = load(name)
    for word in chain.from_iterable(map(tokenizer.tokenize, lines)):
        if tokenizer.token_encoder == "char_cnn" and is_cut(word, tokenizer):
            raise ValueError(
                f"The word {word[:20]!r}... is longer than the {tokenizer.max_word_length - 2} letters, or bytes, of a "
                "word that the model reads: shorten it, or put blanks between words that have none."
            )
    count = sum(map(len, tokenizer(list(lines))["input_ids"]))
    if count > MAX_WORDS:
        raise ValueError(f"The text has {count:,} words, this page reads {MAX_WORDS:,} at most: shorten it.")
    return lines


@lru_cache(maxsize=16)
def read_layers(name: str, lines: tuple[str, ...]) -> Layers:
    """Runs a model over sentences, as one batch."""
    model, tokenizer = load(name)
    inputs = tokenizer(list(lines), padding=True, return_tensors="pt", return_special_tokens_mask=True)
    is_word = inputs.pop("special_tokens_mask") == 0
    with torch.no_grad():
        hidden_states = model.base_model(**inputs, output_hidden_states=True).hidden_states
    texts = [list(compress(inputs.tokens(row), mask)) for row, mask in enumerate(is_word.tolist())]
    places = [(row, index) for row, text in enumerate(texts) for index in range(len(text))]
    return Layers(texts, places, np.stack([layer[is_word].float().numpy() for layer in hidden_states]))


@lru_cache(maxsize=16)
def read_surprisals(name: str, lines: tuple[str, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Bits of each sentence's n + 1 predictions, forward and backward: `ElmoForPreTraining.score`.

    Raises:
        ValueError: if the model has no softmax.
    """
    model, tokenizer = load(name)
    if not isinstance(model, ElmoForPreTraining):
        raise ValueError(
            f"The model {name!r} has no softmax over words, so no surprisal: open one that has, as {TINY}."
        )
    sentences = read_layers(name, lines).texts
    scores = model.score(sentences, tokenizer)
    return [scores.surprisals(index) for index in range(len(sentences))]


def unknown_words(name: str, lines: tuple[str, ...]) -> list[list[bool]]:
    """Whether each word is outside the vocabulary of a model's softmax, and scored as `<UNK>`."""
    _, tokenizer = load(name)
    unknown = tokenizer.word_classes([UNKNOWN_WORD])
    return [(tokenizer.word_classes(text) == unknown).tolist() for text in read_layers(name, lines).texts]


def first_word(name: str, lines: tuple[str, ...]) -> int:
    """The word of a text that is shown first: the last one with over three letters and three places in the corpus."""
    text, corpus = read_layers(name, lines), read_layers(name, tuple(CORPUS))
    counts = Counter(word.casefold() for words in corpus.texts for word in words)
    words = [word for sentence in text.texts for word in sentence]
    merits = [(len(word) > 3, min(counts[word.casefold()], 3), index) for index, word in enumerate(words)]
    return max(merits)[-1]


def mix(layers: np.ndarray, weights: Sequence[float | None]) -> np.ndarray:
    """The weighted sum of `(L+1, ...)` layers; weights are divided by their sum.

    Raises:
        ValueError: if there is not one weight for each layer, if one is outside 0 to 1, or if all are zero.
    """
    if len(weights) != len(layers):
        raise ValueError(f"The model has {len(layers)} layers, found {len(weights)} weights.")
    for weight in weights:
        if weight is None or not 0 <= weight <= 1:  # NaN is not
            raise ValueError(f"Each weight of the mix must be a number from 0 to 1, found {weight}.")
    if sum(weights) == 0:
        raise ValueError("All weights of the mix are 0. Move at least one slider to the right.")
    return np.tensordot(np.asarray(weights, dtype=np.float32) / sum(weights), layers, axes=1)


def compare(name: str, lines: tuple[str, ...], word: int | None, weights: Sequence[float | None]) -> Comparison:
    """Compares one word of a text with the corpus: what is near in any view, and further occurrences of the word.

    A program that calls the page may leave out numbers, which are None then.

    Raises:
        ValueError: if the text has no such word, or if the weights are not those of a mix.
    """
    text, corpus = read_layers(name, lines), read_layers(name, tuple(CORPUS))
    if word is None:
        raise ValueError("The number of the word, counted from 0, is missing. Give it, or click a word.")
    if not 0 <= word < len(text.places):
        raise ValueError(f"The text has {len(text.places)} words; there is no word {word + 1}.")
    clicked, others = ([*each, mix(each, weights)] for each in (text.layers[:, word], corpus.layers))
    clicked, others = _unit(np.stack(clicked)), _unit(np.stack(others))
    similarities = np.einsum("vnd,vd->vn", others, clicked)
    order = np.argsort(-similarities, axis=1, kind="stable")
    least = np.take_along_axis(similarities, order[:, NUM_NEAREST - 1 : NUM_NEAREST], axis=1)
    spelling = text.word(word).casefold()
    same = [place for place in order[-1] if corpus.word(place).casefold() == spelling][:NUM_SAME]
    near = {*order[:, :NUM_NEAREST].flat, *same}
    words = [int(place) for place in order[-1] if place in near]
    planes = [_plane(np.vstack([query, vectors[words]])) for query, vectors in zip(clicked, others, strict=True)]
    top = planes[-2][0]  # the other maps are turned and mirrored to resemble the top layer's
    return Comparison(
        words,
        similarities[:, words],
        similarities[:, words] >= least - ROUNDING,
        np.stack([_turned(points, top) for points, _ in planes]),
        [variance for _, variance in planes],
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1, so that a product is a cosine."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


def _plane(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """The two principal components of `(K, D)` vectors: points `(K, 2)`, and their share of the variance."""
    rows, lengths, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    squares = lengths**2
    return rows[:, :2] * lengths[:2], float(squares[:2].sum() / max(squares.sum(), 1e-6))


def _turned(points: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Points turned or mirrored, distances unchanged, to lie as near to `like` as they can (Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ like)
    return points @ (left @ right)
