"""The bigram model that language models are compared with."""

import math

import bigram
import numpy as np
import pytest

from elmo_hf.language_model.corpus import Corpus


class Letters:
    """A tokenizer of single letters: class and id are places in the alphabet."""

    boundaries = ("<S>", "</S>")

    def word_classes(self, words: list[str]) -> np.ndarray:
        return np.array(["<S> </S> a b c".split().index(word) for word in words])

    def convert_tokens_to_ids(self, words: list[str]) -> list[int]:
        return (self.word_classes(words) + 1).tolist()


def test_pairs_are_each_prediction_with_the_word_before_it() -> None:
    corpus = Corpus.from_sentences(["ab", "c"], Letters())
    assert bigram.pairs(corpus, is_backward=False).tolist() == [[0, 2], [2, 3], [3, 1], [0, 4], [4, 1]]
    assert bigram.pairs(corpus, is_backward=True).tolist() == [[1, 3], [3, 2], [2, 0], [1, 4], [4, 0]]


def test_probabilities_of_all_words_sum_to_one_after_every_word() -> None:
    train = np.array([[0, 2], [2, 3], [2, 3], [2, 4], [3, 1], [0, 2], [4, 1]])
    for before in range(5):
        each = [1 / bigram.bigram_perplexity(train, np.array([[before, word]]), 5) for word in range(5)]
        assert sum(each) == pytest.approx(1)


def test_perplexity_is_kneser_and_neys_formula() -> None:
    train = np.array([[0, 1], [0, 1], [0, 2], [2, 1]])
    discount = 2 / (2 + 2 * 1)  # two pairs seen once, one seen twice
    continuation = (2 + 1 / 3) / (3 + 1)  # word 1 stands after 0 and after 2
    expected = (2 - discount) / 3 + discount * 2 / 3 * continuation
    assert bigram.bigram_perplexity(train, np.array([[0, 1]]), 3) == pytest.approx(1 / expected)
    assert math.isfinite(bigram.bigram_perplexity(train, np.array([[1, 0]]), 3))
