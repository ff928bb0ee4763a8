"""Numbers that other people published for the official weights, to compare a converted folder with.

Each `PublishedNumbers` comes from a new AllenNLP embedder (0.8 or 0.9) that read one sentence in each call, in order,
split at blanks. So the LSTM state passes from sentence to sentence.

Glossary: layers of a sentence are an array `(L+1, n, 2P)`: n words, without boundaries, layer 0 the token vector twice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Layers = list[np.ndarray]
PUBLISHED_TOLERANCE = 1e-4


@dataclass(frozen=True)
class PublishedNumbers:
    """Sentences and the numbers published about their vectors."""

    model: str  # a key of `PUBLISHED`
    source: str  # the page with the numbers
    sentences: tuple[str, ...]  # the sentences in order
    measure: Callable[[Layers], np.ndarray]  # a function that computes the numbers from the layers of all sentences
    expected: tuple[float, ...]  # the published numbers


def cosine_distances(sentences: Layers, layer: int, *places: tuple[int, int]) -> np.ndarray:
    """1 - cosine of each pair of words; a place is the index of a sentence and of a word in that sentence."""
    words = [sentences[sentence][layer, word].astype(np.float64) for sentence, word in places]
    unit = [word / np.linalg.norm(word) for word in words]
    return np.array([1 - first @ second for first, second in combinations(unit, 2)])


def explained_variance_ratios(sentences: Layers, layer: int) -> np.ndarray:
    """The shares of the two largest principal components in the variance of all words of the sentences."""
    words = np.concatenate([layers[layer] for layers in sentences]).astype(np.float64)
    variances = np.linalg.svd(words - words.mean(axis=0), compute_uv=False) ** 2
    return variances[:2] / variances.sum()


THAMES = (
    "The bank is located at the bank of Thames .",
    "The bank is closed on Sundays .",
    "Can you see that nice swan at the river bank ?",
)
BANKS = ((0, 1), (0, 6), (1, 1), (2, 9))
CARROT = "I ate a carrot for breakfast"
BANK = (
    "One can deposit money at the bank",
    "He had a nice walk along the river bank",
    "I withdrew cash from the bank",
    "The river bank was not clean",
    "My wife and I have a joint bank account",
)
WORK = (
    "I like this beautiful work by Andy Warhol",
    "Employee works hard every day",
    "My sister works at Starbucks",
    "This amazing work was done in the early nineteenth century",
    "Hundreds of people work in this building",
)
PLANT = (
    "The gardener planted some trees in my yard",
    "I plan to plant a Joshua tree tomorrow",
    "My sister planted a seed and hopes it will grow to a tree",
    "This kind of plant only grows in the subtropical region",
    "Most of the plants will die without water",
)


PUBLISHED_NUMBERS = (
    PublishedNumbers(
        "small",
        "begab/compsem@be7897c notebooks/08_contextualized/elmo_demo.ipynb",
        THAMES,
        lambda layers: np.concatenate([cosine_distances(layers, layer, *BANKS) for layer in range(3)]),
        (
            *(0, 0, 0, 0, 0, 0),
            *(0.30206925, 0.01709425, 0.23226154, 0.3021521, 0.24452692, 0.21635085),
            *(0.42234105, 0.06816322, 0.43650234, 0.41525936, 0.44247025, 0.39149922),
        ),
    ),
    PublishedNumbers(
        "original",
        "allenai/allennlp tutorials/how_to/elmo.md",
        ("I ate an apple for breakfast", CARROT),
        lambda layers: cosine_distances(layers, 2, (0, 3), (1, 3)),
        (0.18020617961883545,),
    ),
    PublishedNumbers(
        "original",
        "allenai/allennlp#2722",
        (CARROT,),
        lambda layers: layers[0][2, 0, [0, 1, 2, -3, -2, -1]],
        (-3.263432, -0.9447762, -0.31986535, -1.6759347, -0.11119218, 0.4732671),
    ),
    PublishedNumbers(
        "5.5B",
        "yuanxiaosc/ELMo Visualizing ELMo Contextual Vectors.ipynb",
        (BANK + WORK + PLANT) * 2,
        # One layer of the five sentences of each group, layer 1 on the first pass and layer 2 on the second.
        lambda layers: np.concatenate(
            [explained_variance_ratios(layers[start : start + 5], 1 + start // 15) for start in range(0, 30, 5)]
        ),
        (
            *(0.21842965483665466, 0.07475615292787552),
            *(0.0917154923081398, 0.08404156565666199),
            *(0.09630362689495087, 0.06646716594696045),
            *(0.12367216497659683, 0.09037613123655319),
            *(0.09765800833702087, 0.07844914495944977),
            *(0.09669843316078186, 0.08065589517354965),
        ),
    ),
)
