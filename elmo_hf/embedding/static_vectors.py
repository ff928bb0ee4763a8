"""Vectors of single words: files that gensim reads, and nearest words.

A single word has two kinds of vectors:

    token      the context-free vector (P), which depends only on the spelling, or on the word's id
    k, mix     the word's vector (2P) in layer k, or in the scalar mix, of a sentence of this one word

The two text formats are one line a word, `word number number ...`, separated by blanks; word2vec's begins with a line
of two counts, `words numbers`, and GloVe's does not. Numbers have six digits.

Glossary: N words, D numbers of a vector, P projection.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from ..disk.whole_files import new_file
from ..model.tokenization_elmo import ElmoTokenizer
from ..public import ElmoModel
from ..text.formats import Format
from ..text.sentences import read_sentences, storable

BATCH = 256


class WordList(NamedTuple):
    """The distinct words of a file in their order, and how many lines were blank and how many were repeated."""

    words: list[str]
    num_blank: int
    num_repeated: int


def read_words(path: Path, encoding: str = "utf-8", input_format: Format | None = None) -> WordList:
    """Reads words: a line of text is one word; sentences of JSON lines and CoNLL-U are lists of words.

    Raises:
        ValueError: if the file cannot be read.
        OSError: if the file cannot be opened.
    """
    words: dict[str, None] = {}
    num_blank = num_repeated = 0
    for sentence in read_sentences(path, encoding=encoding, input_format=input_format):
        for word in [sentence] if isinstance(sentence, str) else sentence:
            word = storable(word.strip())
            num_blank += not word
            num_repeated += word in words
            if word:
                words[word] = None
    return WordList([*words], num_blank, num_repeated)


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
    return np.concatenate([*_blocks(model, tokenizer, words, layer, show_progress)])


def write_word_vectors(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    words: Sequence[str],
    output: Path,
    layer: str = "token",
    header: bool = True,
    show_progress: bool = False,
) -> int:
    """Writes vectors of single words as text; the file exists only once it is complete.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        words: N different words without blanks.
        output: the new file; it replaces an older one.
        layer: as in `word_vectors`.
        header: True for word2vec's format, False for GloVe's.
        show_progress: whether to show a progress bar.

    Returns:
        D.

    Raises:
        ValueError: if there is no such layer, or a word has a blank.
        OSError: if the file cannot be written.
    """
    for word in words:
        if word.split() != [word]:
            raise ValueError(
                f"a word must not have blanks, because blanks separate the numbers of its vector, found {word[:80]!r}; "
                "join its parts (New_York), or leave it out."
            )
    rest = iter(words)
    size = 0
    with new_file(output) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for block in _blocks(model, tokenizer, words, layer, show_progress):
            if header and size == 0:
                file.write(f"{len(words)} {block.shape[1]}\n")
            size = block.shape[1]
            for vector in block.tolist():
                file.write(" ".join([next(rest), *(f"{number:.6g}" for number in vector)]) + "\n")
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
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
    cosines = vectors @ vector / np.maximum(lengths, np.finfo(np.float32).tiny)
    order = (index for index in np.argsort(-cosines, kind="stable") if words[index] not in but)
    return [(words[index], float(cosines[index])) for index, _ in zip(order, range(count), strict=False)]


@torch.inference_mode()
def _blocks(
    model: ElmoModel, tokenizer: ElmoTokenizer, words: Sequence[str], layer: str, show_progress: bool
) -> Iterator[np.ndarray]:
    num_layers = model.config.num_hidden_layers
    if layer not in ("token", "mix", *map(str, range(1, num_layers + 1))):
        raise ValueError(f"`layer` must be token, mix or a number from 1 to {num_layers}, found {layer!r}.")
    place = tokenizer.num_special_tokens_to_add() // 2
    with tqdm(total=len(words), unit=" words", disable=not show_progress) as bar:
        for start in range(0, len(words), BATCH):
            batch = [[word] for word in words[start : start + BATCH]]
            inputs = tokenizer(batch, is_split_into_words=True, return_tensors="pt").to(model.device)
            if layer == "token":
                vectors = model.embed_words(inputs["input_ids"][:, place : place + 1])[0][:, 0]
            else:
                output = model(**inputs, output_hidden_states=True)
                layers = output.last_hidden_state if layer == "mix" else output.hidden_states[int(layer)]
                vectors = layers[:, place]
            yield vectors.float().cpu().numpy()
            bar.update(len(batch))
