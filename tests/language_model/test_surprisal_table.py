"""Surprisal for reading research: places that join to a corpus of reading times, units, unknown words, formats."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import run
from tiny_lm import SENTENCES, WORDS, tiny_lm, tiny_tokenizer_of

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.surprisal_table import PlacedSentence, place_sentences, write_table

COLUMNS = "sentence position word is_unknown forward_bits backward_bits document document_sentence region"
OF_REGIONS = "sentence document document_sentence region document_region word num_words is_unknown"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    model = tiny_lm()
    return model, tiny_tokenizer_of(model, tmp_path_factory.mktemp("words"))


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


@pytest.mark.parametrize(
    ("suffix", "unit", "base"), [(".tsv", "bits", math.log(2)), (".csv", "nats", 1), (".parquet", "bits", math.log(2))]
)
def test_a_table_has_a_row_for_every_word_and_boundary(
    suffix: str, unit: str, base: float, parts: tuple[ElmoForPreTraining, ElmoTokenizer], tmp_path: Path
) -> None:
    model, tokenizer = parts
    sentences = [*SENTENCES, ['"', 'say"so', "'", "a,b", "half\ud83d"]]
    scores = model.score(sentences, tokenizer)
    scores.forward[0] = scores.backward[1] = np.nan
    # Lines of the file without text to score are left out by number.
    numbers = [0, 1, 2, 5, 6, 8, 9, 10]
    placed = [
        PlacedSentence(number, words, range(len(words)), 3, place, 10 * place)
        for place, (number, words) in enumerate(zip(numbers, sentences, strict=True))
    ]
    path = tmp_path / f"table{suffix}"
    write_table(path, placed, scores, tokenizer, unit, skips_unknown=unit == "nats")
    assert [*tmp_path.iterdir()] == [path]
    table = rows(path)
    assert list(table) == [*COLUMNS.replace("bits", unit).split(), "document_region"]
    expected: list[tuple[Any, ...]] = []
    for place, (number, words) in enumerate(zip(numbers, sentences, strict=True)):
        for position, word in enumerate(["<S>", *words, "</S>"]):
            region = position - 1 if 0 < position <= len(words) else None
            among = (3, place, region, None if region is None else 10 * place + region)
            expected.append((number, position, word.replace("\ud83d", "?"), word not in WORDS, *among))
    others = [name for name in table if name not in (f"forward_{unit}", f"backward_{unit}")]
    assert list(zip(*(table[name] for name in others), strict=True)) == expected
    starts = scores.starts
    for name, log_probs, missing in (
        ("forward", scores.forward, starts[:-1]),
        ("backward", scores.backward, starts[1:]),
    ):
        bits = np.insert(-log_probs.astype(np.float64) / base, missing, np.nan)
        bits[np.array(table["is_unknown"]) & (unit == "nats")] = np.nan
        found = np.array(table[f"{name}_{unit}"], dtype=np.float64)
        np.testing.assert_allclose(found, bits, rtol=1e-5)
    assert table[f"forward_{unit}"][:2] == [None, None]


def test_a_table_by_region_adds_up_its_words(parts: tuple[ElmoForPreTraining, ElmoTokenizer], tmp_path: Path) -> None:
    model, tokenizer = parts
    placed = list(place_sentences(["the ferry, left", "", "unseen. ten"], "ptb"))
    scores = model.score([each.words for each in placed], tokenizer)
    write_table(tmp_path / "t.tsv", placed, scores, tokenizer, unit="nats", skips_unknown=True, by_region=True)
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


def test_the_command_carries_the_state_through_documents(
    parts: tuple[ElmoForPreTraining, ElmoTokenizer], tmp_path: Path
) -> None:
    for part in parts:
        part.save_pretrained(tmp_path / "lm")
    (tmp_path / "text").write_text("the ferry left.\nten late\n\nYes, at ten.\n", encoding="utf-8")
    options = ("--documents", "--unit", "nats", "--skip-unknown", "--words", "ptb")
    for name, more in (("t.tsv", ()), ("r.tsv", ("--regions",))):
        result = run("score", tmp_path / "lm", tmp_path / "text", "--per-word", tmp_path / name, *options, *more)
        assert result.exit_code == 0, result.output
        assert result.stdout.count("14 of 14 predictions") == 2
    assert rows(tmp_path / "r.tsv")["word"] == "the ferry left. ten late Yes, at ten.".split()
    table = rows(tmp_path / "t.tsv")
    places = zip(table["document"], table["document_sentence"], table["document_region"], table["word"], strict=True)
    assert [place for place in places if place[3] in ("late", "at")] == [(0, 1, 4, "late"), (1, 0, 1, "at")]
    model, tokenizer = parts
    first = model.score([["the", "ferry", "left", "."], ["ten", "late"]], tokenizer, carries_state=True, num_rows=1)
    nats = zip(table["document"], table["forward_nats"], strict=True)
    np.testing.assert_allclose([each for number, each in nats if number == 0 and each], -first.forward, rtol=1e-5)
