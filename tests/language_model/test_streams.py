"""Streams of sentences: a slow obvious reference, windows, single and endless passes, resets, places."""

from pathlib import Path

import numpy as np
import pytest
from tiny_lm import SENTENCES, tiny_lm, tiny_tokenizer_of

from elmo_hf.language_model.corpus import BEGIN_INDEX, END_INDEX, Corpus
from elmo_hf.language_model.streams import Stream, Window

DIRECTIONS = pytest.mark.parametrize("is_backward", [False, True], ids=["forward", "backward"])


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.from_sentences(SENTENCES, tiny_tokenizer_of(tiny_lm(), tmp_path))


def steps_of(corpus: Corpus, number: int, is_backward: bool) -> list[list[int]]:
    """Input, target and place of each step of one sentence."""
    whole = [BEGIN_INDEX, *corpus.sentence(number).tolist(), END_INDEX]
    first = int(corpus.starts[number]) + number
    if is_backward:
        # Place k of a sentence is the prediction of its word k, of `<S>` for 0.
        return [[whole[place + 1], whole[place], first + place] for place in range(len(whole) - 2, -1, -1)]
    # Place k is the prediction of the word after word k, of `</S>` at last.
    return [[whole[place], whole[place + 1], first + place] for place in range(len(whole) - 1)]


def reference(corpus: Corpus, sentences: list[int], num_rows: int, is_backward: bool) -> list[list[list[int]]]:
    """Rows of steps, as bilm-tf's test reads them with windows of one step.

    The row that ends first takes the next sentence; if there is none, the stream ends.
    """
    rows: list[list[list[int]]] = [[] for _ in range(num_rows)]
    for number in sentences:
        min(rows, key=len).extend(steps_of(corpus, number, is_backward))
    return [row[: min(map(len, rows))] for row in rows]


def columns(window: Window) -> list[list[list[int]]]:
    """Rows of (input, target, place)."""
    return np.stack([window.inputs, window.targets, window.places], axis=-1).tolist()


def as_read(window: Window, is_backward: bool) -> Window:
    """The window with its columns in reading order."""
    return Window(*(array[:, ::-1] for array in window)) if is_backward else window


def joined(windows: list[Window]) -> Window:
    return Window(*(np.concatenate(parts, axis=1) for parts in zip(*windows, strict=True)))


def assert_equal(actual: Window, expected: Window) -> None:
    for name, array, other in zip(Window._fields, actual, expected, strict=True):
        np.testing.assert_array_equal(array, other, err_msg=name)


def order_of(corpus: Corpus, seed: int, is_backward: bool, num_passes: int) -> list[int]:
    """The sentences in the order in which one row reads them, known by their places."""
    window = Stream(corpus, 1, is_backward=is_backward, seed=seed).take(num_passes * corpus.num_predictions)
    window = as_read(window, is_backward)
    begins = {steps_of(corpus, number, is_backward)[0][2]: number for number in range(len(corpus))}
    marker = END_INDEX if is_backward else BEGIN_INDEX
    return [begins[place] for place in window.places[0][window.inputs[0] == marker].tolist()]


@DIRECTIONS
@pytest.mark.parametrize("sentences", [None, range(3, 6)], ids=["all", "some"])
@pytest.mark.parametrize(("num_rows", "num_steps"), [(1, 4), (2, 1), (5, 4), (8, 100)])
def test_a_single_pass_is_the_references_to_its_last_step(
    corpus: Corpus, num_rows: int, num_steps: int, sentences: range | None, is_backward: bool
) -> None:
    stream = Stream(corpus, num_rows, is_backward=is_backward, sentences=sentences)
    windows = [as_read(stream.take(num_steps), is_backward) for _ in range(45 // num_steps + 1)]
    expected = reference(corpus, list(sentences or range(len(corpus))), num_rows, is_backward)
    assert columns(joined(windows)) == expected
    assert stream.step == len(expected[0])
    assert not any(window.resets.any() for window in windows)
    assert stream.take(num_steps).inputs.shape == (num_rows, 0)


@DIRECTIONS
def test_endless_streams_are_the_references_and_every_pass_has_an_order_of_its_own(
    corpus: Corpus, is_backward: bool
) -> None:
    order = order_of(corpus, 5, is_backward, num_passes=6)
    for num_rows in (1, 3, 20):
        window = Stream(corpus, num_rows, is_backward=is_backward, seed=5).take(150 // num_rows)
        expected = [row[: 150 // num_rows] for row in reference(corpus, order, num_rows, is_backward)]
        assert columns(as_read(window, is_backward)) == expected
    assert order == order_of(corpus, 5, is_backward, num_passes=6)
    assert order not in [order_of(corpus, 6, is_backward, num_passes=6), order_of(corpus, 5, not is_backward, 6)]
    passes = [tuple(order[begin : begin + len(corpus)]) for begin in range(0, len(order), len(corpus))]
    assert len(passes) == len(set(passes)) == 6
    assert all(sorted(sentences) == list(range(len(corpus))) for sentences in passes)


@DIRECTIONS
def test_windows_of_any_lengths_and_some_rows_and_skipped_steps_are_of_the_same_streams(
    corpus: Corpus, is_backward: bool
) -> None:
    def stream() -> Stream:
        return Stream(corpus, 5, is_backward=is_backward, seed=4, reset_probability=0.5)

    whole = as_read(stream().take(40), is_backward)
    for lengths in ([1] * 40, [7, 1, 12, 20], [39, 1]):
        cut = stream()
        assert_equal(joined([as_read(cut.take(length), is_backward) for length in lengths]), whole)
    some = stream()
    for begin, end in ((13, 18), (18, 19), (39, 40)):
        some.skip(begin - some.step)
        part = Window(*(array[1:3, begin:end] for array in whole))
        assert_equal(as_read(some.take(end - begin, range(1, 3)), is_backward), part)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
@DIRECTIONS
def test_resets_stand_at_sentence_starts_as_often_as_asked_and_change_nothing_else(
    corpus: Corpus, probability: float, is_backward: bool
) -> None:
    plain, window = (
        Stream(corpus, 2, is_backward=is_backward, seed=4, reset_probability=rate).take(3000)
        for rate in (0.0, probability)
    )
    is_start = window.inputs == (END_INDEX if is_backward else BEGIN_INDEX)
    assert not (window.resets & ~is_start).any()
    # About 1,300 sentences: 5 standard deviations are 0.07.
    assert window.resets.sum() / is_start.sum() == pytest.approx(probability, abs=0.07 * (probability == 0.5))
    assert_equal(window._replace(resets=plain.resets), plain)
