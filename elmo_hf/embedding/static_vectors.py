"""Vectors of single words: files that gensim reads, and nearest words.

A single word has two kinds of vectors:

    token      the context-free vector (P), which depends only on the spelling, or on the word's id
    k, mix     the word's vector (2P) in layer k, or in the scalar mix, of a sentence of this one word

The two text formats are one line a word, `word number number ...`, separated by blanks; word2vec's begins with a line
of two counts, `words numbers`, and GloVe's does not. Numbers have six digits.

Glossary: N words, D numbers of a vector, P projection.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from ..disk.whole_files import new_file
from ..public import ElmoModel, ElmoTokenizer
from ..text.formats import Format
from ..text.sentences import read_sentences, storable

# Words that run through the model at a time.
BATCH_SIZE = 256


class WordList(NamedTuple):
    """The distinct words of a file in their order, and how many lines were blank and how many were repeated."""

    words: list[str]
    num_blank: int
    num_repeated: int


def read_words(path: Path, encoding: str = "utf-8", input_format: Format | None = None) -> WordList:
    """Reads words: a line of text is one word; sentences of JSON lines and CoNLL-U are lists of words.

    Raises:
        ValueError: if the file cannot be read, or has no words.
        OSError: if the file cannot be opened.
    """
    words: dict[str, None] = {}
    num_blank = num_repeated = 0
    for sentence in read_sentences(path, encoding=encoding, input_format=input_format):
        sentence_words = [sentence] if isinstance(sentence, str) else sentence
        for sentence_word in sentence_words:
            word = storable(sentence_word.strip())
            if not word:
                num_blank += 1
            elif word in words:
                num_repeated += 1
            else:
                words[word] = None
    if not words:
        raise ValueError(f"there are no words in {path}.")
    return WordList(list(words), num_blank, num_repeated)


def word_vectors(
    model: ElmoModel, tokenizer: ElmoTokenizer, words: Sequence[str], layer: str = "token", show_progress: bool = False
) -> np.ndarray:
    """The vectors `(N, D)` of single words.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        words: N words.
        layer: `"token"`, `"mix"`, or the number of a biLM layer as a string.
        show_progress: whether to show a progress bar.

    Raises:
        ValueError: if there is no such layer.
    """
    return np.concatenate(list(_vectors_by_batch(model, tokenizer, words, layer, show_progress)))


def refuse_blanks(words: Sequence[str]) -> None:
    """Raises ValueError if a word has a blank, so that its vector cannot be written as text."""
    for word in words:
        if word.split() != [word]:
            raise ValueError(
                f"a word must not have blanks, because blanks separate the numbers of its vector, found {word[:80]!r}; "
                "join its parts (New_York), or leave it out."
            )


def write_word_vectors(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    words: Sequence[str],
    output: Path,
    layer: str = "token",
    header: bool = True,
    show_progress: bool = False,
    replaces: bool = True,
) -> int:
    """Writes vectors of single words as text; the file exists only once it is complete.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        words: N different words without blanks.
        output: the new file.
        layer: as in `word_vectors`.
        header: True for word2vec's format, False for GloVe's.
        show_progress: whether to show a progress bar.
        replaces: whether the new file replaces an older one.

    Returns:
        D.

    Raises:
        ValueError: if there is no such layer, or a word has a blank.
        OSError: if the file cannot be written, or exists and must not be replaced.
    """
    refuse_blanks(words)
    words_to_write = iter(words)
    size = 0
    with new_file(output, replaces) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for vectors in _vectors_by_batch(model, tokenizer, words, layer, show_progress):
            if header and size == 0:
                file.write(f"{len(words)} {vectors.shape[1]}\n")
            size = vectors.shape[1]
            for vector in vectors.tolist():
                numbers = " ".join(f"{number:.6g}" for number in vector)
                file.write(f"{next(words_to_write)} {numbers}\n")
    return size


def nearest_words(
    vectors: np.ndarray, words: Sequence[str], vector: np.ndarray, count: int = 10, but: Sequence[str] = ()
) -> list[tuple[str, float]]:
    """The words whose vectors have the highest cosines with `vector`, and these cosines.

    Args:
        vectors: `(N, D)`, from `word_vectors`.
        words: their N words.
        vector: `(D,)`.
        count: how many words to return at most.
        but: words to leave out, such as the one that `vector` belongs to.
    """
    products_of_lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
    cosines = vectors @ vector / np.maximum(products_of_lengths, np.finfo(np.float32).tiny)
    indices = (index for index in np.argsort(-cosines, kind="stable") if words[index] not in but)
    return [(words[index], float(cosines[index])) for index in islice(indices, count)]


@torch.inference_mode()
def _vectors_by_batch(
    model: ElmoModel, tokenizer: ElmoTokenizer, words: Sequence[str], layer: str, show_progress: bool
) -> Iterator[np.ndarray]:
    """The vectors `(n, D)` of the next words; errors are those of `word_vectors`."""
    num_layers = model.config.num_hidden_layers
    layer_numbers = [str(number) for number in range(1, num_layers + 1)]
    if layer not in ("token", "mix", *layer_numbers):
        raise ValueError(f"`layer` must be token, mix or a number from 1 to {num_layers}, found {layer!r}.")
    place = tokenizer.num_special_tokens_to_add() // 2
    with tqdm(total=len(words), unit=" words", disable=not show_progress) as bar:
        for start in range(0, len(words), BATCH_SIZE):
            batch = [[word] for word in words[start : start + BATCH_SIZE]]
            inputs = tokenizer(batch, is_split_into_words=True, return_tensors="pt").to(model.device)
            if layer == "token":
                token_vectors, _ = model.embed_words(inputs["input_ids"][:, place : place + 1])
                vectors = token_vectors[:, 0]
            elif layer == "mix":
                vectors = model(**inputs).last_hidden_state[:, place]
            else:
                output = model(**inputs, output_hidden_states=True)
                vectors = output.hidden_states[int(layer)][:, place]
            yield vectors.float().cpu().numpy()
            bar.update(len(batch))
