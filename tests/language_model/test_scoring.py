"""Log-probabilities of a text, against one word a call and NumPy; the table of surprisals and its places."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from elmo_hf import ElmoForPreTraining, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.witness.reference import ReferenceElmo, State
from elmo_hf.disk.tables import save_table
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.scoring import (
    SCORING_BATCH_WORDS,
    WINDOW_STEPS,
    Scores,
    evaluating,
    score_carried,
    score_from_zero,
)
from elmo_hf.language_model.surprisal_table import PlacedSentence, place_sentences, surprisal_table
from tests.helpers.checkpoints import arrays_of
from tests.helpers.commands import output_of
from tests.helpers.language_models import tiny_files
from tests.helpers.tiny_lm import SENTENCES, tiny_lm, tiny_word_lm, tokenizer_of, tokenizer_with


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
    assert all(rows * length <= SCORING_BATCH_WORDS for rows, length in shapes)
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


def numpy_log_probs(files: NamedFiles, sentences: list[list[str]], carries_state: bool) -> list[np.ndarray]:
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


COLUMNS = "sentence position word is_unknown forward_bits backward_bits document document_sentence region"
OF_REGIONS = "sentence document document_sentence region document_region word num_words is_unknown"


def rows(path: Path) -> dict[str, list[Any]]:
    """The columns of any format; every text format has the same values."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    options = {
        "parse_options": pyarrow.csv.ParseOptions(delimiter="," if path.suffix == ".csv" else "\t"),
        "convert_options": pyarrow.csv.ConvertOptions(column_types={"word": "string"}, strings_can_be_null=False),
    }
    return pyarrow.csv.read_csv(path, **options).to_pydict()


def test_words_have_the_places_that_corpora_of_reading_times_number() -> None:
    text = ["", "the ferry's late,  at ten.", " Yes. ", "", " ", "ten", ["at", "dawn now"], ""]
    late = ["the", "ferry", "'s", "late", ",", "at", "ten", "."]
    assert list(place_sentences(text, "ptb")) == [
        PlacedSentence(1, late, [0, 1, 1, 2, 2, 3, 4, 4], 0, 0, 0),
        PlacedSentence(2, ["Yes", "."], [0, 0], 0, 1, 5),
        PlacedSentence(5, ["ten"], [0], 1, 0, 0),
        PlacedSentence(6, ["at", "dawn now"], [0, 1], 1, 1, 1),
    ]
    assert next(place_sentences(["\x1c a\x1db"], "ptb")).regions == [0, 1, 1, 1]
    assert next(place_sentences(text, "whitespace")).words == ["the", "ferry's", "late,", "at", "ten."]


@pytest.mark.parametrize(("suffix", "unit"), [(".tsv", "bits"), (".csv", "nats"), (".parquet", "bits")])
def test_a_table_has_a_row_for_every_word_and_boundary(suffix: str, unit: str, tmp_path: Path) -> None:
    # Lines of the file without text to score are left out by number.
    placed = [
        PlacedSentence(2, ["the", 'say"so', '"', "half\ud83d"], [0, 0, 1, 2], 3, 5, 40),
        PlacedSentence(4, [], [], 3, 6, 43),
        PlacedSentence(9, ["a,b", "ten", "'"], [0, 1, 1], 6, 0, 0),
    ]
    scores = tiny_lm().score([each.words for each in placed], tokenizer_with())
    scores.forward[0] = scores.backward[1] = np.nan
    path = tmp_path / f"table{suffix}"
    save_table(path, surprisal_table(placed, scores, tokenizer_with(), unit, skips_unknown=unit == "nats"))
    assert [*tmp_path.iterdir()] == [path]
    table = rows(path)
    assert list(table) == [*COLUMNS.replace("bits", unit).split(), "document_region"]
    surprisals = np.array([table.pop(f"{name}_{unit}") for name in ("forward", "backward")], dtype=np.float64)
    assert list(zip(*table.values(), strict=True)) == [
        (2, 0, "<S>", False, 3, 5, None, None),
        (2, 1, "the", False, 3, 5, 0, 40),
        (2, 2, 'say"so', True, 3, 5, 0, 40),
        (2, 3, '"', True, 3, 5, 1, 41),
        (2, 4, "half?", True, 3, 5, 2, 42),
        (2, 5, "</S>", False, 3, 5, None, None),
        (4, 0, "<S>", False, 3, 6, None, None),
        (4, 1, "</S>", False, 3, 6, None, None),
        (9, 0, "<S>", False, 6, 0, None, None),
        (9, 1, "a,b", True, 6, 0, 0, 0),
        (9, 2, "ten", False, 6, 0, 1, 1),
        (9, 3, "'", True, 6, 0, 1, 1),
        (9, 4, "</S>", False, 6, 0, None, None),
    ]
    base = math.log(2) if unit == "bits" else 1
    forward = np.insert(-scores.forward / base, [0, 5, 6], np.nan)  # `<S>` is not predicted
    backward = np.insert(-scores.backward / base, [5, 6, 10], np.nan)  # nor is `</S>`
    expected = np.where(np.array(table["is_unknown"]) & (unit == "nats"), np.nan, [forward, backward])
    np.testing.assert_allclose(surprisals, expected, rtol=1e-5)


def test_a_table_by_region_adds_up_its_words(tmp_path: Path) -> None:
    placed = list(place_sentences(["the ferry, left", "", "unseen. ten"], "ptb"))
    scores = tiny_lm().score([each.words for each in placed], tokenizer_with())
    regions = surprisal_table(placed, scores, tokenizer_with(), unit="nats", skips_unknown=True, by_region=True)
    save_table(tmp_path / "t.tsv", regions)
    table = rows(tmp_path / "t.tsv")
    assert list(table) == [*OF_REGIONS.split(), "forward_nats", "backward_nats"]
    assert list(zip(*(table[name] for name in OF_REGIONS.split()), strict=True)) == [
        (0, 0, 0, 0, 0, "the", 1, False),
        (0, 0, 0, 1, 1, "ferry,", 2, False),
        (0, 0, 0, 2, 2, "left", 1, False),
        (2, 1, 0, 0, 0, "unseen.", 2, True),
        (2, 1, 0, 1, 1, "ten", 1, False),
    ]
    for name, places in (("forward", slice(None, -1)), ("backward", slice(1, None))):
        log_probs = getattr(scores, name)
        first, second = (-row[places] for row in np.split(log_probs, scores.starts[1:-1]))
        expected = [first[0], first[1] + first[2], first[3], np.nan, second[2]]
        np.testing.assert_allclose(np.array(table[f"{name}_nats"], dtype=np.float64), expected, rtol=1e-5)


def test_many_regions_are_in_the_order_of_the_text() -> None:
    placed = list(place_sentences(["a, b"] * 99, "ptb"))
    scores = tiny_lm().score([each.words for each in placed], tokenizer_with())
    table = surprisal_table(placed, scores, tokenizer_with(), by_region=True).to_pydict()
    places = list(zip(table["sentence"], table["region"], table["word"], strict=True))
    assert places == [(sentence, *region) for sentence in range(99) for region in ((0, "a,"), (1, "b"))]


def test_the_command_says_what_was_read_before_a_sentence_when_the_state_is_carried(tmp_path: Path) -> None:
    for part in (tiny_lm(), tokenizer_with()):
        part.save_pretrained(tmp_path / "lm")
    (tmp_path / "text").write_text("the ferry left.\nten late\n\nYes, at ten.\n", encoding="utf-8")
    meanings = {
        (): ", in 3 rows side by side, until the first row ends.",
        ("--rows", 2): ", in 2 rows side by side, until the first row ends.",
        ("--rows", 1): ".",
        ("--documents",): " in its document.",
    }
    for options, meaning in meanings.items():
        printed = output_of("score", tmp_path / "lm", tmp_path / "text", *options)
        assert printed.splitlines()[-1] == f"State carried: each sentence is read after those before it{meaning}"


def test_the_command_carries_the_state_through_documents(tmp_path: Path) -> None:
    model = tiny_lm()
    for part in (model, tokenizer_with()):
        part.save_pretrained(tmp_path / "lm")
    (tmp_path / "text").write_text("the ferry left.\nten late\n\nYes, at ten.\n", encoding="utf-8")
    (tmp_path / "t.csv").write_text('item,said\n7,"ten, late"\n8,the ferry\n', encoding="utf-8")
    printed = output_of("score", tmp_path / "lm", tmp_path / "t.csv", "--column", "said", "--words", "ptb")
    assert printed.startswith("2 sentences, 5 words")
    options = ("--documents", "--unit", "nats", "--skip-unknown", "--words", "ptb")
    for name, more in (("t.tsv", ()), ("r.tsv", ("--regions",))):
        printed = output_of("score", tmp_path / "lm", tmp_path / "text", "--per-word", tmp_path / name, *options, *more)
        assert printed.count("14 of 14 predictions") == 2
    assert rows(tmp_path / "r.tsv")["word"] == ["the", "ferry", "left.", "ten", "late", "Yes,", "at", "ten."]
    table = rows(tmp_path / "t.tsv")
    places = zip(table["document"], table["document_sentence"], table["document_region"], table["word"], strict=True)
    assert [place for place in places if place[3] in ("late", "at")] == [(0, 1, 4, "late"), (1, 0, 1, "at")]
    documents = [[["the", "ferry", "left", "."], ["ten", "late"]], [["Yes", ",", "at", "ten", "."]]]
    alone = [model.score(sentences, tokenizer_with(), carries_state=True, num_rows=1) for sentences in documents]
    for name in ("forward", "backward"):
        nats = [each for each in table[f"{name}_nats"] if each is not None]
        np.testing.assert_allclose(nats, np.concatenate([-getattr(scores, name) for scores in alone]), rtol=1e-5)
