"""Batches by length: the longest texts first, no more positions than asked for, and not too many texts."""

import pytest

from elmo_hf.batches import batches_by_length


@pytest.mark.parametrize(
    ("batch_words", "sizes"), [(100, [5, 33, 33, 33, 33, 33, 33, 33, 33, 33, 3]), (2048, [102, 128, 75]), (8192, [305])]
)
def test_sizes(batch_words: int, sizes: list[int]) -> None:
    lengths = [3] * 300 + [20, 19, 18, 17, 16]
    batches = list(batches_by_length(lengths, batch_words))
    assert [len(batch) for batch in batches] == sizes
    assert [place for batch in batches for place in batch] == [300, 301, 302, 303, 304, *range(300)]


def test_a_longer_text_is_alone() -> None:
    assert list(batches_by_length([4, 9, 2, 0], 6)) == [[1], [0], [2, 3]]


def test_texts_without_positions_are_a_batch() -> None:
    assert list(batches_by_length([0, 0], 3)) == [[0, 1]]
