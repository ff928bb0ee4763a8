"""Computes the vectors of a window of sentences, and keeps the chosen layers and words in the chosen number type.

In a window each distinct word goes through the tokenizer and the token encoder once, and the sentences are sorted by
length into batches, which keeps padding small.

Layers to choose from, without the sentence's boundaries (L layers, n words, P projection):

    all      (L+1, n, 2P)   every layer; the first is the token vector twice
    top      (n, 2P)        the top layer
    mix      (n, 2P)        the first scalar mix
    average  (n, 2P)        the plain mean of all layers
    sum      (n, 2P)        the plain sum of all layers, SeqVec's vectors of residues
    concat   (n, 2P(L+1))   every layer, one after the other
    pooled   (2P,)          the mean of the first scalar mix over the words; zeros for a blank line
    pooled_sum (2P,)        the mean of the sum over the words, SeqVec's vector of a protein
                            (of a model whose config has the pooling `max`, both are the maximum over the words)
    0, 1, ..   (n, 2P)      one layer, by its number up to L

The result for a sentence is a dict of arrays: `vectors`; with int8 also `scales`, of the same shape without the last
axis (a vector is its int8 numbers times its scale); with chosen words also `positions` (n,), their places in the
sentence, and `chosen_words` (n,), these words as strings that a file can hold.

Glossary: B sentences of a batch, T positions of the longest sentence, with boundaries; V distinct words of a window.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..disk.checksums import sha256_of_model
from ..language_model.scoring import refuse_nan
from ..model.tokenization_elmo import to_words
from ..public import ElmoModel, ElmoTokenizer
from ..text.batches import BATCH_POSITIONS, batches_by_length
from ..text.sentences import Sentence, storable
from .chosen_words import ChosenWords

Arrays = dict[str, np.ndarray]

DTYPES = ("float32", "float16", "bfloat16", "int8")

# A function of the model, its layers `(B, T, 2P)`, and masks `(B, T)` of words with and without boundaries.
Choice = Callable[[ElmoModel, list[Tensor], Tensor, Tensor], list[Tensor]]
LAYERS: dict[str, Choice] = {
    "all": lambda model, layers, mask, is_text: layers,
    "top": lambda model, layers, mask, is_text: layers[-1:],
    "mix": lambda model, layers, mask, is_text: [model.mix(layers, mask)[0]],
    "average": lambda model, layers, mask, is_text: [sum(layers[1:], layers[0]) / len(layers)],
    "sum": lambda model, layers, mask, is_text: [sum(layers[1:], layers[0])],
    "concat": lambda model, layers, mask, is_text: [torch.cat(layers, dim=-1)],
    "pooled": lambda model, layers, mask, is_text: [model.pool(model.mix(layers, mask)[0], is_text)],
    "pooled_sum": lambda model, layers, mask, is_text: [model.pool(sum(layers[1:], layers[0]), is_text)],
}
# Every layer, then the first scalar mix: a choice of `usages.py`, not of users.
VIEWS = "views"
CHOICES = LAYERS | {VIEWS: lambda model, layers, mask, is_text: [*layers, model.mix(layers, mask)[0]]}
# The layers with one vector a sentence, and the layers that this vector pools.
POOLED = {"pooled": "mix", "pooled_sum": "sum"}


def number_of(layers: str) -> int | None:
    """The number of a layer, or None for a name."""
    return int(layers) if layers.isdecimal() else None


def choice_of(layers: str) -> Choice:
    """The function of a key of `CHOICES`, or of the number of a layer."""
    number = number_of(layers)
    if number is not None:
        return lambda model, layers, mask, is_text: [layers[number]]
    return CHOICES[layers]


@dataclass(frozen=True)
class Selection:
    """The vectors to keep of a sentence."""

    layers: str = "all"  # a key of `CHOICES`, or the number of a layer, such as "0"
    dtype: str = "float32"  # the type of the numbers kept, one of `DTYPES`; the model computes in its own type
    words: ChosenWords | None = None  # the words whose vectors are kept; None keeps all
    allow_nan: bool = False  # whether vectors may be NaN

    def check(self, suffix: str = "") -> None:
        """Raises ValueError if the selection is unknown, or if files with this suffix, or NumPy, cannot hold it."""
        layers = list(LAYERS)
        condition = ""
        if self.words is not None:
            layers = [name for name in LAYERS if name not in POOLED]  # pooled layers are of all words
            condition = " with `words`"
        dtypes = [name for name in DTYPES if name != "bfloat16" or suffix == ".safetensors"]
        if self.layers not in layers and number_of(self.layers) is None:
            names = ", ".join(layers) + condition
            raise ValueError(f"`layers` must be one of {names}, or the number of a layer, found {self.layers!r}.")
        if self.dtype not in dtypes:
            holder = suffix or "NumPy"
            raise ValueError(f"`dtype` must be one of {', '.join(dtypes)} in {holder} arrays, found {self.dtype!r}.")

    def check_number(self, model: ElmoModel) -> None:
        """Raises ValueError if the selection is the number of a layer that the model does not have."""
        most = model.config.num_hidden_layers
        number = number_of(self.layers)
        if number is not None and number > most:
            raise ValueError(f"`layers` must be a number from 0 to {most} for this model, found {self.layers}.")

    def job(self, model: ElmoModel, tokenizer: ElmoTokenizer) -> dict[str, Any]:
        """Everything that the vectors depend on, except the text."""
        return {
            "layers": self.layers,
            "dtype": self.dtype,
            "words": None if self.words is None else self.words.digest,
            "tokenizer": _digest_of(tokenizer),
            "model": sha256_of_model(model.config.to_json_string(), model.state_dict().values()),
        }

    def bytes_per_word(self, model: ElmoModel) -> int:
        """The bytes of one word's vectors; a pooled vector counts once for each word."""
        num_vectors = model.config.num_hidden_layers + 1 if self.layers in ("all", "concat") else 1
        return num_vectors * model.config.hidden_size * getattr(torch, self.dtype).itemsize

    def split_batch(self, vectors: Tensor, positions: Sequence[slice | np.ndarray]) -> Iterator[Arrays]:
        """The arrays of each sentence of a batch, as parts of the batch's arrays.

        Args:
            vectors: `(K, B, T, 2P)` of the K layers kept, or `(1, B, 2P)`.
            positions: which positions of each sentence are kept.
        """
        tensors = {"vectors": vectors}
        if self.dtype == "int8":
            tensors["scales"] = vectors.float().abs().amax(-1) / 127  # 0 for a vector of zeros
            tensors["vectors"] = (vectors / tensors["scales"].unsqueeze(-1)).nan_to_num(0).round()
        tensors["vectors"] = tensors["vectors"].to(getattr(torch, self.dtype))
        arrays = {name: _to_numpy(tensor) for name, tensor in tensors.items()}
        for row, kept_positions in enumerate(positions):
            yield {name: self._cut(array[:, row], kept_positions) for name, array in arrays.items()}

    def _cut(self, layers: np.ndarray, positions: slice | np.ndarray) -> np.ndarray:
        if self.layers in POOLED:
            return np.asarray(layers[0])
        if self.layers in ("all", VIEWS):
            return layers[:, positions]
        return layers[0, positions]

    def arrays_without_words(self, model: ElmoModel) -> Arrays:
        """The arrays of a sentence of which no word is kept."""
        num_layers = model.config.num_hidden_layers + 1
        size = model.config.hidden_size
        if self.layers == "concat":
            vectors = torch.zeros(1, 1, 0, num_layers * size)
        else:
            vectors = torch.zeros(num_layers, 1, 0, size)
        (arrays,) = self.split_batch(vectors, [slice(0)])
        return arrays


def embed_window(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[Sentence],
    selection: Selection,
    batch_words: int = BATCH_POSITIONS,
    first: int = 0,
) -> Iterator[tuple[int, Arrays]]:
    """Yields each sentence's place in the window and its arrays, the longest sentences first.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        sentences: raw texts, or words.
        selection: the vectors to keep. A sentence without a chosen word has empty arrays, and the model skips it.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        first: the number of sentences before the window, for the message.

    Raises:
        ValueError: if a sentence's vectors are NaN and `selection` does not allow that; the message names the sentence.
            If the model does not have the layer of `selection`.
    """
    selection.check_number(model)
    texts = _split_sentences(sentences, tokenizer)
    rows = list(range(len(texts)))
    chosen: list[Arrays] = [{} for _ in texts]
    if selection.words is not None:
        chosen = [_choose_words(selection.words, text) for text in texts]
        rows = [row for row in rows if len(chosen[row]["positions"]) > 0]
    words = _WindowWords.encode(model, tokenizer, [texts[row] for row in rows])
    lengths = [len(texts[row]) + 2 * words.num_begins for row in rows]
    for indices in batches_by_length(lengths, batch_words):
        batch = [rows[index] for index in indices]
        vectors = _embed_batch(model, words, [texts[row] for row in batch], selection)
        if not selection.allow_nan:
            _check_numbers(vectors, [first + row for row in batch])
        positions: list[slice | np.ndarray]
        if selection.words is None:
            positions = [slice(words.num_begins, words.num_begins + len(texts[row])) for row in batch]
        else:
            positions = [chosen[row]["positions"] + words.num_begins for row in batch]
        for row, arrays in zip(batch, selection.split_batch(vectors, positions), strict=True):
            yield row, arrays | chosen[row]
    if len(rows) < len(texts):
        arrays = selection.arrays_without_words(model)
        for row in sorted(set(range(len(texts))) - set(rows)):
            yield row, arrays | chosen[row]


def _split_sentences(sentences: Sequence[Sentence], tokenizer: ElmoTokenizer) -> list[list[str]]:
    """The words of each sentence, with one copy of each distinct word."""
    copies = _WordCopies()
    texts = []
    for sentence in sentences:
        words = sentence
        if isinstance(sentence, str):
            words = to_words(sentence, False, tokenizer.split_text).words
        texts.append([copies[word] for word in words])
    return texts


def _choose_words(words: ChosenWords, text: list[str]) -> Arrays:
    """The places of the chosen words of a sentence, and these words."""
    positions = words.positions(text)
    return {"positions": positions, "chosen_words": np.array([storable(text[place]) for place in positions], dtype=str)}


def _check_numbers(vectors: Tensor, sentences: list[int]) -> None:
    """Checks that the vectors of a batch are not NaN.

    Args:
        vectors: `(K, B, T, 2P)` or `(1, B, 2P)`.
        sentences: the numbers of the batch's sentences, for the message.

    Raises:
        ValueError: if some are NaN; the message names the first sentence.
    """
    if not vectors.sum().isnan():
        return
    # The sum is NaN too if numbers overflowed to infinity, which is legal.
    is_nan = vectors.isnan().transpose(0, 1).flatten(1).any(1).cpu().numpy()
    if is_nan.any():
        refuse_nan(min(np.array(sentences)[is_nan]))


class _WordCopies(dict[str, str]):
    """One copy of each distinct word, so the words of a long text can be freed all at once."""

    def __missing__(self, word: str) -> str:
        copy = word[:1] + word[1:]
        return self.setdefault(copy, copy)


class _WindowWords(NamedTuple):
    """The V distinct words of a window, sorted, with the boundaries before and after them, if the model reads any."""

    places: dict[str, int]  # of each word among all V (+ 2)
    num_begins: int  # 1 with boundaries, else 0
    vectors: Tensor  # (V + 2, P), of the token encoder
    is_text: Tensor  # (V + 2), False on boundaries

    @classmethod
    @torch.inference_mode()
    def encode(cls, model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[str]]) -> "_WindowWords":
        words = sorted({word for text in texts for word in text})
        ids = tokenizer([words], is_split_into_words=True, return_tensors="pt")["input_ids"].to(model.device)
        num_begins = tokenizer.num_special_tokens_to_add() // 2
        places = {word: place for place, word in enumerate(words, num_begins)}
        mask = torch.ones(ids.shape[:2], dtype=torch.bool, device=ids.device)
        vectors, _ = model.embed_words(ids, mask)
        return cls(places, num_begins, vectors[0], ~model.boundaries(ids)[0])

    def places_of(self, text: list[str]) -> Tensor:
        """The places `(T,)` of the words of a text, boundaries included."""
        places = [self.places[word] for word in text]
        if self.num_begins == 1:
            places = [0, *places, len(self.vectors) - 1]
        return torch.tensor(places, dtype=torch.long)


@torch.inference_mode()
def _embed_batch(model: ElmoModel, words: _WindowWords, texts: list[list[str]], selection: Selection) -> Tensor:
    """The vectors kept of a batch of texts, `(K, B, T, 2P)` or `(1, B, 2P)`."""
    rows = [words.places_of(text) for text in texts]
    if len(rows) == 1 and len(rows[0]) > model.bilm.piece_words:
        return _embed_long(model, words, rows[0].to(model.device), selection)
    places = pad_sequence(rows, batch_first=True, padding_value=-1).to(model.device)  # (B, T), -1 on padding
    mask = places >= 0
    vectors = words.vectors[places].masked_fill(~mask.unsqueeze(-1), 0)
    layers = model.bilm(vectors, mask)[0]
    return torch.stack(choice_of(selection.layers)(model, layers, mask, mask & words.is_text[places]))


def _embed_long(model: ElmoModel, words: _WindowWords, places: Tensor, selection: Selection) -> Tensor:
    """The same for one long text, given the places `(T,)` of its words; see `BiLM`.

    A piece of a text has one direction's half of each vector. Where the vectors kept need whole vectors, all layers of
    the pieces are collected, and the choice follows.
    """
    collected = POOLED.get(selection.layers, selection.layers)
    is_plain_mix = model.config.layer_mix == "scalar" and model.config.scalar_mix_layer_norm == "none"
    if collected in ("concat", VIEWS) or (collected == "mix" and not is_plain_mix):
        collected = "all"
    is_final = collected == selection.layers and selection.dtype != "int8"  # the scale of int8 needs whole vectors too

    def collect(layers: list[Tensor]) -> Tensor:
        mask = layers[0].new_ones(layers[0].shape[:2], dtype=torch.bool)
        vectors = torch.stack(choice_of(collected)(model, layers, mask, mask))
        if is_final:
            vectors = vectors.to(getattr(torch, selection.dtype))
        return vectors

    def token_vectors(part: slice) -> Tensor:
        return words.vectors[places[part]].unsqueeze(0)

    vectors, _ = model.bilm.read_in_pieces(token_vectors, len(places), collect)
    if collected == selection.layers:
        return vectors
    is_text = words.is_text[places].unsqueeze(0)
    if collected != "all":
        return model.pool(vectors[0], is_text).unsqueeze(0)
    mask = torch.ones_like(is_text)
    return torch.stack(choice_of(selection.layers)(model, list(vectors), mask, is_text))


def _digest_of(tokenizer: ElmoTokenizer) -> str:
    """Digests the vocabulary and the splitter; a splitter that is a function counts by its name."""
    splitter_name = ""
    if tokenizer._split_by is not None:
        (splitter,) = tokenizer._split_by.args
        function = splitter if hasattr(splitter, "__qualname__") else type(splitter)
        splitter_name = f"{getattr(function, '__module__', '')}.{function.__qualname__}"
    content = tokenizer.backend_tokenizer.to_str() + splitter_name
    return hashlib.sha256(content.encode()).hexdigest()


def _to_numpy(tensor: Tensor) -> np.ndarray:
    """A NumPy array; bfloat16, which NumPy lacks, as its bits in uint16."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).cpu().numpy().view(np.uint16)
    return tensor.cpu().numpy()
