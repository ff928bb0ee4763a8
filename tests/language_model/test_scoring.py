"""Log-probabilities of a text: from zero state and carried, against one word a call, and against NumPy."""

import json
import math
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import allennlp_to_folder, arrays_of, shared
from language_models import tiny_files
from tiny_lm import SENTENCES, inputs_of, tiny_lm, tiny_tokenizer_of, tiny_word_lm

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.conversion.witness.reference import ReferenceElmo, State
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.scoring import BATCH_WORDS, WINDOW_STEPS, Scores, score_carried, score_from_zero

NUM_PREDICTIONS = sum(len(words) + 1 for words in SENTENCES)


@pytest.fixture
def model(request: pytest.FixtureRequest) -> ElmoForPreTraining:
    """Word input is the fastest; tests of both kinds ask for them."""
    # In float64, because float32 drifts apart over long runs of such weights.
    return getattr(request, "param", tiny_word_lm)().double()


BOTH_KINDS = pytest.mark.parametrize("model", [tiny_lm, tiny_word_lm], indirect=True, ids=["characters", "words"])


@pytest.fixture
def tokenizer(model: ElmoForPreTraining, tmp_path: Path) -> ElmoTokenizer:
    return tiny_tokenizer_of(model, tmp_path)


@pytest.fixture
def corpus(tokenizer: ElmoTokenizer) -> Corpus:
    return Corpus.from_sentences(SENTENCES, tokenizer)


def assert_scores(actual: Scores, forward: object, backward: object, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(actual.forward, forward, rtol=0, atol=tolerance)
    np.testing.assert_allclose(actual.backward, backward, rtol=0, atol=tolerance)


@torch.no_grad()
def one_word_at_a_time(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, sentences: list[list[str]]
) -> tuple[list[float], list[float]]:
    """Both directions of one row that reads sentences one word a call, in the order of the text's predictions."""
    both: tuple[list[float], list[float]] = ([], [])
    state = None
    for words in sentences:
        forward, backward = ["<S>", *words, "</S>"], ["</S>", *words[::-1], "<S>"]
        found: tuple[list[float], list[float]] = ([], [])
        for step in range(len(words) + 1):
            ids = [torch.tensor([tokenizer.convert_tokens_to_ids([row[step]])]) for row in (forward, backward)]
            output = model(ids[0], backward_input_ids=ids[1], state=state, output_logits=True)
            state = output.state
            for row, logits, log_probs in (
                (forward, output.forward_logits, found[0]),
                (backward, output.backward_logits, found[1]),
            ):
                target = tokenizer.word_classes([row[step + 1]])[0]
                log_probs.append(logits[0, 0].log_softmax(dim=-1)[target].item())
        both[0].extend(found[0])
        both[1].extend(found[1][::-1])
    return both


@BOTH_KINDS
def test_from_zero_each_sentence_is_scored_as_if_alone(model: ElmoForPreTraining, tokenizer: ElmoTokenizer) -> None:
    scores = model.score(iter(SENTENCES), tokenizer)
    alone = [one_word_at_a_time(model, tokenizer, [words]) for words in SENTENCES]
    assert_scores(scores, *([number for sentence in alone for number in sentence[way]] for way in (0, 1)))
    assert scores.num_scored == NUM_PREDICTIONS
    assert scores.starts.tolist() == np.cumsum([0, *(len(words) + 1 for words in SENTENCES)]).tolist()


def test_batches_are_bounded_and_change_nothing(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, corpus: Corpus
) -> None:
    expected = score_from_zero(model, corpus)
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0].shape[:2])))
    counts: list[int] = []
    many = Corpus.from_sentences(SENTENCES[::-1] * 200, tokenizer)
    scores = score_from_zero(model, many, counts.append)
    assert len(shapes) == len(counts) == 3
    assert all(rows * length <= BATCH_WORDS for rows, length in shapes)
    assert sum(counts) == many.num_predictions
    for number in (0, 5, 703, 1399):
        bits = expected.surprisals(len(SENTENCES) - 1 - number % len(SENTENCES))
        np.testing.assert_allclose(np.stack(scores.surprisals(number)), np.stack(bits), rtol=0, atol=1e-5)


def test_scores_and_losses_of_the_same_batch_agree(model: ElmoForPreTraining, corpus: Corpus, tmp_path: Path) -> None:
    scores = score_from_zero(model, corpus)
    with torch.no_grad():
        output = model(**inputs_of(model, tmp_path, SENTENCES))
    assert scores.forward_perplexity == pytest.approx(output.forward_loss.exp().item(), rel=1e-5)
    assert scores.backward_perplexity == pytest.approx(output.backward_loss.exp().item(), rel=1e-5)
    assert scores.perplexity == pytest.approx(output.loss.exp().item(), rel=1e-5)


@BOTH_KINDS
def test_carried_along_one_row_the_text_is_one_long_run(model: ElmoForPreTraining, tokenizer: ElmoTokenizer) -> None:
    sentences = SENTENCES * 4
    assert NUM_PREDICTIONS * 4 > 2 * WINDOW_STEPS
    scores = model.score(sentences, tokenizer, carries_state=True, num_rows=1)
    assert_scores(scores, *one_word_at_a_time(model, tokenizer, sentences))
    assert np.abs(scores.forward - model.score(sentences, tokenizer).forward).max() > 1e-2


@pytest.mark.parametrize("times", [1, 5])
def test_carried_along_several_rows_each_row_is_one_long_run_and_unfinished_sentences_are_not_scored(
    times: int, model: ElmoForPreTraining, tokenizer: ElmoTokenizer
) -> None:
    # Predictions of the sentences: 7, 1, 2, 9, 4, 7, 7. A row that runs dry takes the next sentence.
    sentences = SENTENCES * times
    corpus = Corpus.from_sentences(sentences, tokenizer)
    rows: list[list[int]] = [[], []]
    ends = [0, 0]
    for number, words in enumerate(sentences):
        row = ends.index(min(ends))
        rows[row].append(number)
        ends[row] += len(words) + 1
    assert times > 1 or rows == [[0, 4, 5], [1, 2, 3, 6]]
    num_steps = min(ends)
    counts: list[int] = []
    scores = score_carried(model, corpus, 2, counts.append)
    expected = np.full((2, corpus.num_predictions), np.nan)
    for row in rows:
        found = one_word_at_a_time(model, tokenizer, [sentences[number] for number in row])
        steps = 0
        for number in row:
            length = len(sentences[number]) + 1
            scored = min(length, num_steps - steps)
            start = scores.starts[number]
            expected[0, start : start + scored] = found[0][steps : steps + scored]
            # Read from its end, an unfinished sentence lacks its beginning.
            expected[1, start + length - scored : start + length] = found[1][steps + length - scored : steps + length]
            steps += length
    assert_scores(scores, *expected)
    assert scores.num_scored == sum(counts) == 2 * num_steps < corpus.num_predictions


def test_documents_are_scored_each_in_its_order(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    sentences = [line.split() for line in ("the ferry left .", "late", "at ten , unseen", "Yes", "the harbour .")]
    counts: list[int] = []
    corpus = Corpus.from_sentences(sentences, tokenizer)
    scores = score_carried(model, corpus, progress=counts.append, documents=[0, 0, 0, 4, 4])
    parts = [model.score(part, tokenizer, carries_state=True, num_rows=1) for part in (sentences[:3], sentences[3:])]
    np.testing.assert_array_equal(scores.forward, np.concatenate([part.forward for part in parts]))
    np.testing.assert_array_equal(scores.backward, np.concatenate([part.backward for part in parts]))
    assert scores.num_scored == sum(counts) == sum(len(words) + 1 for words in sentences)
    assert scores.starts.tolist() == [0, 5, 7, 12, 14, 18]


def test_perplexities_are_exponentials_of_mean_losses_over_what_was_scored() -> None:
    forward = np.array([-1.0, -2, np.nan, -6], dtype=np.float32)
    backward = np.array([np.nan, -0.5, -1.5, -1], dtype=np.float32)
    scores = Scores(forward, backward, np.array([0, 1, 4]))
    assert scores.num_scored == 3
    assert scores.forward_perplexity == pytest.approx(math.exp(3))
    assert scores.backward_perplexity == pytest.approx(math.exp(1))
    assert scores.perplexity == pytest.approx((scores.forward_perplexity * scores.backward_perplexity) ** 0.5)
    assert Scores(1000 * forward, backward, scores.starts).forward_perplexity == math.inf


def test_surprisals_are_bits_of_a_sentences_predictions() -> None:
    log_probs = np.log(np.array([1 / 2, 1 / 8, 1, 1 / 4], dtype=np.float32))
    scores = Scores(log_probs, log_probs[::-1], np.array([0, 1, 4]))
    np.testing.assert_allclose(np.stack(scores.surprisals(1)), [[3, 0, 2], [0, 3, 1]], atol=1e-6)
    assert [len(bits) for bits in scores.surprisals(0)] == [1, 1]


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_model_in_training_is_scored_exactly_and_goes_on_training(kind: str, tmp_path: Path) -> None:
    model = tiny_lm(softmax=kind, lm_dropout=0.5)
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    for carries_state in (False, True):
        # There are at most as many rows as sentences.
        expected = model.eval().score(SENTENCES, tokenizer, carries_state=carries_state, num_rows=len(SENTENCES))
        assert not model.training
        scores = model.train().score(SENTENCES, tokenizer, carries_state=carries_state)
        assert_scores(scores, expected.forward, expected.backward, 0)
        assert model.training


class NumpyLanguageModel:
    """Both directions of one row in NumPy, from the checkpoint's own arrays, without any of our tables."""

    def __init__(self, files: AllenNlpFiles) -> None:
        assert files.vocabulary is not None
        options, arrays = json.loads(files.options.read_text(encoding="utf-8")), arrays_of(files)
        self.matrix, self.bias = arrays["softmax/W"].astype(np.float64), arrays["softmax/b"]
        self.reference = ReferenceElmo(options, arrays)
        self.word_vector = cache(self.reference.word_vector)
        self.class_of = {word: line for line, word in enumerate(files.vocabulary.read_text(encoding="utf-8").split())}

    def log_probs(self, sentences: list[list[str]], carries_state: bool) -> tuple[np.ndarray, np.ndarray]:
        state: State = {}
        both: tuple[list[float], list[float]] = ([], [])
        for words in sentences:
            state = state if carries_state else {}
            for direction, name in enumerate(("RNN_0", "RNN_1")):
                read = ["</S>", *words[::-1], "<S>"] if direction else ["<S>", *words, "</S>"]
                vectors = np.stack([self.word_vector(word) for word in read[:-1]])
                logits = self.reference.direction(name, vectors, state)[-1] @ self.matrix.T + self.bias
                log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
                classes = [self.class_of.get(word, self.class_of["<UNK>"]) for word in read[1:]]
                found = log_probs[np.arange(len(classes)), classes].tolist()
                both[direction].extend(found[::-1] if direction else found)
        return np.array(both[0]), np.array(both[1])


def assert_scored_as_in_numpy(files: AllenNlpFiles, folder: Path, sentences: list[list[str]], tolerance: float) -> None:
    model, tokenizer = ElmoForPreTraining.from_pretrained(folder), ElmoTokenizer.from_pretrained(folder)
    reference = NumpyLanguageModel(files)
    for carries_state in (False, True):
        scores = model.score(sentences, tokenizer, carries_state=carries_state, num_rows=1)
        forward, backward = reference.log_probs(sentences, carries_state)
        assert_scores(scores, forward, backward, tolerance)
        assert scores.forward_perplexity == pytest.approx(np.exp(-forward.mean()), rel=1e-4)
        assert scores.backward_perplexity == pytest.approx(np.exp(-backward.mean()), rel=1e-4)


def test_a_checkpoint_of_bilm_tf_scores_text_as_numpy_does(tiny_lm_folder: Path) -> None:
    assert_scored_as_in_numpy(tiny_files(), tiny_lm_folder, SENTENCES, 1e-5)


def test_a_model_that_bilm_tf_trained_scores_held_out_text_as_numpy_does(tmp_path: Path) -> None:
    source = shared("fixtures", "bilm_tf_trained")
    text = shared("data", "wikitext2", "bilm_reference")
    files = AllenNlpFiles(source / "options.json", source / "model.ckpt-1484.index", text / "vocab_full.txt")
    allennlp_to_folder(files, tmp_path / "trained", source_name="trained")
    with (text / "heldout.txt").open(encoding="utf-8") as lines:
        sentences = [line.split() for line in islice(lines, 8)]
    assert_scored_as_in_numpy(files, tmp_path / "trained", sentences, 1e-4)
