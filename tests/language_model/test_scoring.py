"""Log-probabilities of a text: from zero state and carried, against one sentence or one step at a time; tables."""

import csv
import math
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from checkpoints import shared
from language_models import tiny_files
from tiny_lm import SENTENCES, WORDS, tiny_lm, tiny_tokenizer_of, tiny_word_lm

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder
from elmo_hf.conversion.witness.reference import ReferenceElmo, State
from elmo_hf.language_model import scoring
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.scoring import Scores, score_carried, score_from_zero
from elmo_hf.language_model.surprisal_table import PlacedSentence, write_table

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


def assert_close(actual: Scores, expected: Scores, tolerance: float = 1e-5) -> None:
    for name in ("forward", "backward"):
        np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=0, atol=tolerance)


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
def test_from_zero_each_sentence_is_scored_as_if_alone(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, corpus: Corpus
) -> None:
    scores = score_from_zero(model, corpus)
    alone = [one_word_at_a_time(model, tokenizer, [words]) for words in SENTENCES]
    for direction, found in enumerate((scores.forward, scores.backward)):
        expected = [log_prob for sentence in alone for log_prob in sentence[direction]]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert scores.num_scored == NUM_PREDICTIONS
    assert scores.starts.tolist() == np.cumsum([0, *(len(words) + 1 for words in SENTENCES)]).tolist()


@pytest.mark.parametrize("num_words", [1, 12, 20, 4096])
def test_batches_of_any_size_and_sentences_in_any_order_score_the_same(
    num_words: int, model: ElmoForPreTraining, tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score_from_zero(model, Corpus.from_sentences(SENTENCES, tokenizer))
    monkeypatch.setattr(scoring, "BATCH_WORDS", num_words)
    assert_close(score_from_zero(model, Corpus.from_sentences(SENTENCES, tokenizer)), expected)
    reversed_scores = score_from_zero(model, Corpus.from_sentences(SENTENCES[::-1], tokenizer))
    for number in range(len(SENTENCES)):
        for actual, surprisals in zip(
            reversed_scores.surprisals(len(SENTENCES) - 1 - number), expected.surprisals(number), strict=True
        ):
            np.testing.assert_allclose(actual, surprisals, rtol=0, atol=1e-5)


def test_batches_hold_at_most_batch_words_positions(
    corpus: Corpus, model: ElmoForPreTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BATCH_WORDS", 20)
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0].shape[:2])))
    reported: list[int] = []
    score_from_zero(model, corpus, reported.append)
    # Lengths with boundaries are 2, 3, 5, 7, 8, 8, 10 in rising order.
    assert shapes == [(3, 5), (2, 8), (2, 10)]
    assert sum(reported) == NUM_PREDICTIONS


def test_scores_and_losses_of_the_same_batch_agree(model: ElmoForPreTraining, corpus: Corpus) -> None:
    scores = score_from_zero(model, corpus)
    length = max(map(len, SENTENCES)) + 2
    rows = np.ones((len(SENTENCES), length), dtype=np.int64)
    labels = np.full(rows.shape, -100)
    mask = np.zeros_like(rows)
    for number, words in enumerate(SENTENCES):
        end = len(words) + 2
        rows[number, :end] = [0, *corpus.sentence(number), 1]
        labels[number, :end] = corpus.classes[rows[number, :end]]
        mask[number, :end] = 1
    ids, labels, mask = (torch.from_numpy(array) for array in (corpus.ids[rows], labels, mask))
    with torch.no_grad():
        output = model(ids, attention_mask=mask, labels=labels)
    assert scores.forward_perplexity == pytest.approx(output.forward_loss.exp().item(), rel=1e-5)
    assert scores.backward_perplexity == pytest.approx(output.backward_loss.exp().item(), rel=1e-5)
    assert scores.perplexity == pytest.approx(output.loss.exp().item(), rel=1e-5)


@BOTH_KINDS
def test_carried_along_one_row_the_text_is_one_long_run(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, corpus: Corpus
) -> None:
    scores = score_carried(model, corpus, num_rows=1)
    forward, backward = one_word_at_a_time(model, tokenizer, SENTENCES)
    np.testing.assert_allclose(scores.forward, forward, rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores.backward, backward, rtol=0, atol=1e-5)
    assert np.abs(scores.forward - score_from_zero(model, corpus).forward).max() > 1e-2


def test_carried_along_several_rows_each_row_is_one_long_run_and_unfinished_sentences_are_not_scored(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, corpus: Corpus
) -> None:
    # Predictions of the sentences: 7, 1, 2, 9, 4, 7, 7. A row that runs dry takes the next sentence.
    rows = [[0, 4, 5], [1, 2, 3, 6]]
    num_steps = 7 + 4 + 7
    scores = score_carried(model, corpus, num_rows=2)
    expected = (np.full(NUM_PREDICTIONS, np.nan), np.full(NUM_PREDICTIONS, np.nan))
    for row in rows:
        found = one_word_at_a_time(model, tokenizer, [SENTENCES[number] for number in row])
        steps = 0
        for number in row:
            length = len(SENTENCES[number]) + 1
            scored = min(length, num_steps - steps)
            start = scores.starts[number]
            expected[0][start : start + scored] = found[0][steps : steps + scored]
            # Read from its end, an unfinished sentence lacks its beginning.
            expected[1][start + length - scored : start + length] = found[1][steps + length - scored : steps + length]
            steps += length
    for actual, other in zip((scores.forward, scores.backward), expected, strict=True):
        np.testing.assert_allclose(actual, other, rtol=0, atol=1e-5)
    assert scores.num_scored == 2 * num_steps == NUM_PREDICTIONS - 1


@pytest.mark.parametrize("steps", [1, 5, 1000])
@pytest.mark.parametrize("num_rows", [1, 3])
def test_windows_of_any_length_score_the_same(
    steps: int, num_rows: int, model: ElmoForPreTraining, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score_carried(model, corpus, num_rows)
    monkeypatch.setattr(scoring, "WINDOW_STEPS", steps)
    reported: list[int] = []
    scores = score_carried(model, corpus, num_rows, reported.append)
    assert_close(scores, expected)
    assert sum(reported) == scores.num_scored


def test_more_rows_than_sentences_are_as_many_rows_as_sentences(model: ElmoForPreTraining, corpus: Corpus) -> None:
    assert_close(score_carried(model, corpus, 50), score_carried(model, corpus, len(SENTENCES)))


def test_perplexities_are_exponentials_of_mean_losses_over_what_was_scored() -> None:
    forward = np.array([-1.0, -2, np.nan, -6], dtype=np.float32)
    backward = np.array([np.nan, -0.5, -1.5, -1], dtype=np.float32)
    scores = Scores(forward, backward, np.array([0, 1, 4]))
    assert scores.num_scored == 3
    assert scores.forward_perplexity == pytest.approx(math.exp(3))
    assert scores.backward_perplexity == pytest.approx(math.exp(1))
    assert scores.perplexity == pytest.approx((scores.forward_perplexity * scores.backward_perplexity) ** 0.5)


def test_surprisals_are_bits_of_a_sentences_predictions() -> None:
    log_probs = np.log(np.array([1 / 2, 1 / 8, 1, 1 / 4], dtype=np.float32))
    scores = Scores(log_probs, log_probs[::-1], np.array([0, 1, 4]))
    forward, backward = scores.surprisals(1)
    np.testing.assert_allclose(forward, [3, 0, 2], atol=1e-6)
    np.testing.assert_allclose(backward, [0, 3, 1], atol=1e-6)
    assert [len(bits) for bits in scores.surprisals(0)] == [1, 1]


def test_a_text_without_sentences_has_no_perplexity(model: ElmoForPreTraining, tokenizer: ElmoTokenizer) -> None:
    scores = score_from_zero(model, Corpus.from_sentences([], tokenizer))
    assert scores.num_scored == 0
    assert all(map(math.isnan, (scores.forward_perplexity, scores.backward_perplexity, scores.perplexity)))
    with pytest.raises(ValueError, match="the corpus has no sentences"):
        score_carried(model, Corpus.from_sentences([], tokenizer))


@BOTH_KINDS
def test_a_model_scores_sentences_in_both_ways(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, corpus: Corpus
) -> None:
    assert_close(model.score(SENTENCES, tokenizer), score_from_zero(model, corpus), 0)
    carried = model.score(iter(SENTENCES), tokenizer, carries_state=True, num_rows=3)
    assert_close(carried, score_carried(model, corpus, 3), 0)
    by_default = model.score(SENTENCES, tokenizer, carries_state=True)
    assert_close(by_default, score_carried(model, corpus, len(SENTENCES)), 0)


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_a_model_in_training_is_scored_exactly_and_goes_on_training(kind: str, tmp_path: Path) -> None:
    model = tiny_lm(softmax=kind, lm_dropout=0.5)
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    expected = model.score(SENTENCES, tokenizer)
    assert not model.training
    for carries_state in (False, True):
        scores = model.train().score(SENTENCES, tokenizer, carries_state=carries_state)
        assert model.training
        if not carries_state:
            assert_close(scores, expected, 0)


def test_scoring_needs_the_predicted_words() -> None:
    with pytest.raises(ValueError, match=r"no vocabulary of predicted words"):
        tiny_lm().score(SENTENCES, ElmoTokenizer(max_word_length=11))


def read_table(path: Path) -> dict[str, list]:
    """Columns of either format; TSV has text only."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file, delimiter="\t")
    if not lines:
        return {name: [] for name in header}
    columns: dict[str, list] = dict(zip(header, map(list, zip(*lines, strict=True)), strict=True))
    for name, kind in COLUMN_TYPES.items():
        columns[name] = [None if value == "" else kind(value) for value in columns[name]]
    return columns


COLUMN_TYPES: dict[str, Callable[[str], object]] = {
    "sentence": int,
    "position": int,
    "word": str,
    "is_unknown": lambda text: {"true": True, "false": False}[text],
    "forward_bits": float,
    "backward_bits": float,
    "document": int,
    "document_sentence": int,
    "region": int,
    "document_region": int,
}


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_table_has_a_row_for_every_word_and_boundary(
    suffix: str, model: ElmoForPreTraining, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    scores = model.score(SENTENCES, tokenizer)
    scores.forward[0] = scores.backward[1] = np.nan
    # Lines of the file without text to score are left out by number.
    numbers = [0, 1, 2, 5, 6, 8, 9]
    placed = [
        PlacedSentence(number, words, range(len(words)), 3, place, 10 * place)
        for place, (number, words) in enumerate(zip(numbers, SENTENCES, strict=True))
    ]
    write_table(tmp_path / f"table{suffix}", placed, scores, tokenizer)
    assert [path.name for path in tmp_path.glob("*table*")] == [f"table{suffix}"]
    table = read_table(tmp_path / f"table{suffix}")
    assert list(table) == list(COLUMN_TYPES)
    marked = [["<S>", *words, "</S>"] for words in SENTENCES]
    assert table["word"] == [word for words in marked for word in words]
    assert table["sentence"] == [number for number, words in zip(numbers, marked, strict=True) for _ in words]
    assert table["position"] == [place for words in marked for place in range(len(words))]
    assert set(table["document"]) == {3}
    assert table["document_sentence"] == [place for place, words in enumerate(marked) for _ in words]
    regions = [[None, *range(len(words)), None] for words in SENTENCES]
    assert table["region"] == [region for row in regions for region in row]
    assert table["document_region"] == [
        None if region is None else 10 * place + region for place, row in enumerate(regions) for region in row
    ]
    assert table["is_unknown"] == [word not in WORDS for word in table["word"]]
    forward: list[float | None] = []
    backward: list[float | None] = []
    for number, words in enumerate(SENTENCES):
        place = scores.starts[number]
        end = place + len(words) + 1
        forward += [None, *(-scores.forward[place:end] / math.log(2)).tolist()]
        backward += [*(-scores.backward[place:end] / math.log(2)).tolist(), None]
    for name, expected in (("forward_bits", forward), ("backward_bits", backward)):
        expected = [None if bits is None or math.isnan(bits) else pytest.approx(bits, abs=1e-5) for bits in expected]
        assert table[name] == expected
    assert table["forward_bits"][:2] == [None, None]
    assert table["backward_bits"][1] is None


def test_a_table_of_words_with_quotes_is_read_back(model: ElmoForPreTraining, tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    words = ['"', 'say"so', "'", "a,b"]
    write_table(tmp_path / "t.tsv", [PlacedSentence(0, words, range(4))], model.score([words], tokenizer), tokenizer)
    assert read_table(tmp_path / "t.tsv")["word"] == ["<S>", *words, "</S>"]


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_lone_surrogate_becomes_a_question_mark_in_a_table(suffix: str, tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    words = ["half\ud83d", "\ud83d", "whole"]
    write_table(
        tmp_path / f"t{suffix}", [PlacedSentence(0, words, range(3))], model.score([words], tokenizer), tokenizer
    )
    assert read_table(tmp_path / f"t{suffix}")["word"] == ["<S>", "half?", "?", "whole", "</S>"]


@pytest.mark.parametrize("suffix", [".tsv", ".parquet"])
def test_a_table_of_no_sentences_has_its_columns(suffix: str, tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    write_table(tmp_path / f"t{suffix}", [], model.score([], tokenizer), tokenizer)
    assert read_table(tmp_path / f"t{suffix}") == {name: [] for name in COLUMN_TYPES}


def test_a_table_of_another_suffix_is_refused(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    with pytest.raises(ValueError, match=r"t\.csv must end in \.tsv or \.parquet"):
        write_table(tmp_path / "t.csv", [], model.score([], tokenizer), tokenizer)


class NumpyLanguageModel:
    """Both directions of one row in NumPy, from the checkpoint's own arrays, without any of our tables."""

    def __init__(self, files: AllenNlpFiles) -> None:
        assert files.vocabulary is not None
        options, arrays = files.read()
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
        np.testing.assert_allclose(scores.forward, forward, rtol=0, atol=tolerance)
        np.testing.assert_allclose(scores.backward, backward, rtol=0, atol=tolerance)
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
