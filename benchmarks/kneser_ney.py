"""Compares an ELMo's language models with word bigrams and trigrams, interpolated Kneser-Ney smoothing.

    p(w | c) = (max(k(c w) - D, 0) + D n(c) p(w | c')) / k(c),    p(w | c') = p(w | c) without the first word of c

At the highest order k counts n-grams, below it the distinct words before an (n-1)-gram, or its occurrences if it begins
a sentence; k(c) is the sum of k(c w), n(c) the distinct words after c, D Kneser and Ney's n_1 / (n_1 + 2 n_2) from
n-grams with k = 1 and 2. For a context that was not seen, p(w | c) = p(w | c'). At the lowest order p(w) = (k(w) + 1 /
V) / (M + 1) with V words and M distinct pairs.

For all models, words outside the vocabulary are `<UNK>` and boundaries are predicted. Backward n-grams read sentences
from their ends. A perplexity is the geometric mean of both directions. For the ELMo's scores from the zero state, the
table also shows how far they are below the bigram.

    python benchmarks/kneser_ney.py MODEL TRAIN.txt TEST.txt [TEST.txt ...]
"""

import argparse
from pathlib import Path

import numpy as np

from elmo_hf import ElmoForPreTraining, ElmoTokenizer
from elmo_hf.folder.loading import load_complete
from elmo_hf.folder.model_names import model_folder
from elmo_hf.language_model.corpus import BEGIN_INDEX, END_INDEX, Corpus
from elmo_hf.language_model.scoring import score_carried, score_from_zero
from elmo_hf.text.sentences import read_sentences


def grams(corpus: Corpus, order: int, is_backward: bool) -> np.ndarray:
    """`(predictions, order)` int32: the classes of each predicted word and, before it, of those that were read.

    A sentence begins with as many boundaries as its first prediction needs.
    """
    words, lengths, start, end = corpus.words, np.diff(corpus.starts), BEGIN_INDEX, END_INDEX
    if is_backward:  # the last sentence comes first
        words, lengths, start, end = words[::-1], lengths[::-1], END_INDEX, BEGIN_INDEX
    row = np.full(len(words) + order * len(lengths), start, dtype=np.int32)
    ends = np.cumsum(lengths + order) - 1
    places = np.arange(len(words)) + order - 1 + order * np.repeat(np.arange(len(lengths)), lengths)
    row[places], row[ends] = words, end
    predicted = np.sort(np.concatenate([places, ends]))
    classes = corpus.classes.astype(np.int32)[row]
    return np.stack([classes[predicted - back] for back in reversed(range(order))], axis=1)


def probabilities(train: np.ndarray, test: np.ndarray, num_words: int, start: int) -> np.ndarray:
    """`(predictions,)`, p(w | c) of each row `(c, w)` of `test` under the model of the rows of `train`.

    `start` is the class of the boundary before sentences.
    """
    return _probabilities(*np.unique(_numbers(train, num_words), return_counts=True), test, num_words, start)


def _probabilities(seen: np.ndarray, counts: np.ndarray, test: np.ndarray, num_words: int, start: int) -> np.ndarray:
    """As `probabilities`, from the sorted numbers of the distinct n-grams, and k of each."""
    wanted, order = _numbers(test, num_words), test.shape[1]
    found = _look_up(seen, counts, wanted)
    if order == 1:
        return (found + 1 / num_words) / (counts.sum() + 1)
    shorter, place_of, lower_counts = np.unique(
        seen % num_words ** (order - 1), return_inverse=True, return_counts=True
    )
    begins = shorter // num_words ** (order - 2) == start
    lower_counts[begins] = np.bincount(place_of, counts)[begins]
    lower = _probabilities(shorter, lower_counts, test[:, 1:], num_words, start)
    contexts, first, words_after = np.unique(seen // num_words, return_index=True, return_counts=True)
    totals = _look_up(contexts, np.add.reduceat(counts, first), wanted // num_words)
    words_after = _look_up(contexts, words_after, wanted // num_words)
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    discount = once / max(once + 2 * twice, 1)
    known = (np.maximum(found - discount, 0) + discount * words_after * lower) / np.maximum(totals, 1)
    return np.where(totals > 0, known, lower)


def _numbers(rows: np.ndarray, num_words: int) -> np.ndarray:
    """Each row of classes as one number: the classes are its digits to the base `num_words`."""
    numbers = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        numbers = numbers * num_words + column
    return numbers


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 if it is not among the sorted keys."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or tiny")
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path, nargs="+")
    arguments = parser.parse_args()
    folder = model_folder(arguments.model)
    model, tokenizer = load_complete(folder, ElmoForPreTraining), ElmoTokenizer.from_pretrained(folder)
    num_words = tokenizer.num_word_classes
    assert num_words is not None
    train, *tests = (
        Corpus.from_sentences(filter(None, map(str.split, read_sentences(path))), tokenizer)
        for path in (arguments.train, *arguments.test)
    )
    losses = np.zeros((2, len(tests)))
    for row, order in enumerate((2, 3)):
        for is_backward in (False, True):
            start = int(train.classes[END_INDEX if is_backward else BEGIN_INDEX])
            rows = [grams(test, order, is_backward) for test in tests]  # together, because counting takes longest
            found = probabilities(grams(train, order, is_backward), np.concatenate(rows), num_words, start)
            ends = np.cumsum([len(each) for each in rows])[:-1]
            losses[row] -= [np.log(part).mean() / 2 for part in np.split(found, ends)]
    unknown = int(tokenizer.word_classes(["<UNK>"])[0])
    print("| text | words | unknown (%) | bigram | trigram | ELMo, from zero | carried | below the bigram (%) |")
    print("|---|---|---|---|---|---|---|---|")
    for path, test, (bigram, trigram) in zip(arguments.test, tests, np.exp(losses.T), strict=True):
        zero, carried = (
            (scores.forward_perplexity * scores.backward_perplexity) ** 0.5
            for scores in (score_from_zero(model, test), score_carried(model, test))
        )
        known = f"{path.stem} | {test.num_words:,} | {100 * test.share_of_class(unknown):.2f}"
        figures = " | ".join(f"{figure:.1f}" for figure in (bigram, trigram, zero, carried, 100 * (1 - zero / bigram)))
        print(f"| {known} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
