"""Batches by length: the longest texts first, no more positions than asked for, and not too many texts."""

import pytest
from interrupts import count_rows

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.window_vectors import Selection, embed_window
from elmo_hf.text.batches import batches_by_length


@pytest.mark.parametrize(
    ("batch_words", "sizes"), [(100, [5, 33, 33, 33, 33, 33, 33, 33, 33, 33, 3]), (2048, [102, 128, 75]), (8192, [305])]
)
def test_sizes(batch_words: int, sizes: list[int]) -> None:
    lengths = [3] * 300 + [20, 19, 18, 17, 16]
    batches = list(batches_by_length(lengths, batch_words))
    assert [len(batch) for batch in batches] == sizes
    assert [place for batch in batches for place in batch] == [300, 301, 302, 303, 304, *range(300)]


def test_a_longer_text_is_alone_and_texts_without_positions_are_a_batch() -> None:
    assert list(batches_by_length([4, 9, 2, 0], 6)) == [[1], [0], [2, 3]]
    assert list(batches_by_length([0, 0], 3)) == [[0, 1]]


TEXTS = [["Yes"], [], "The ferry left the harbour .".split(), ["It", "did"], ["No", "."]]


def test_a_boundary_is_a_position(mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer) -> None:
    counts = count_rows(mixed_model)
    list(embed_window(mixed_model, each_tokenizer, TEXTS, Selection(), 12))
    assert counts == ([1, 3, 1] if each_tokenizer.num_special_tokens_to_add() > 0 else [2, 3])
