"""Tables with one word a row: their rows are joined to texts, and have the surprisal of the joined texts."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from elmo_hf import ElmoForPreTraining
from elmo_hf.disk.tables import save_table
from elmo_hf.language_model.surprisal_table import PlacedSentence, place_sentences, surprisal_table
from elmo_hf.language_model.word_rows import WordRows, read_word_rows, read_word_table, word_rows_table
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.one_direction import forward_half
from tests.helpers.tiny_lm import WORDS, tiny_lm, tokenizer_of, tokenizer_with

# Three items: a quotation over several rows, attached marks, unknown words, a cell of two words, blanks at the ends.
ITEMS = {
    "7": ["“the", "ferry", "left,”", "Yes."],
    "b": [" ten", "unseen", "the harbour", '"late"', "naïve."],
    "1": ["at", "dawn,", "Übung"],
}
TEXTS = ["“the ferry left,” Yes.", 'ten unseen the harbour "late" naïve.', "at dawn, Übung"]
# The number of the row of each word.
REGIONS = [[0, 0, 1, 2, 2, 2, 3, 3], [0, 1, 2, 2, 3, 3, 3, 4, 4], [0, 1, 1, 2]]


def table_of(items: dict[str, list[str]]) -> list[tuple[int, dict[str, str]]]:
    cells = [(item, word) for item, words in items.items() for word in words]
    return [(line, {"time": str(300 + line), "word": word, "item": item}) for line, (item, word) in enumerate(cells, 2)]


def write_tsv(path: Path, rows: list[tuple[int, dict[str, str]]]) -> Path:
    lines = ["\t".join(rows[0][1]), *("\t".join(row.values()) for _, row in rows)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_of_an_item_are_split_as_their_text_is() -> None:
    rows = read_word_rows(table_of(ITEMS), "t.tsv", "word", ["item"]).split("ptb")
    assert rows.texts[0] == TEXTS[0]
    for number, (sentence, text) in enumerate(zip(rows.sentences, place_sentences(TEXTS, "ptb"), strict=True)):
        assert sentence.words == text.words
        assert (sentence.line, sentence.document, sentence.document_sentence) == (number, number, 0)
    assert [sentence.regions for sentence in rows.sentences] == REGIONS
    assert [sentence.document_region for sentence in rows.sentences] == [0, 4, 9]
    at_blanks = read_word_rows(table_of(ITEMS), "t.tsv", "word", ["item"]).split("whitespace").sentences[1]
    assert at_blanks.words == ["ten", "unseen", "the", "harbour", '"late"', "naïve."]
    assert at_blanks.regions == [0, 1, 2, 2, 3, 4]


def test_the_last_key_tells_sentences_apart_and_the_others_documents() -> None:
    places = [("x", "1", "1"), ("x", "1", "2"), ("x", "2", "1"), ("y", "1", "1"), ("y", "1", "3")]
    rows = [
        (line, dict(zip(("who", "item", "sentence", "word"), (*place, word), strict=True)))
        for line, (place, word) in enumerate(((place, word) for place in places for word in ("ten", "left")), 2)
    ]
    sentences = read_word_rows(rows, "t.tsv", "word", ["who", "item", "sentence"]).split("ptb").sentences
    assert [each[3:] for each in sentences] == [(0, 0, 0), (0, 1, 2), (1, 0, 4), (2, 0, 6), (2, 1, 8)]
    assert all(each.words == ["ten", "left"] and each.regions == [0, 1] for each in sentences)


@pytest.mark.parametrize("unit", ["bits", "nats"])
@pytest.mark.parametrize(
    "make_model", [tiny_lm, lambda: forward_half(tiny_lm())], ids=["both directions", "forward alone"]
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_every_row_has_the_surprisal_of_its_region_in_the_joined_text(
    suffix: str, make_model: Any, unit: str, tmp_path: Path
) -> None:
    model: ElmoForPreTraining = make_model()
    tokenizer, path = tokenizer_of(model), tmp_path / f"out{suffix}"
    rows = read_word_rows(table_of(ITEMS), "t.tsv", "word", ["item"]).split("ptb")
    scores = model.score([sentence.words for sentence in rows.sentences], tokenizer)
    save_table(path, word_rows_table(rows, scores, tokenizer, unit))
    written = pq.read_table(path).to_pylist() if suffix == ".parquet" else read_csv(path)
    assert [(row["time"], row["word"], row["item"]) for row in written] == [
        tuple(row.values()) for _, row in table_of(ITEMS)
    ]
    added = ["num_words", "is_unknown", f"forward_{unit}", f"backward_{unit}"]
    assert list(written[0]) == ["time", "word", "item", *added]
    # By hand: the words of each row, and their surprisals in the text scored by itself.
    row = 0
    for text, regions in zip(TEXTS, REGIONS, strict=True):
        (placed,) = place_sentences([text], "ptb")
        scores = model.score([placed.words], tokenizer)
        base = np.float32(np.log(2)) if unit == "bits" else np.float32(1)
        parts = {"forward": -scores.forward[:-1] / base, "backward": -scores.backward[1:] / base}
        for region in range(regions[-1] + 1):
            places = [place for place, number in enumerate(regions) if number == region]
            assert int(written[row]["num_words"]) == len(places)
            assert (
                str(written[row]["is_unknown"]).upper()
                == str(any(placed.words[place] not in WORDS for place in places)).upper()
            )
            for name, values in parts.items():
                expected = values[places].sum()
                cell = written[row][f"{name}_{unit}"]
                if np.isnan(expected):
                    assert cell in (None, "")
                else:
                    np.testing.assert_allclose(float(cell), expected, rtol=1e-6)
            row += 1
    assert row == len(written)


def test_sums_over_rows_are_those_of_the_table_by_region() -> None:
    """Exactly, where each region is a row and each text is scored in the same batch."""
    model, tokenizer = tiny_lm(), tokenizer_with()
    items = {item: [word for cell in words for word in cell.split()] for item, words in ITEMS.items()}
    rows = read_word_rows(table_of(items), "t.tsv", "word", ["item"]).split("ptb")
    placed = list(place_sentences(TEXTS, "ptb"))
    scores = model.score([each.words for each in placed], tokenizer)
    joined, by_text = (surprisal_table(each, scores, tokenizer, by_region=True) for each in (rows.sentences, placed))
    names = ["sentence", "region", "word", "num_words", "forward_bits", "backward_bits"]
    assert joined.select(names) == by_text.select(names)


def test_a_row_with_an_unknown_word_or_without_words_is_left_empty(tmp_path: Path) -> None:
    model, tokenizer = tiny_lm(), tokenizer_with()
    rows = read_word_rows(table_of({"1": ["the", "unseen,", "\x85ten"]}), "t.tsv", "word", ["item"]).split("ptb")
    rows = WordRows(
        rows.columns | {"word": ["the", "unseen,", "nothing", "ten"], "time": list("abcd"), "item": list("1111")},
        [PlacedSentence(0, ["the", "unseen", ",", "ten"], [0, 1, 1, 3])],
        [],
    )
    scores = model.score([rows.sentences[0].words], tokenizer)
    save_table(tmp_path / "t.csv", word_rows_table(rows, scores, tokenizer, skips_unknown=True))
    written = read_csv(tmp_path / "t.csv")
    assert [row["num_words"] for row in written] == ["1", "2", "0", "1"]
    assert [row["is_unknown"] for row in written] == ["FALSE", "TRUE", "FALSE", "FALSE"]
    assert [row["forward_bits"] == "" for row in written] == [False, True, True, False]


def rows_of(text: str) -> list[tuple[int, dict[str, str]]]:
    names, *lines = (line.split(",") for line in text.split())
    return [(number, dict(zip(names, line, strict=True))) for number, line in enumerate(lines, 2)]


# What is refused: the table, its keys, and what the message names.
REFUSED: dict[str, tuple[str, list[str], str]] = {
    "an item that goes on": (
        "item,word 1,the 2,ten 1,ferry",
        ["item"],
        "t.csv, line 4: item 1 began in line 2 and goes on here",
    ),
    "participants, one after the other": (
        "who,item,word a,1,the a,1,ferry a,2,ten b,1,the",
        ["item"],
        "line 5: item 1 began in line 2 and goes on here",
    ),
    "participants of one item": (
        "who,item,word a,1,the a,1,ferry a,1,left b,1,the b,1,ferry b,1,left",
        ["item"],
        "line 2: item 1 has the same 3 words 2 times",
    ),
    "participants, word by word": (
        "who,item,word a,1,the b,1,the a,1,ferry b,1,ferry a,1,left b,1,left",
        ["item"],
        "line 2: item 1 has the same 3 words 2 times",
    ),
    "a missing word": ("item,word 1,the 1, 1,left", ["item"], "line 3: the cell of column 'word' is empty"),
    "a missing item": ("item,word 1,the ,ferry", ["item"], "line 3: the cell of column 'item' is empty"),
    "no such key": ("item,word 1,the", ["story"], "no column 'story'; its columns are item, word"),
    "a key twice": ("item,word 1,the", ["item", "item"], "must be different"),
    "the words as a key": ("item,word 1,the", ["word"], "must be different"),
    "a column that is added": ("item,word,forward_bits 1,the,3", ["item"], "has a column 'forward_bits' already"),
    "no rows": ("item,word", ["item"], "t.csv has no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_mean_two_things_is_refused_with_its_line(case: str) -> None:
    text, keys, named = REFUSED[case]
    with pytest.raises(ValueError, match=r"^t\.csv") as caught:
        read_word_rows(rows_of(text), "t.csv", "word", keys).split("ptb")
    assert named in str(caught.value)


def test_participants_are_texts_of_their_own() -> None:
    rows = rows_of("who,item,word a,1,the a,1,ferry a,2,ten b,1,the b,1,ferry")
    rows[1][1]["item"] = "1 "  # the same item
    found = read_word_rows(rows, "t.csv", "word", ["who", "item"]).split("ptb").sentences
    assert [(each.words, each.document) for each in found] == [
        (["the", "ferry"], 0),
        (["ten"], 0),
        (["the", "ferry"], 1),
    ]


COUNTED = "item,zone,word 1,1,the 1,2,ferry 1,3,left 1,4,late 1,1,the 1,2,ferry 1,4,late 1,5,now"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (COUNTED, "line 6"),
        (COUNTED.replace("1,1,the 1,2,ferry 1,4,late", "2,1,the 2,2,ferry 2,4,late").replace(" 1,5", " 2,5"), None),
        ("item,time,word 1,301,the 1,280,ferry 1,310,left 1,311,late 1,299,now", None),
        (f"item,id,word 1,{'9' * 5000},the 1,1,ferry", None),
    ],
    ids=["a counter", "a counter for each item", "times", "long numbers"],
)
def test_a_column_that_counts_rows_and_begins_again_within_a_text_is_noted(
    text: str, line: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    read_word_rows(rows_of(text), "t.csv", "word", ["item"]).split("ptb")
    assert [f"t.csv, {line}: 'zone' counts up within item 1" in message for message in caplog.messages] == (
        [True] if line else []
    )


def test_no_column_of_a_table_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("item,time,time,word\n1,200,300,the\n", encoding="utf-8")
    with pytest.raises(ValueError, match="the column 'time' twice"):
        read_word_table(path, "word", ["item"]).split("ptb")
    path.write_text('item,"time, ""ms""",word\n1,200,the\n', encoding="utf-8")
    rows = read_word_table(path, "word", ["item"]).split("ptb")
    model, tokenizer = tiny_lm(), tokenizer_with()
    save_table(tmp_path / "o.csv", word_rows_table(rows, model.score([["the"]], tokenizer), tokenizer))
    assert read_csv(tmp_path / "o.csv")[0]['time, "ms"'] == "200"
    with pytest.raises(ValueError, match="is no table"):
        read_word_table(tmp_path / "o.csv", "word", ["item"], input_format="text").split("ptb")


def test_the_command_scores_items_and_writes_the_rows_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for part in (tiny_lm(), tokenizer_with()):
        part.save_pretrained("lm")
    write_tsv(Path("story.tsv"), table_of(ITEMS))
    Path("story.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    columns = ("--column", "word", "--words", "ptb")
    by_item = output_of("score", "lm", "story.tsv", *columns, "--by", "item", "--per-word", "out.csv")
    assert by_item.splitlines()[:-1] == output_of("score", "lm", "story.txt", "--words", "ptb").splitlines()
    assert [row["word"] for row in read_csv(Path("out.csv"))] == [row["word"] for _, row in table_of(ITEMS)]
    single = run("score", "lm", "story.tsv", *columns)
    assert "Note: most lines or rows of story.tsv have one word" in single.stderr
    assert "--by COLUMN joins the rows of a text" in single.stderr
    assert_fails(run("score", "lm", "story.tsv", "--by", "item"), 2, "--by needs --column NAME")
    both = ("--by", "item", "--per-word", "o.csv", "--regions")
    assert_fails(run("score", "lm", "story.tsv", *columns, *both), 2, "leave out --regions")
    assert_fails(run("score", "lm", "story.txt", *columns, "--by", "item"), 1, "is no table")
