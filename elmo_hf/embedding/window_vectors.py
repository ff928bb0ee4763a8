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
from tqdm import tqdm

from ..disk.checksums import sha256_of_model
from ..language_model.scoring import refuse_nan
from ..model.tokenization_elmo import ElmoTokenizer, to_words
from ..public import ElmoModel
from ..text.batches import batches_by_length
from ..text.sentences import Sentence, storable
from .chosen_words import ChosenWords

Arrays = dict[str, np.ndarray]

DTYPES = ("float32", "float16", "bfloat16", "int8")
# The most positions of a batch, padding included.
BATCH_WORDS = 2048

# Functions of the model, its layers `(B, T, 2P)`, and masks `(B, T)` of words with and without boundaries.
LAYERS: dict[str, Callable[[ElmoModel, list[Tensor], Tensor, Tensor], list[Tensor]]] = {
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


@dataclass(frozen=True)
class Selection:
    """The vectors to keep of a sentence."""

    layers: str = "all"  # a key of `CHOICES`
    dtype: str = "float32"  # the type of the numbers kept, one of `DTYPES`; the model computes in its own type
    words: ChosenWords | None = None  # the words whose vectors are kept; None keeps all
    allow_nan: bool = False  # whether vectors may be NaN

    def check(self, suffix: str = "") -> None:
        """Raises ValueError if the selection is unknown, or if files with this suffix, or NumPy, cannot hold it."""
        layers = [each for each in LAYERS if each not in POOLED or self.words is None]  # pooled: all words
        dtypes = [each for each in DTYPES if each != "bfloat16" or suffix == ".safetensors"]
        if self.layers not in layers or self.dtype not in dtypes:
            raise ValueError(
                f"`layers` must be one of {', '.join(layers)}{' with `words`' if self.words else ''}, found "
                f"{self.layers!r}; `dtype` one of {', '.join(dtypes)} in {suffix or 'NumPy'} arrays, found "
                f"{self.dtype!r}."
            )

    def job(self, model: ElmoModel, tokenizer: ElmoTokenizer) -> dict[str, Any]:
        """Everything that the vectors depend on, except the text."""
        facts = {"layers": self.layers, "dtype": self.dtype, "words": self.words and self.words.digest}
        facts |= {"tokenizer": _digest_of(tokenizer)}
        return facts | {"model": sha256_of_model(model.config.to_json_string(), model.state_dict().values())}

    def bytes_per_word(self, model: ElmoModel) -> int:
        """The bytes of one word's vectors; a pooled vector counts once for each word."""
        num_vectors = model.config.num_hidden_layers + 1 if self.layers in ("all", "concat") else 1
        return num_vectors * model.config.hidden_size * getattr(torch, self.dtype).itemsize

    def of(self, vectors: Tensor, places: Sequence[slice | np.ndarray]) -> Iterator[Arrays]:
        """The arrays of each sentence of a batch, as parts of the batch's arrays.

        Args:
            vectors: `(K, B, T, 2P)` of the K layers kept, or `(1, B, 2P)`.
            places: which positions of each sentence are kept.
        """
        columns = {"vectors": vectors}
        if self.dtype == "int8":
            columns["scales"] = vectors.float().abs().amax(-1) / 127  # 0 for a vector of zeros
            columns["vectors"] = (vectors / columns["scales"].unsqueeze(-1)).nan_to_num(0).round()
        columns["vectors"] = columns["vectors"].to(getattr(torch, self.dtype))
        arrays = {name: _to_numpy(each) for name, each in columns.items()}
        for row, place in enumerate(places):
            yield {name: self._cut(each[:, row], place) for name, each in arrays.items()}

    def _cut(self, layers: np.ndarray, place: slice | np.ndarray) -> np.ndarray:
        if self.layers in POOLED:
            return np.asarray(layers[0])
        return layers[:, place] if self.layers in ("all", VIEWS) else layers[0, place]


def embed_window(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    sentences: Sequence[Sentence],
    selection: Selection,
    batch_words: int = BATCH_WORDS,
    bar: tqdm | None = None,
    first: int = 0,
) -> Iterator[tuple[int, Arrays]]:
    """Yields each sentence's place in the window and its arrays, the longest sentences first.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        sentences: raw texts, or words.
        selection: the vectors to keep. A sentence without a chosen word has empty arrays, and the model skips it.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        bar: counts sentences.
        first: the number of sentences before the window, for the message.

    Raises:
        ValueError: if a sentence's vectors are NaN and `selection` does not allow that; the message names the sentence.
    """
    bar = tqdm(disable=True) if bar is None else bar
    known = _Known()
    read = (to_words(each, False, tokenizer.split_text).words if isinstance(each, str) else each for each in sentences)
    texts = [[known[word] for word in text] for text in read]
    chosen = None if selection.words is None else [_chosen(selection.words, text) for text in texts]
    rows = [row for row in range(len(texts)) if chosen is None or len(chosen[row]["positions"])]
    words = _Words.of_texts(model, tokenizer, [texts[row] for row in rows])
    for batch in batches_by_length([len(texts[row]) + 2 * words.num_begins for row in rows], batch_words):
        batch = [rows[place] for place in batch]
        vectors = _embed_batch(model, words, [texts[row] for row in batch], selection)
        if not selection.allow_nan and vectors.sum().isnan():  # NaN too if numbers overflowed to infinity
            if (is_nan := vectors.isnan().transpose(0, 1).flatten(1).any(1).cpu().numpy()).any():
                refuse_nan(first + min(np.array(batch)[is_nan]))
        if chosen is None:
            places = [slice(words.num_begins, words.num_begins + len(texts[row])) for row in batch]
            yield from zip(batch, selection.of(vectors, places), strict=True)
        else:
            found = selection.of(vectors, [chosen[row]["positions"] + words.num_begins for row in batch])
            yield from ((row, kept | chosen[row]) for row, kept in zip(batch, found, strict=True))
        bar.update(len(batch))
    if chosen is not None and len(rows) < len(texts):
        num_layers = model.config.num_hidden_layers + 1
        nothing = torch.zeros(num_layers, 1, 0, model.config.hidden_size)
        nothing = torch.cat([*nothing.unsqueeze(1)], dim=-1) if selection.layers == "concat" else nothing
        (kept,) = selection.of(nothing, [slice(0)])
        bar.update(len(texts) - len(rows))
        yield from ((row, kept | chosen[row]) for row in sorted({*range(len(texts))} - {*rows}))


def _chosen(words: ChosenWords, text: list[str]) -> Arrays:
    """The places of the chosen words of a sentence, and these words."""
    positions = words.positions(text)
    return {"positions": positions, "chosen_words": np.array([storable(text[place]) for place in positions], dtype=str)}


class _Known(dict[str, str]):
    """One copy of each distinct word, so the words of a long text can be freed all at once."""

    def __missing__(self, word: str) -> str:
        copy = word[:1] + word[1:]
        return self.setdefault(copy, copy)


class _Words(NamedTuple):
    """The V distinct words of a window, sorted, with the boundaries before and after them, if the model reads any."""

    places: dict[str, int]  # of each word among all V (+ 2)
    num_begins: int  # 1 with boundaries, else 0
    vectors: Tensor  # (V + 2, P), of the token encoder
    is_text: Tensor  # (V + 2), False on boundaries

    @classmethod
    @torch.inference_mode()
    def of_texts(cls, model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[str]]) -> "_Words":
        words = sorted({word for text in texts for word in text})
        ids = tokenizer([words], is_split_into_words=True, return_tensors="pt")["input_ids"].to(model.device)
        num_begins = tokenizer.num_special_tokens_to_add() // 2
        places = {word: place for place, word in enumerate(words, num_begins)}
        mask = torch.ones(ids.shape[:2], dtype=torch.bool, device=ids.device)
        return cls(places, num_begins, model.embed_words(ids, mask)[0][0], ~model.boundaries(ids)[0])


@torch.inference_mode()
def _embed_batch(model: ElmoModel, words: _Words, texts: list[list[str]], selection: Selection) -> Tensor:
    """The vectors kept of a batch of texts, `(K, B, T, 2P)` or `(1, B, 2P)`."""
    begin, end = [0] * words.num_begins, [len(words.vectors) - 1] * words.num_begins
    rows = [torch.tensor([*begin, *map(words.places.__getitem__, text), *end], dtype=torch.long) for text in texts]
    if len(rows) == 1 and len(rows[0]) > model.bilm.piece_words:
        return _embed_long(model, words, rows[0].to(model.device), selection)
    places = pad_sequence(rows, batch_first=True, padding_value=-1).to(model.device)  # (B, T), -1 on padding
    mask = places >= 0
    vectors = words.vectors[places].masked_fill(~mask.unsqueeze(-1), 0)
    layers = model.bilm(vectors, mask)[0]
    return torch.stack(CHOICES[selection.layers](model, layers, mask, mask & words.is_text[places]))


def _embed_long(model: ElmoModel, words: _Words, places: Tensor, selection: Selection) -> Tensor:
    """The same for one long text, given the places `(T,)` of its words; see `BiLM`."""
    kind = POOLED.get(selection.layers, selection.layers)
    is_plain = model.config.layer_mix == "scalar" and model.config.scalar_mix_layer_norm == "none"
    if kind in ("concat", VIEWS) or (kind == "mix" and not is_plain):
        kind = "all"  # a piece has one direction's half of each vector; these need whole vectors

    is_final = kind == selection.layers and selection.dtype != "int8"  # the scale of int8 needs whole vectors too

    def keep(of_piece: list[Tensor]) -> Tensor:
        mask = of_piece[0].new_ones(of_piece[0].shape[:2], dtype=torch.bool)
        kept = torch.stack(CHOICES[kind](model, of_piece, mask, mask))
        return kept.to(getattr(torch, selection.dtype)) if is_final else kept

    kept, _ = model.bilm.read_in_pieces(lambda part: words.vectors[places[part]].unsqueeze(0), len(places), keep)
    if kind == selection.layers:
        return kept
    mask, is_text = torch.ones_like(places, dtype=torch.bool).unsqueeze(0), words.is_text[places].unsqueeze(0)
    if kind != "all":
        return model.pool(kept[0], is_text).unsqueeze(0)
    return torch.stack(CHOICES[selection.layers](model, [*kept], mask, is_text))


def _digest_of(tokenizer: ElmoTokenizer) -> str:
    """Digests the vocabulary and the splitter; a splitter that is a function counts by its name."""
    name = ""
    if tokenizer._split_by is not None:
        (function,) = tokenizer._split_by.args
        named = function if hasattr(function, "__qualname__") else type(function)
        name = f"{getattr(named, '__module__', '')}.{named.__qualname__}"
    return hashlib.sha256((tokenizer.backend_tokenizer.to_str() + name).encode()).hexdigest()


def _to_numpy(tensor: Tensor) -> np.ndarray:
    """A NumPy array; bfloat16, which NumPy lacks, as its bits in uint16."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).cpu().numpy().view(np.uint16)
    return tensor.cpu().numpy()
