"""Log-probabilities of a text: from zero state and carried, against one word a call, and against NumPy."""

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from checkpoints import arrays_of
from language_models import tiny_files
from tiny_lm import SENTENCES, tiny_lm, tiny_word_lm, tokenizer_of

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.witness.reference import ReferenceElmo, State
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.scoring import (
    BATCH_WORDS,
    WINDOW_STEPS,
    Scores,
    evaluating,
    score_carried,
    score_from_zero,
)


def assert_scores(actual: Scores, forward: object, backward: object, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(actual.forward, forward, rtol=0, atol=tolerance)
    np.testing.assert_allclose(actual.backward, backward, rtol=0, atol=tolerance)


def test_rows_are_texts_read_in_their_order_and_unfinished_sentences_are_not_scored(
    each_lm: ElmoForPreTraining,
) -> None:
    # In float64, because float32 drifts apart over long runs of such weights.
    model, tokenizer = each_lm.double(), tokenizer_of(each_lm)
    sentences, counts = SENTENCES * 5, []
    scores = score_carried(model, Corpus.from_sentences(sentences, tokenizer), 2, counts.append)
    rows, ends = ([], []), [0, 0]
    for number, words in enumerate(sentences):
        row = ends.index(min(ends))  # a row that runs dry takes the next sentence
        rows[row].append(number)
        ends[row] += len(words) + 1
    assert min(ends) > WINDOW_STEPS
    expected = np.full((2, sum(ends)), np.nan)
    for row in rows:
        alone = model.score([sentences[number] for number in row], tokenizer, carries_state=True, num_rows=1)
        for number, begin, end in zip(row, alone.starts, alone.starts[1:], strict=False):
            scored = min(end, min(ends)) - begin
            first, last = scores.starts[number], scores.starts[number + 1]
            expected[0, first : first + scored] = alone.forward[begin : begin + scored]
            # Read from its end, an unfinished sentence lacks its beginning.
            expected[1, last - scored : last] = alone.backward[end - scored : end]
    assert_scores(scores, *expected)
    assert scores.num_scored == sum(counts) == 2 * min(ends) < sum(ends)


def test_batches_are_bounded_and_change_nothing() -> None:
    model = tiny_word_lm().double()
    tokenizer = tokenizer_of(model)
    expected = score_from_zero(model, Corpus.from_sentences(SENTENCES, tokenizer))
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0].shape[:2])))
    scores = score_from_zero(model, Corpus.from_sentences(SENTENCES * 200, tokenizer))
    assert len(shapes) == 6
    assert all(rows * length <= BATCH_WORDS for rows, length in shapes)
    assert_scores(scores, np.tile(expected.forward, 200), np.tile(expected.backward, 200))


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_model_in_training_is_scored_exactly_and_goes_on_training(kind: str) -> None:
    model = tiny_lm(softmax=kind, lm_dropout=0.5)
    tokenizer = tokenizer_of(model)
    model.train().elmo.token_encoder.eval()
    modes = [module.training for module in model.modules()]
    for carries_state in (False, True):
        found = model.score(iter(SENTENCES), tokenizer, carries_state=carries_state)
        assert [module.training for module in model.modules()] == modes
        with evaluating(model):
            # There are at most as many rows as sentences.
            expected = model.score(SENTENCES, tokenizer, carries_state=carries_state, num_rows=len(SENTENCES))
        assert_scores(found, expected.forward, expected.backward, 0)


def numpy_log_probs(files: Given, sentences: list[list[str]], carries_state: bool) -> list[np.ndarray]:
    """Both directions of one row in NumPy, from the checkpoint's own arrays, without any of our tables."""
    assert files.vocabulary is not None
    arrays, vocabulary = arrays_of(files), files.vocabulary.read_text(encoding="utf-8").split()
    reference = ReferenceElmo(json.loads(files.options.read_text(encoding="utf-8")), arrays)
    word_vector = cache(reference.word_vector)
    state: State = {}
    both: tuple[list[float], list[float]] = ([], [])
    for words in sentences:
        state = state if carries_state else {}
        for direction, name in enumerate(("RNN_0", "RNN_1")):
            read = ["</S>", *words[::-1], "<S>"] if direction else ["<S>", *words, "</S>"]
            vectors = np.stack([word_vector(word) for word in read[:-1]])
            hidden = reference.direction(name, vectors, state)[-1]
            logits = hidden @ arrays["softmax/W"].astype(np.float64).T + arrays["softmax/b"]
            log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            classes = [vocabulary.index(word if word in vocabulary else "<UNK>") for word in read[1:]]
            found = log_probs[np.arange(len(classes)), classes].tolist()
            both[direction].extend(found[::-1] if direction else found)
    return [np.array(each) for each in both]


@pytest.mark.parametrize("carries_state", [False, True])
def test_a_checkpoint_of_bilm_tf_scores_text_as_numpy_does(carries_state: bool, tiny_lm_folder: Path) -> None:
    model, tokenizer = ElmoForPreTraining.from_pretrained(tiny_lm_folder), ElmoTokenizer.from_pretrained(tiny_lm_folder)
    sentences = SENTENCES * 4
    assert sum(len(words) + 1 for words in sentences) > 2 * WINDOW_STEPS
    scores = model.score(sentences, tokenizer, carries_state=carries_state, num_rows=1)
    forward, backward = numpy_log_probs(tiny_files(), sentences, carries_state)
    assert_scores(scores, forward, backward)
    perplexities = [scores.forward_perplexity, scores.backward_perplexity, scores.perplexity]
    means = [-forward.mean(), -backward.mean(), -(forward.mean() + backward.mean()) / 2]
    assert perplexities == pytest.approx(np.exp(means).tolist(), rel=1e-4)
    assert scores.num_scored == len(forward)
    assert scores.starts.tolist() == np.cumsum([0, *(len(words) + 1 for words in sentences)]).tolist()
    last = slice(-len(sentences[-1]) - 1, None)
    bits = [-direction[last] / math.log(2) for direction in (forward, backward)]
    np.testing.assert_allclose(scores.surprisals(len(sentences) - 1), bits, rtol=0, atol=2e-5)
