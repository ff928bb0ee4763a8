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

from ..model.tokenization_elmo import ElmoTokenizer
from ..public import ElmoModel
from ..text.first_look import LOOKED_AT, raw_texts
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
    read = iter(tqdm(documents.read(), unit=" sentences"))
    first = list(islice(read, LOOKED_AT))
    look(raw_texts(text for _, text in first))
    split = ((line, tokenizer.tokenize(text) if isinstance(text, str) else text) for line, text in chain(first, read))
    found = [(line, words) for line, words in split if len(word.positions(words))]
    if not found:
        raise ValueError(f"{', '.join(documents.names)}: no word is {' or '.join(forms)}, as the tokenizer splits it.")
    if len(found) > most:
        found = [found[len(found) * number // most] for number in range(most)]
    texts = [words for _, words in found]
    arrays = dict(embed_window(model, tokenizer, texts, Selection(VIEWS, words=word)))
    usages = []
    for row, ((document, sentence), words) in enumerate(found):
        for place in arrays[row]["positions"].tolist():
            before, after = (storable(" ".join(part)) for part in (words[:place], words[place + 1 :]))
            usages.append(Usage(storable(document), sentence, place + 1, before, storable(words[place]), after))
    vectors = np.concatenate([arrays[row]["vectors"] for row in range(len(found))], axis=1)
    return usages, vectors.astype(np.float64)
