"""A corpus as numbers; streams of its sentences: a reference, windows, single and endless passes, resets, places."""

from types import SimpleNamespace

import numpy as np
import pytest

from elmo_hf.language_model.corpus import BEGIN_INDEX, END_INDEX, Corpus
from elmo_hf.language_model.streams import SentenceStream
from tests.helpers.tiny_lm import SENTENCES, WORDS, tokenizer_with

DIRECTIONS = pytest.mark.parametrize("is_backward", [False, True], ids=["forward", "backward"])


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.from_sentences(SENTENCES, tokenizer_with())


def steps_of(corpus: Corpus, number: int, is_backward: bool) -> list[list[int]]:
    """Input, target and place of each step of one sentence, and that the state is not reset."""
    whole = [BEGIN_INDEX, *corpus.sentence(number).tolist(), END_INDEX]
    first = int(corpus.starts[number]) + number
    if is_backward:
        # Place k of a sentence is the prediction of its word k, of `<S>` for 0.
        return [[whole[place + 1], whole[place], first + place, 0] for place in range(len(whole) - 2, -1, -1)]
    # Place k is the prediction of the word after word k, of `</S>` at last.
    return [[whole[place], whole[place + 1], first + place, 0] for place in range(len(whole) - 1)]


def reference(corpus: Corpus, sentences: list[int], num_rows: int, is_backward: bool) -> list[list[list[int]]]:
    """Rows of steps, as bilm-tf's test reads them with windows of one step.

    The row that ends first takes the next sentence; if there is none, the stream ends.
    """
    rows: list[list[list[int]]] = [[] for _ in range(num_rows)]
    for number in sentences:
        min(rows, key=len).extend(steps_of(corpus, number, is_backward))
    return [row[: min(map(len, rows))] for row in rows]


def read(stream: SentenceStream, num_steps: int, is_backward: bool, rows: range | None = None) -> np.ndarray:
    """Input, target, place and reset of each step in the order of reading: `(B, T, 4)`."""
    window = stream.take(num_steps, rows)
    steps = np.stack([window.inputs, window.targets, window.places, window.resets], axis=-1)
    return steps[:, ::-1] if is_backward else steps


def order_of(corpus: Corpus, seed: int, is_backward: bool) -> list[int]:
    """The sentences of six passes in the order in which one row reads them, known by their places."""
    stream = SentenceStream(corpus, 1, is_backward=is_backward, seed=seed)
    (steps,) = read(stream, 6 * corpus.num_predictions, is_backward).tolist()
    begins = {steps_of(corpus, number, is_backward)[0][2]: number for number in range(len(corpus))}
    return [begins[place] for word, _, place, _ in steps if word == (END_INDEX if is_backward else BEGIN_INDEX)]


@DIRECTIONS
@pytest.mark.parametrize("sentences", [None, range(3, 6)], ids=["all", "some"])
@pytest.mark.parametrize(("num_rows", "num_steps"), [(1, 4), (2, 1), (5, 4), (8, 100)])
def test_a_single_pass_is_the_references_to_its_last_step(
    corpus: Corpus, num_rows: int, num_steps: int, sentences: range | None, is_backward: bool
) -> None:
    stream = SentenceStream(corpus, num_rows, is_backward=is_backward, sentences=sentences)
    windows = [read(stream, num_steps, is_backward) for _ in range(45 // num_steps + 1)]
    expected = reference(corpus, list(sentences or range(len(corpus))), num_rows, is_backward)
    assert np.concatenate(windows, axis=1).tolist() == expected
    assert stream.step == len(expected[0])
    assert stream.take(num_steps).inputs.shape == (num_rows, 0)


@DIRECTIONS
def test_endless_streams_are_the_references_and_every_pass_has_an_order_of_its_own(
    corpus: Corpus, is_backward: bool
) -> None:
    order = order_of(corpus, 5, is_backward)
    for num_rows in (1, 3, 20):
        found = read(SentenceStream(corpus, num_rows, is_backward=is_backward, seed=5), 150 // num_rows, is_backward)
        expected = reference(corpus, order, num_rows, is_backward)
        assert found.tolist() == [row[: 150 // num_rows] for row in expected]
    assert order == order_of(corpus, 5, is_backward)
    assert order not in [order_of(corpus, 6, is_backward), order_of(corpus, 5, not is_backward)]
    passes = [tuple(order[begin : begin + len(corpus)]) for begin in range(0, len(order), len(corpus))]
    assert len(passes) == len(set(passes)) == 6
    assert all(sorted(sentences) == list(range(len(corpus))) for sentences in passes)


@DIRECTIONS
def test_windows_of_any_lengths_and_some_rows_and_skipped_steps_are_of_the_same_streams(
    corpus: Corpus, is_backward: bool
) -> None:
    def stream() -> SentenceStream:
        return SentenceStream(corpus, 5, is_backward=is_backward, seed=4, reset_probability=0.5)

    whole = read(stream(), 40, is_backward)
    for lengths in ([1] * 40, [7, 1, 12, 20], [39, 1]):
        cut = stream()
        parts = [read(cut, length, is_backward) for length in lengths]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    some = stream()
    for begin, end in ((13, 18), (18, 19), (39, 40)):
        some.skip(begin - some.step)
        found = read(some, end - begin, is_backward, range(1, 3))
        np.testing.assert_array_equal(found, whole[1:3, begin:end])


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
@DIRECTIONS
def test_resets_stand_at_sentence_starts_as_often_as_asked_and_change_nothing_else(
    corpus: Corpus, probability: float, is_backward: bool
) -> None:
    plain, steps = (
        read(SentenceStream(corpus, 2, is_backward=is_backward, seed=4, reset_probability=rate), 3000, is_backward)
        for rate in (0.0, probability)
    )
    np.testing.assert_array_equal(steps[..., :3], plain[..., :3])
    is_start, is_reset = steps[..., 0] == (END_INDEX if is_backward else BEGIN_INDEX), steps[..., 3] == 1
    assert not (is_reset & ~is_start).any()
    # About 1,300 sentences: 5 standard deviations are 0.07.
    assert is_reset.sum() / is_start.sum() == pytest.approx(probability, abs=0.07 * (probability == 0.5))


NUM_WORDS = sum(map(len, SENTENCES))


@pytest.mark.parametrize("token_encoder", ["char_cnn", "word_embedding"])
def test_a_text_is_places_in_a_table_of_its_distinct_words(token_encoder: str) -> None:
    tokenizer = tokenizer_with(token_encoder=token_encoder)
    corpus = Corpus.from_sentences(iter(SENTENCES), tokenizer)
    distinct = list(dict.fromkeys(["<S>", "</S>", *(word for words in SENTENCES for word in words)]))
    assert corpus.ids.tolist() == tokenizer.convert_tokens_to_ids(distinct)
    assert corpus.classes.tolist() == [WORDS.index(word) if word in WORDS else 2 for word in distinct]
    assert corpus.words.tolist() == [distinct.index(word) for words in SENTENCES for word in words]
    assert corpus.starts.tolist() == np.cumsum([0, *map(len, SENTENCES)]).tolist()
    assert [[distinct[row] for row in corpus.sentence(number)] for number in range(len(corpus))] == SENTENCES
    assert (corpus.num_words, corpus.num_predictions) == (NUM_WORDS, NUM_WORDS + len(SENTENCES))
    shares = [corpus.share_of_class(WORDS.index(word)) for word in ("<UNK>", "the", "<S>")]
    assert shares == pytest.approx([3 / NUM_WORDS, 4 / NUM_WORDS, 0])
    assert corpus.words.dtype == np.int32
    assert Corpus.from_sentences([["the", "</S>", "<S>"]], tokenizer).words.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("largest", "dtype"), [(2**15 - 1, np.int16), (2**15, np.int32), (2**17, np.int32)])
def test_ids_have_a_type_that_holds_the_largest(largest: int, dtype: type) -> None:
    ids = [[largest - number] * 3 for number in range(4)]
    codes = SimpleNamespace(boundaries=("<S>", "</S>"), convert_tokens_to_ids=lambda words: ids, word_classes=len)
    corpus = Corpus.from_sentences([["a", "b"]], codes)
    assert corpus.ids.dtype == dtype
    assert corpus.ids.tolist() == ids
