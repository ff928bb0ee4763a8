"""The training text of the shipped model: reading, cleaning, duplicates, held-out parts and the table of sources."""

import re
import sys
from pathlib import Path

import pytest

from elmo_hf.tokenizer.word_splitter import make_word_splitter

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "tiny_model"))  # the scripts import each other
import cleaning
import english_sentences
import markup
import sources

LONG = (
    "The keeper of the light said that he had seen the ship on the day before the storm, and that nobody on board had "
    "answered when he called to them from the rocks below the house."
)


def test_the_table_names_every_source_completely() -> None:
    table = sources.read_sources(sources.SOURCES)
    assert len(table) >= 15
    for source in table:
        re.compile(source.files)
        assert re.search(r"17 U\.S\.C\. 105|CC0|out of copyright", source.basis), source
        assert source.is_recent or source.years < "1930" or source.source == "state-frus-history"


@pytest.mark.parametrize(
    ("form", "text", "paragraphs"),
    [
        ("file lines", "One.\r\n\r\nTwo  two.", ["One.", "Two two."]),
        ("file blocks", "One\nline.\n\nTwo.", ["One line.", "Two."]),
        (
            "file markdown",
            "---\ntitle: T\n---\n# Head\nA **bold** [link](http://x.y/(z)) and\n`code` ![i](j).\n\n- item &amp; one\n"
            "- item _two_\n\n| a | b |\n\n```\nskip\n```\n<div>In *it*</div>{{< fig >}}",
            ["Head", "A bold link and code .", "item & one", "item two", "In it"],
        ),
        (
            "json:t html",
            '{"a": [{"t": "<p>One &lt; two<br>Three</p>"}], "b": {"t": "Four"}}',
            ["One < two", "Three", "Four"],
        ),
        (
            "json:t pages",
            '{"t": "     He\\n  went.\\n\\n     She\\n\\n  slept\\n\\n            -2-\\n  un-\\n  til noon."}',
            ["He went.", "She slept until noon."],
        ),
        ("xml:p blocks", '<r xmlns="n"><p>One <i>two</i><note>no</note> three.</p><q>no</q></r>', ["One two three."]),
        ("csv:s lines", 'n,s\n1,"One,\nand"\n2,Two\n', ["One, and", "Two"]),
    ],
)
def test_every_form_becomes_paragraphs(form: str, text: str, paragraphs: list[str]) -> None:
    assert markup.read_paragraphs(text.encode(), form) == paragraphs


KEPT = (LONG, "Thank you.")
LEFT_OUT = (
    "Contents of this volume",
    "12.5 (2020) 13.1 (2021) 14.2",
    "OFFICE OF THE PRESS SECRETARY",
    "El guardián del faro dijo que había visto el barco antes de la tormenta y que nadie contestó " * 2,
    "tbe kecper ot thc 1ight sa1d tbat hc bad sccn thc sh1p cn tbc dav betorc tbc sterm aud tbat nobcdy ou it",
)


def test_only_running_english_text_is_kept() -> None:
    assert all(cleaning.clean(text.encode(), "file lines") for text in KEPT)
    assert not any(cleaning.clean(text.encode(), "file lines") for text in LEFT_OUT)


def test_paragraphs_become_sentences_of_words() -> None:
    text = "• We met ``J. Doe'' at https://x.gov/a of Roe v. Wade (1st Cir. 1990). He didn't\u00ad stay."
    [(key, sentences)] = cleaning.clean(text.encode(), "file lines")
    assert sentences == ['We met " J. Doe " at of Roe v . Wade ( 1st Cir . 1990 ) .', "He did n't stay ."]
    assert cleaning.clean(b"We MET j Doe at of Roe v Wade 2 st cir he didn t stay", "file lines")[0][0] == key


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "We left."],
        ["“Go!” she said.", "“Now?”", "He went."],
        ["Mr. Brown met Dr. A. Jones.", "They left."],
        ["It was 3. o'clock. and so"],
    ],
)
def test_paragraphs_are_cut_between_a_stop_and_a_capital(sentences: list[str]) -> None:
    assert english_sentences.split_sentences(" ".join(sentences)) == sentences


def test_pieces_between_blanks_are_split_like_whole_sentences() -> None:
    splitter = make_word_splitter("ptb")
    for text in (LONG, "Mr. A. cannot; U.S. didn't go to a@b.org at 7:45, no. 3.", "etc. etc.", ":) x -- y... Jr."):
        assert cleaning.split_words(text) == [word for word, _ in splitter.pre_tokenize_str(text)]


def test_a_document_that_nearly_equals_an_earlier_one_is_left_out() -> None:
    pytest.importorskip("datasketch")
    import duplicates

    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(300)]
    known = duplicates.Duplicates()
    found = [
        known.is_new(duplicates.sketch_of(each)) for each in (words, words[:150] + words[160:], words[150:], words)
    ]
    assert found == [True, False, True, False]
