"""Which words are read at each step, on masks small enough to see it."""

import torch

from elmo_hf.scan.reading_order import reading_order

# Row 0: words at 0 and 3; row 1: none; row 2: words at 1, 2 and 4.
MASK = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]], dtype=torch.bool)


def test_texts_stand_by_falling_number_of_words_and_words_step_by_step() -> None:
    order = reading_order(MASK)
    assert order.texts.tolist() == [2, 0, 1]
    assert order.columns == [2, 2, 1]
    assert order.ranks.tolist() == [1, 2, 0]
    assert order.keeps is order.keeps_at_end is None
    # Places count all positions, row after row, five to a row.
    assert order.places.tolist() == [[11, 0, 12, 3, 14], [14, 3, 12, 0, 11]]


def test_texts_of_equal_length_keep_their_order() -> None:
    order = reading_order(torch.ones(3, 2, dtype=torch.bool))
    assert order.texts.tolist() == [0, 1, 2]
    assert order.columns == [3, 3]
    assert order.places.tolist() == [[0, 2, 4, 1, 3, 5], [1, 3, 5, 0, 2, 4]]


def test_without_words_there_are_no_steps() -> None:
    order = reading_order(torch.zeros(2, 3, dtype=torch.bool))
    assert order.columns == []
    assert order.places.shape == (2, 0)


def test_a_reset_between_words_counts_for_the_next_word_read_and_one_after_them_for_the_last_state() -> None:
    resets = torch.zeros(3, 5, dtype=torch.bool)
    resets[0, 1] = resets[1, 2] = resets[2, 2] = resets[2, 3] = True
    order = reading_order(MASK, (resets, resets))
    # Forward, row 0 is reset before its word at 3, row 2 before those at 2 and 4; backward, row 0 before its word at 0,
    # row 2 before that at 2. Row 1 has no word, and its state is reset.
    assert order.keeps.tolist() == [[True, True, False, False, False], [True, True, False, False, True]]
    assert order.keeps_at_end.tolist() == [[True, True, False], [True, True, False]]


def test_each_direction_has_resets_of_its_own() -> None:
    forward, backward = torch.zeros(2, 3, 5, dtype=torch.bool)
    backward[2, 0] = True  # after the last word read backward
    order = reading_order(MASK, (forward, backward))
    assert order.keeps.all()
    assert order.keeps_at_end.tolist() == [[True, True, True], [False, True, True]]
