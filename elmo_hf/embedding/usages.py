"""The usages of a word: its occurrences in texts, in all its forms, and their vectors.

A usage has a vector in each of V = L+2 views: the biLM's layers 0 to L, and the first scalar mix. Layer 0 depends on
the spelling alone, so distances in it come from the forms of the word.

Glossary: K usages, L layers, P projection.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ..public import ElmoModel, ElmoTokenizer
from ..text.first_look import LOOKED_AT
from ..text.sentences import storable
from .chosen_words import ChosenWords
from .input_documents import Documents
from .window_vectors import VIEWS, Selection, embed_window


class Usage(NamedTuple):
    """One occurrence of a word: its sentence in the document, from 0; its position, where 0 is `<S>`; and its text."""

    document: str
    sentence: int
    position: int
    before: str
    word: str
    after: str


def find_usages(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    documents: Documents,
    forms: Sequence[str],
    most: int,
    look: Callable[[list[str]], None] = lambda texts: None,
) -> tuple[list[Usage], np.ndarray]:
    """The usages of a word in the order of the text, and their vectors `(V, K, 2P)`.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        documents: the texts.
        forms: the forms of the word, in upper or lower case.
        most: the most sentences to take, at equal distances among all sentences with the word.
        look: a function that is called with the raw texts among the first sentences.

    Raises:
        ValueError: if there is no usage, a document cannot be read, or a vector is NaN.
        OSError: if a document cannot be opened.
    """
    word = ChosenWords(re.compile("|".join(map(re.escape, forms)), re.IGNORECASE))
    lines = iter(tqdm(documents.read(), unit=" sentences"))
    first = list(islice(lines, LOOKED_AT))
    look(documents.texts_of(sentence for _, sentence in first))
    texts = []  # the place and the words of each sentence with a usage
    for line, sentence in chain(first, lines):
        words = tokenizer.tokenize(sentence) if isinstance(sentence, str) else sentence
        if len(word.positions(words)) > 0:
            texts.append((line, words))
    if not texts:
        splits = "" if documents.split_into_words else splits_of(tokenizer, forms)
        raise ValueError(
            f"{', '.join(documents.names)}: no word is {' or '.join(forms)}, as the tokenizer splits it.{splits}"
        )
    if len(texts) > most:
        texts = [texts[len(texts) * number // most] for number in range(most)]
    selection = Selection(VIEWS, words=word)
    arrays = dict(embed_window(model, tokenizer, [words for _, words in texts], selection))
    usages = []
    for row, ((document, number), words) in enumerate(texts):
        for place in arrays[row]["positions"].tolist():
            before = storable(" ".join(words[:place]))
            after = storable(" ".join(words[place + 1 :]))
            usages.append(Usage(storable(document), number, place + 1, before, storable(words[place]), after))
    vectors = np.concatenate([arrays[row]["vectors"] for row in range(len(texts))], axis=1)
    return usages, vectors.astype(np.float64)


def splits_of(tokenizer: ElmoTokenizer, forms: Sequence[str]) -> str:
    """Sentences on how the tokenizer splits forms that are several words for it; each begins with a blank."""
    sentences = ""
    for form in forms:
        words = tokenizer.tokenize(form)
        if len(words) > 1:
            sentences += f" The tokenizer splits {form} into {' and '.join(words)}; give one of these."
    return sentences
