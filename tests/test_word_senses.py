"""The senses of words by their vectors: what the data holds, and that each answer is the nearest known sense."""

from collections import Counter

import pytest
import torch
from word_senses import (
    Scores,
    Usage,
    commonest_senses,
    draw_known,
    nearest_senses,
    print_scores,
    read_usages,
    share_right,
    vectors_of,
)

from elmo_hf import ElmoModel, ElmoTokenizer

USAGES = [
    Usage("bank", "river", "The bank was green"),
    Usage("bank", "river", "A muddy bank"),
    Usage("bank", "money", "Bank of Oslo"),
    Usage("bank", "money", "She left the bank"),
    Usage("bank", "money", "It is a bank"),
    Usage("rose", "flower", "A rose"),
    Usage("rose", "flower", "One rose is red"),
]


def test_each_word_of_the_data_is_in_its_sentence_and_has_several_senses_with_several_usages() -> None:
    usages = read_usages()
    tokenizer = ElmoTokenizer()
    assert all(usage.word in map(str.lower, tokenizer.tokenize(usage.sentence)) for usage in usages)
    assert len(set(usages)) == len(usages)
    counts = Counter((usage.word, usage.sense) for usage in usages)
    assert min(counts.values()) >= 2
    assert min(Counter(word for word, _ in counts).values()) >= 2


def test_half_of_the_usages_of_each_sense_are_known_and_the_seed_decides_which() -> None:
    draws = [draw_known(USAGES, seed) for seed in range(20)]
    for known in draws:
        counts = Counter(USAGES[number].sense for number in known)
        assert counts == {"river": 1, "money": 2, "flower": 1}
    assert draw_known(USAGES, 3) == draws[3]
    assert set.union(*draws) == set(range(len(USAGES)))


def test_a_usage_gets_the_sense_of_its_own_word_whose_mean_is_nearest_by_the_cosine() -> None:
    vectors = torch.tensor([[9.0, 1], [1, 9], [0, 2], [4, 1], [9, 1], [1, 9], [1, 9]])
    known = {0, 2, 3, 5}  # the means are (9, 1) of a river, (2, 1.5) for money, (1, 9) of a flower
    answers = nearest_senses(vectors, USAGES, known)
    assert answers == {1: "money", 4: "river", 6: "flower"}
    assert share_right(answers, USAGES) == 1 / 3
    assert commonest_senses(USAGES, known) == {1: "money", 4: "money", 6: "flower"}


def test_a_vector_is_that_of_the_word_in_its_sentence_alone(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    vectors = vectors_of(USAGES, mixed_model, tiny_tokenizer)
    for usage, place, vector in zip(USAGES, [2, 3, 1, 4, 4, 2, 2], vectors, strict=True):
        alone = mixed_model(**tiny_tokenizer(usage.sentence, return_tensors="pt")).last_hidden_state[0, place]
        torch.testing.assert_close(vector, alone)


def test_the_last_line_has_the_means(capsys: pytest.CaptureFixture[str]) -> None:
    print_scores([Scores(0.5, 0.25, 1), Scores(0.5, 0.75, 0.5)], "my-model")
    assert capsys.readouterr().out == (
        "seed  commonest sense  random weights  my-model\n"
        "   0             0.50            0.25      1.00\n"
        "   1             0.50            0.75      0.50\n"
        "mean             0.50            0.50      0.75\n"
    )
