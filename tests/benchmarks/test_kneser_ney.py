"""The bigram and trigram models that language models are compared with."""

from itertools import product

import kneser_ney
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


def test_grams_are_each_prediction_with_the_words_before_it() -> None:
    corpus = Corpus.from_sentences([["a", "b"], [], ["c"]], Letters())
    pairs = [[0, 2], [2, 3], [3, 1], [0, 1], [0, 4], [4, 1]]
    assert kneser_ney.grams(corpus, 2, is_backward=False).tolist() == pairs
    assert kneser_ney.grams(corpus, 2, is_backward=True).tolist() == [[1, 4], [4, 0], [1, 0], [1, 3], [3, 2], [2, 0]]
    triples = [[0, 0, 2], [0, 2, 3], [2, 3, 1], [0, 0, 1], [0, 0, 4], [0, 4, 1]]
    assert kneser_ney.grams(corpus, 3, is_backward=False).tolist() == triples


@pytest.mark.parametrize("order", [2, 3])
def test_probabilities_of_all_words_sum_to_one_after_every_context(order: int) -> None:
    train = np.random.default_rng(1).integers(5, size=(40, order))
    for context in product(range(5), repeat=order - 1):
        each = kneser_ney.probabilities(train, np.array([[*context, word] for word in range(5)]), 5, start=0)
        assert each.sum() == pytest.approx(1)
        assert (each > 0).all()


def test_bigrams_follow_kneser_and_neys_formula() -> None:
    train = np.array([[0, 1], [0, 1], [0, 2], [2, 1]])
    discount = 2 / (2 + 2 * 1)  # two pairs seen once, one seen twice
    continuation = (2 + 1 / 3) / (3 + 1)  # word 1 stands after 0 and after 2
    expected = (2 - discount + discount * 2 * continuation) / 3
    assert kneser_ney.probabilities(train, np.array([[0, 1], [1, 1]]), 3, start=0) == pytest.approx(
        [expected, continuation]
    )


def test_trigrams_count_the_distinct_words_before_a_pair() -> None:
    train = np.array([[0, 1, 2], [0, 1, 2], [3, 1, 2], [0, 1, 0], [3, 2, 0]])
    discount, lower_discount = 3 / (3 + 2 * 1), 2 / (2 + 2 * 1)
    single = (1 + 1 / 4) / (3 + 1)  # of the distinct pairs 1 2, 1 0 and 2 0, one ends in 2
    pair = (2 - lower_discount + lower_discount * 2 * single) / 3  # 0 and 3 stand before 1 2, and 0 before 1 0
    expected = (2 - discount + discount * 2 * pair) / 3
    assert kneser_ney.probabilities(train, np.array([[0, 1, 2]]), 4, start=5) == pytest.approx([expected])


def test_a_pair_that_begins_sentences_counts_as_often_as_it_occurs() -> None:
    train = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 2], [0, 1, 2], [3, 1, 2]])
    discount, lower_discount = 3 / (3 + 2 * 1), 1 / (1 + 2 * 2)  # 0 1 occurs twice, 0 2 once; 1 2 is after two words
    single = (1 + 1 / 4) / (3 + 1)
    pair = (2 - lower_discount + lower_discount * 2 * single) / 3
    expected = (2 - discount + discount * 2 * pair) / 3
    assert kneser_ney.probabilities(train, np.array([[0, 0, 1]]), 4, start=0) == pytest.approx([expected])
