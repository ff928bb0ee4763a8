"""Surprisal for reading research: places that join to a corpus of reading times, units, documents, unknown words."""

import csv
import math
from pathlib import Path

import numpy as np
from commands import run
from tiny_lm import tiny_lm, tiny_tokenizer_of

from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.documents import score_documents
from elmo_hf.language_model.surprisal_table import PlacedSentence, place_sentences, write_table

TEXT = ["", "the ferry's late,  at ten.", " Yes. ", "", " ", "ten", ["at", "dawn now"], ""]


def test_words_have_the_places_that_corpora_of_reading_times_number() -> None:
    late = ["the", "ferry", "'s", "late", ",", "at", "ten", "."]
    assert list(place_sentences(TEXT, "ptb")) == [
        PlacedSentence(1, late, [0, 1, 1, 2, 2, 3, 4, 4], 0, 0, 0),
        PlacedSentence(2, ["Yes", "."], [0, 0], 0, 1, 5),
        PlacedSentence(5, ["ten"], [0], 1, 0, 0),
        PlacedSentence(6, ["at", "dawn now"], [0, 1], 1, 1, 1),
    ]
    assert next(place_sentences(["\x1c a\x1db"], "ptb")).regions == [0, 1, 1, 1]
    assert next(place_sentences(TEXT, "whitespace")).words == ["the", "ferry's", "late,", "at", "ten."]


def test_documents_are_scored_each_in_its_order(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    sentences = [line.split() for line in ("the ferry left .", "late", "at ten , unseen", "Yes", "the harbour .")]
    documents = [0, 0, 0, 4, 4]
    counts: list[int] = []
    scores = score_documents(model, Corpus.from_sentences(sentences, tokenizer), documents, counts.append)
    parts = [model.score(part, tokenizer, carries_state=True, num_rows=1) for part in (sentences[:3], sentences[3:])]
    np.testing.assert_array_equal(scores.forward, np.concatenate([part.forward for part in parts]))
    np.testing.assert_array_equal(scores.backward, np.concatenate([part.backward for part in parts]))
    assert scores.num_scored == sum(counts) == sum(len(words) + 1 for words in sentences)
    assert scores.starts.tolist() == [0, 5, 7, 12, 14, 18]
    zero = model.score(sentences, tokenizer)
    np.testing.assert_allclose(zero.forward[:5], scores.forward[:5], rtol=1e-5)
    assert not np.allclose(zero.forward[5:12], scores.forward[5:12], rtol=1e-3)
    assert len(score_documents(model, Corpus.from_sentences([], tokenizer), []).forward) == 0


def test_units_and_unknown_words(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    words = ["the", "unseen", "ferry"]
    scores = model.score([words], tokenizer)
    placed = [PlacedSentence(0, words, range(3))]
    write_table(tmp_path / "bits.tsv", placed, scores, tokenizer)
    write_table(tmp_path / "nats.tsv", placed, scores, tokenizer, unit="nats", skips_unknown=True)
    bits, nats = (rows(tmp_path / f"{name}.tsv") for name in ("bits", "nats"))
    for direction, log_probs, empty in (("forward", scores.forward, 0), ("backward", scores.backward, 4)):
        expected = np.insert(-log_probs, empty, np.nan)
        found = [number(row[f"{direction}_bits"]) * math.log(2) for row in bits]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        expected[2] = np.nan
        np.testing.assert_allclose([number(row[f"{direction}_nats"]) for row in nats], expected, rtol=1e-5)
    assert [row["is_unknown"] for row in nats] == ["false", "false", "true", "false", "false"]


def test_a_table_by_region_adds_up_its_words(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    placed = list(place_sentences(["the ferry, left", "", "unseen. ten"], "ptb"))
    scores = model.score([each.words for each in placed], tokenizer)
    write_table(tmp_path / "t.tsv", placed, scores, tokenizer, unit="nats", skips_unknown=True, by_region=True)
    table = rows(tmp_path / "t.tsv")
    names = [
        "sentence",
        "document",
        "document_sentence",
        "region",
        "document_region",
        "word",
        "num_words",
        "is_unknown",
    ]
    assert list(table[0]) == [*names, "forward_nats", "backward_nats"]
    assert [tuple(row[name] for name in names) for row in table] == [
        ("0", "0", "0", "0", "0", "the", "1", "false"),
        ("0", "0", "0", "1", "1", "ferry,", "2", "false"),
        ("0", "0", "0", "2", "2", "left", "1", "false"),
        ("2", "1", "0", "0", "0", "unseen.", "2", "true"),
        ("2", "1", "0", "1", "1", "ten", "1", "false"),
    ]
    first, second = (-row[:-1] for row in np.split(scores.forward, scores.starts[1:-1]))
    expected = [first[0], first[1] + first[2], first[3], np.nan, second[2]]
    np.testing.assert_allclose([number(row["forward_nats"]) for row in table], expected, rtol=1e-5)
    first, second = (-row[1:] for row in np.split(scores.backward, scores.starts[1:-1]))
    expected = [first[0], first[1] + first[2], first[3], np.nan, second[2]]
    np.testing.assert_allclose([number(row["backward_nats"]) for row in table], expected, rtol=1e-5)
    write_table(tmp_path / "none.tsv", [], model.score([], tokenizer), tokenizer, by_region=True)
    assert rows(tmp_path / "none.tsv") == []


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def number(cell: str) -> float:
    return float(cell) if cell else math.nan


def test_the_command_carries_the_state_through_documents(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    model.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    (tmp_path / "text").write_text("the ferry left.\nten late\n\nYes, at ten.\n", encoding="utf-8")
    options = ("--documents", "--unit", "nats", "--skip-unknown", "--words", "ptb")
    result = run("score", tmp_path / "lm", tmp_path / "text", "--per-word", tmp_path / "t.tsv", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("14 of 14 predictions") == 2
    table = rows(tmp_path / "t.tsv")
    keys = ("document", "document_sentence", "region", "document_region", "word")
    assert [tuple(row[key] for key in keys) for row in table if row["sentence"] != "0"] == [
        ("0", "1", "", "", "<S>"),
        ("0", "1", "0", "3", "ten"),
        ("0", "1", "1", "4", "late"),
        ("0", "1", "", "", "</S>"),
        ("1", "0", "", "", "<S>"),
        ("1", "0", "0", "0", "Yes"),
        ("1", "0", "0", "0", ","),
        ("1", "0", "1", "1", "at"),
        ("1", "0", "2", "2", "ten"),
        ("1", "0", "2", "2", "."),
        ("1", "0", "", "", "</S>"),
    ]
    result = run("score", tmp_path / "lm", tmp_path / "text", "--per-word", tmp_path / "r.tsv", "--regions", *options)
    assert result.exit_code == 0, result.output
    assert [row["word"] for row in rows(tmp_path / "r.tsv")] == "the ferry left. ten late Yes, at ten.".split()
    first = model.score([["the", "ferry", "left", "."], ["ten", "late"]], tokenizer, carries_state=True, num_rows=1)
    nats = [float(row["forward_nats"]) for row in table if row["document"] == "0" and row["forward_nats"]]
    np.testing.assert_allclose(nats, -first.forward, rtol=1e-5)
