"""The model that comes with the package; and its training text: reading, cleaning, duplicates, the table of sources."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import ship

from elmo_hf import ElmoConfig, ElmoForPreTraining, tiny_model, tiny_tokenizer
from elmo_hf.folder.model_names import TINY_FOLDER, model_folder
from elmo_hf.model.configuration_elmo import AUTO_MAP
from elmo_hf.model.tokenization_elmo import make_word_splitter

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "tiny_model"))  # the scripts import each other
import cleaning
import english_sentences
import markup
import sources


@pytest.fixture(scope="module")
def language_model() -> ElmoForPreTraining:
    return tiny_model(ElmoForPreTraining)


def test_the_folder_is_small_and_holds_no_code() -> None:
    files = {path.name: path.stat().st_size for path in TINY_FOLDER.iterdir()}
    assert sum(files.values()) <= 16 * 2**20
    assert not [name for name in files if name.endswith(".py")]


def test_the_script_that_ships_it_writes_these_files(tmp_path: Path) -> None:
    ship.ship(TINY_FOLDER, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in TINY_FOLDER.iterdir()} - {"README.md"}
    for path in tmp_path.glob("*.safetensors"):
        written, shipped = load_file(path), load_file(TINY_FOLDER / path.name)
        assert written.keys() == shipped.keys()
        for name, tensor in written.items():
            # The folder was shipped when the scale of a mix had no axis.
            assert torch.equal(tensor, shipped[name].reshape(tensor.shape))
            assert tensor.dtype == shipped[name].dtype
            assert tensor.shape == (shipped[name].shape or (1,))


def test_a_copy_of_it_names_the_classes_of_todays_code(tmp_path: Path) -> None:
    assert ElmoConfig.from_pretrained(TINY_FOLDER).auto_map == AUTO_MAP
    tiny_model().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["auto_map"] == AUTO_MAP


def test_it_is_stored_in_half_precision_and_loads_as_float32(language_model: ElmoForPreTraining) -> None:
    assert {parameter.dtype for parameter in language_model.parameters()} == {torch.float32}
    assert all(torch.equal(parameter, parameter.half().float()) for parameter in language_model.parameters())
    inputs = tiny_tokenizer()(["The ferry left.", "Yes"], padding=True, return_tensors="pt")
    layers = tiny_model()(**inputs, output_hidden_states=True).hidden_states
    expected = language_model.elmo(**inputs, output_hidden_states=True).hidden_states
    assert all(torch.equal(*pair) for pair in zip(layers, expected, strict=True))


def test_a_folder_of_that_name_is_meant_if_it_holds_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_folder("tiny") == TINY_FOLDER
    (tmp_path / "tiny").mkdir()
    assert model_folder("tiny") == TINY_FOLDER
    (tmp_path / "tiny" / "config.json").write_text("{}")
    assert model_folder("tiny") == "tiny"


LONG = "The keeper of the light said he had seen the ship on the day before the storm, and nobody had answered him."


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
        ("json:t html", '{"a": [{"t": "<p>1 &lt; 2<br>Three</p>"}], "b": {"t": "Four"}}', ["1 < 2", "Three", "Four"]),
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


LEFT_OUT = (
    "Contents of this volume",
    "12.5 (2020) 13.1 (2021) 14.2",
    "OFFICE OF THE PRESS SECRETARY",
    "El guardián del faro dijo que había visto el barco antes de la tormenta y que nadie contestó " * 2,
    "tbe kecper ot thc 1ight sa1d tbat hc bad sccn thc sh1p cn tbc dav betorc tbc sterm aud tbat nobcdy ou it",
)


def test_only_running_english_text_is_kept() -> None:
    assert all(cleaning.clean(text.encode(), "file lines") for text in (LONG, "Thank you."))
    assert not any(cleaning.clean(text.encode(), "file lines") for text in LEFT_OUT)


def test_paragraphs_become_sentences_of_words() -> None:
    text = "• We met ``J. Doe'' at https://x.gov/a of Roe v. Wade (1st Cir. 1990). He didn't\u00ad stay."
    [(key, sentences)] = cleaning.clean(text.encode(), "file lines")
    assert sentences == ['We met " J. Doe " at of Roe v . Wade ( 1st Cir . 1990 ) .', "He did n't stay ."]
    assert cleaning.clean(b"We MET j Doe at of Roe v Wade 2 st cir he didn t stay", "file lines")[0][0] == key


CUT = ["It rained. | We left.", "“Go!” she said. | “Now?” | He went.", "Mr. Brown met Dr. A. Jones. | They left."]


@pytest.mark.parametrize("cut", [*CUT, "It was 3. o'clock. and so"])
def test_paragraphs_are_cut_between_a_stop_and_a_capital(cut: str) -> None:
    assert english_sentences.split_sentences(cut.replace(" | ", " ")) == cut.split(" | ")


def test_pieces_between_blanks_are_split_like_whole_sentences() -> None:
    splitter = make_word_splitter("ptb")
    for text in (LONG, "Mr. A. cannot; U.S. didn't go to a@b.org at 7:45, no. 3.", "etc. etc.", ":) x -- y... Jr."):
        assert cleaning.split_words(text) == [word for word, _ in splitter.pre_tokenize_str(text)]


def test_a_document_that_nearly_equals_an_earlier_one_is_left_out() -> None:
    pytest.importorskip("datasketch")
    import duplicates

    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(300)]
    known = duplicates.Duplicates()
    documents = (words, words[:150] + words[160:], words[150:], words)
    assert [known.is_new(duplicates.sketch_of(each)) for each in documents] == [True, False, True, False]
