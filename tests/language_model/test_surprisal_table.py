"""Surprisal for reading research: places that join to a corpus of reading times, units, unknown words, formats."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import output_of
from tiny_lm import tiny_lm, tokenizer_with

from elmo_hf.language_model.surprisal_table import PlacedSentence, place_sentences, write_table

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
    write_table(path, placed, scores, tokenizer_with(), unit, skips_unknown=unit == "nats")
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
    write_table(tmp_path / "t.tsv", placed, scores, tokenizer_with(), unit="nats", skips_unknown=True, by_region=True)
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


def test_many_regions_are_in_the_order_of_the_text(tmp_path: Path) -> None:
    placed = list(place_sentences(["a, b"] * 99, "ptb"))
    scores = tiny_lm().score([each.words for each in placed], tokenizer_with())
    write_table(tmp_path / "t.tsv", placed, scores, tokenizer_with(), by_region=True)
    table = rows(tmp_path / "t.tsv")
    places = list(zip(table["sentence"], table["region"], table["word"], strict=True))
    assert places == [(sentence, *region) for sentence in range(99) for region in ((0, "a,"), (1, "b"))]


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
    assert rows(tmp_path / "r.tsv")["word"] == "the ferry left. ten late Yes, at ten.".split()
    table = rows(tmp_path / "t.tsv")
    places = zip(table["document"], table["document_sentence"], table["document_region"], table["word"], strict=True)
    assert [place for place in places if place[3] in ("late", "at")] == [(0, 1, 4, "late"), (1, 0, 1, "at")]
    documents = [["the ferry left .".split(), ["ten", "late"]], ["Yes , at ten .".split()]]
    alone = [model.score(sentences, tokenizer_with(), carries_state=True, num_rows=1) for sentences in documents]
    for name in ("forward", "backward"):
        nats = [each for each in table[f"{name}_nats"] if each is not None]
        np.testing.assert_allclose(nats, np.concatenate([-getattr(scores, name) for scores in alone]), rtol=1e-5)
