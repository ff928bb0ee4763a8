"""Batches by length: the longest texts first, no more positions than asked for, and not too many texts."""

import pytest
from interrupts import count_rows
from vectors import assert_all_close, embed_alone

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.batches import batches_by_length, outputs_in_batches
from elmo_hf.embedding.window_vectors import Selection, embed_window


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


def test_vectors_are_those_of_each_text_alone(mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer) -> None:
    """A boundary is a position, here and in a window."""
    batches = list(outputs_in_batches(mixed_model.eval(), each_tokenizer, TEXTS, 12))
    assert [row for rows, _ in batches for row in rows] == [2, 3, 4, 0, 1]
    first = each_tokenizer.num_special_tokens_to_add() // 2
    for rows, outputs in batches:
        found = [outputs.last_hidden_state[place, first:][: len(TEXTS[row])] for place, row in enumerate(rows)]
        expected = embed_alone(mixed_model, each_tokenizer, [TEXTS[row] for row in rows], "mix")
        assert_all_close([each.numpy() for each in found], expected)
    shapes = [tuple(outputs.last_hidden_state.shape[:2]) for _, outputs in batches]
    has_boundaries = each_tokenizer.num_special_tokens_to_add() > 0
    assert shapes == ([(1, 8), (3, 4), (1, 2)] if has_boundaries else [(2, 6), (3, 2)])
    counts = count_rows(mixed_model)
    list(embed_window(mixed_model, each_tokenizer, TEXTS, Selection(), 12))
    assert counts == [rows for rows, _ in shapes]
